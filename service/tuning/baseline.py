"""The baseline: an earlier answer, and what became worse since."""

from collections.abc import Iterator

from api_schemas.check import Baseline
from api_schemas.estimate import Estimate
from api_schemas.explanation import Finding
from service.tuning.lint.figures import bands_of, figures_of
from service.tuning.lint.findings import gate_finding

_HIGHER_IS_BETTER = frozenset({"kv_cache_tokens", "output_tokens_per_s"})
_LEAST_CHANGE = 0.01
"""Below one in a hundred nothing is said, however narrow the band."""


def worse_than(baseline: Baseline, *, title: str, estimate: Estimate | None) -> Iterator[Finding]:
    """Yield the figures of an engine that are worse than in the baseline, band and all.

    A figure whose band still reaches the old value is not called worse.
    """
    earlier = next((one.figures for one in baseline.engines if one.engine == title[:256]), None)
    if earlier is None or estimate is None:
        return
    bands = bands_of(estimate)
    for name, now in figures_of(estimate).items():
        before, band = earlier.get(name), bands.get(name)
        if before is None or before <= 0 or band is None:
            continue
        if _is_worse(name, before=before, now=now, band=band):
            yield gate_finding(
                "POL003",
                f"{title}: {name} is {now:,.6g}, {abs(now / before - 1):.1%} worse than"
                f" {before:,.6g} in {baseline.name}, and so is its whole band"
                f" ({band[0]:,.6g} to {band[1]:,.6g}).",
                suggestion="Take the change back, or renew the baseline on purpose.",
                setting=name,
            )


def _is_worse(name: str, *, before: float, now: float, band: list[float]) -> bool:
    low, high = band
    if name in _HIGHER_IS_BETTER:
        return now < before * (1 - _LEAST_CHANGE) and high < before
    return now > before * (1 + _LEAST_CHANGE) and low > before
