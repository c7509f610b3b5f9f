"""Numbers as people write them."""

_PLAIN_FROM = 100


def figure(value: float) -> str:
    """Return a number with three digits, thousands separated, without exponent above 0.001."""
    if abs(value) >= _PLAIN_FROM:
        return f"{value:,.0f}"
    return f"{value:.3g}"
