"""Whether a fit may be used: it must predict points better that it has not seen."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.tuning.calibrations.bands import log_widths
from service.tuning.calibrations.directions import HYPOTHESES, NUM_DIRECTIONS, Hypothesis
from service.tuning.calibrations.fit import (
    NOISE,
    Line,
    MeasuredPoint,
    calibration_of,
    fit_moves,
    line_of,
    residuals,
)
from service.tuning.latency.calibration import Calibration
from service.tuning.latency.coefficients import Coefficients, bundled_coefficients

Floats = NDArray[np.float64]
FEWEST_POINTS = 2
MOST_POINTS = 48
"""Of more measurements the newest are fitted."""
_ENOUGH = 0.9
"""Largest share of the loss that may be left: the best of four explanations is a little better
than none by chance alone. With 0.9 instead of 1 the fits that are used predict other loads better
(median error of throughput 3.9 instead of 4.7 %, of TTFT 7.3 instead of 7.8 %, by
`benchmarks/few_shot.py --folds 5`)."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Residuals (logarithms) of the left-out points of one metric, without and with the fit."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def is_better(self) -> bool:
        """Whether the fit helped with this metric."""
        return _size(self.after) < _size(self.before)


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A fit with its judgement."""

    calibration: Calibration
    is_used: bool
    reason: str
    left_out: Mapping[str, LeftOut]
    points: tuple[str, ...]
    """Ids of the points that it was fitted to."""


def calibrate(
    points: Sequence[MeasuredPoint], *, coefficients: Coefficients | None = None
) -> Fitted:
    """Return the fit to the points of one configuration, and whether it may be used.

    Each point is predicted from the others; the fit is used when that beats the prediction without
    any measurement. Points that cannot be simulated are left aside.
    """
    shipped = coefficients or bundled_coefficients()
    found = (line_of(point, coefficients=shipped) for point in points[-MOST_POINTS:])
    lines = [line for line in found if line is not None]
    if len(lines) < FEWEST_POINTS:
        return _too_few(lines)
    hypothesis, left_out = best_hypothesis(lines, coefficients=shipped)
    is_used = is_worth_using(left_out)
    widths = log_widths(len(lines))
    trusted = {m: w for m, w in widths.items() if m in left_out and left_out[m].is_better}
    moves = fit_moves(lines, coefficients=shipped, hypothesis=hypothesis)
    return Fitted(
        calibration=calibration_of(
            moves, lines[0].point.prediction.work, points=len(lines), log_widths=trusted
        ),
        is_used=is_used,
        reason=_reason(left_out, is_used=is_used),
        left_out=left_out,
        points=tuple(line.point.id for line in lines),
    )


def best_hypothesis(
    lines: Sequence[Line], *, coefficients: Coefficients
) -> tuple[Hypothesis, dict[str, LeftOut]]:
    """Return what explains left-out points best, with their residuals."""
    tried = [
        (hypothesis, leave_one_out(lines, coefficients=coefficients, hypothesis=hypothesis))
        for hypothesis in HYPOTHESES
    ]
    return min(tried, key=lambda pair: loss(pair[1], after=True))


def leave_one_out(
    lines: Sequence[Line], *, coefficients: Coefficients, hypothesis: Hypothesis
) -> dict[str, LeftOut]:
    """Return by metric the residuals of each point when the others are all that is known."""
    unmoved = np.zeros(NUM_DIRECTIONS)
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    for index, line in enumerate(lines):
        others = [*lines[:index], *lines[index + 1 :]]
        moves = fit_moves(others, coefficients=coefficients, hypothesis=hypothesis, schedules=1)
        rows = zip(
            line.point.figures, residuals(line, unmoved), residuals(line, moves), strict=True
        )
        for figure, off_before, off_after in rows:
            before.setdefault(figure.metric, []).append(float(off_before))
            after.setdefault(figure.metric, []).append(float(off_after))
    return {m: LeftOut(before=tuple(before[m]), after=tuple(after[m])) for m in before}


def _too_few(lines: Sequence[Line]) -> Fitted:
    reason = (
        "No measured load can be simulated."
        if not lines
        else "One load was measured: there is none left out to judge a fit by; measure another."
    )
    return Fitted(
        calibration=Calibration(factors={}, points=len(lines), log_widths={}),
        is_used=False,
        reason=reason,
        left_out={},
        points=tuple(line.point.id for line in lines),
    )


def loss(left_out: Mapping[str, LeftOut], *, after: bool) -> float:
    """Return the mean pseudo-Huber loss in units of each metric's noise."""
    scaled = [
        off / NOISE[metric]
        for metric, pair in left_out.items()
        for off in (pair.after if after else pair.before)
    ]
    return float(np.mean(np.sqrt(1.0 + np.square(scaled)) - 1.0))


def is_worth_using(left_out: Mapping[str, LeftOut]) -> bool:
    """Tell whether left-out points are predicted clearly better with the fit than without."""
    return loss(left_out, after=True) < _ENOUGH * loss(left_out, after=False)


def _size(residual: tuple[float, ...]) -> float:
    return float(np.mean(np.abs(residual)))


def median_percent(residual: tuple[float, ...]) -> float:
    """Return the median absolute error in percent."""
    return float(np.median(np.abs(np.expm1(residual)))) * 100.0


def _reason(left_out: Mapping[str, LeftOut], *, is_used: bool) -> str:
    moved = ", ".join(
        f"{metric} {median_percent(pair.before):.1f} % to {median_percent(pair.after):.1f} %"
        for metric, pair in sorted(left_out.items())
    )
    if is_used:
        return f"It predicts left-out points better: {moved}."
    compared = "no better" if loss(left_out, after=True) < loss(left_out, after=False) else "worse"
    return f"It predicts left-out points {compared} than no calibration: {moved}."
