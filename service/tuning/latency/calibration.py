"""Few-shot calibration: a handful of measured points refit the physics of one configuration."""

import msgspec

from service.tuning.latency.coefficients import Coefficients


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Factors on the physical coefficients, learned from measured points of a configuration."""

    factors: dict[str, float]
    points: int
    log_widths: dict[str, float]
    """Half width of the 80 % band per metric after the fit, on the log scale."""

    def applied_to(self, coefficients: Coefficients) -> Coefficients:
        """Return the coefficients with these factors multiplied in."""
        changed = {name: coefficients.value(name) * factor for name, factor in self.factors.items()}
        return Coefficients(
            version=f"{coefficients.version}+{self.points}",
            factors={**coefficients.factors, **changed},
        )

    def narrowed(self, metric: str, factors: tuple[float, float]) -> tuple[float, float]:
        """Return the band of this metric after calibration, never wider than before.

        It lies evenly around the prediction: what leaned to one side before was corrected.
        """
        width = self.log_widths.get(metric)
        if width is None:
            return factors
        half = min(width, (factors[1] - factors[0]) / 2)
        return -half, half
