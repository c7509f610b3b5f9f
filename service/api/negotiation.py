"""Content negotiation: what the caller accepts, from what a route can make."""

from collections.abc import Sequence


def choose_media_type(accept: str, offered: Sequence[str]) -> str | None:
    """Return the offered media type that an Accept header prefers; None when none is accepted.

    An absent header accepts everything. Equal preference falls to the earlier offer.
    """
    ranges = [_parse_range(part) for part in accept.split(",") if part.strip()]
    if not ranges:
        return offered[0]
    weights = [(_weight(media_type, ranges), media_type) for media_type in offered]
    best = max(weight for weight, _ in weights)
    if best <= 0:
        return None
    return next(media_type for weight, media_type in weights if weight == best)


def _weight(media_type: str, ranges: list[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that covers this media type, else 0."""
    essence = media_type.partition(";")[0].strip()
    matching = [(_specificity(name), q) for name, q in ranges if _covers(name, essence)]
    return max(matching)[1] if matching else 0.0


def _covers(name: str, essence: str) -> bool:
    if name in ("*/*", essence):
        return True
    return name.endswith("/*") and essence.startswith(name[:-1])


def _specificity(name: str) -> int:
    if name == "*/*":
        return 0
    return 1 if name.endswith("/*") else 2


def _parse_range(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            return name, _quality(value)
    return name, 1.0


def _quality(value: str) -> float:
    try:
        return min(1.0, max(0.0, float(value)))
    except ValueError:
        return 0.0
