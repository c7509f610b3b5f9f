"""Whether a fit may be used: it must predict points better that it has not seen."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.tuning.calibrations.bands import log_widths
from service.tuning.calibrations.directions import HYPOTHESES, NUM_DIRECTIONS, Hypothesis
from service.tuning.calibrations.fit import (
    Line,
    MeasuredPoint,
    calibration_of,
    fit_moves,
    line_of,
    noise,
    residuals,
    solve,
)
from service.tuning.latency.calibration import Calibration
from service.tuning.latency.coefficients import Coefficients, bundled_coefficients

Floats = NDArray[np.float64]
FEWEST_POINTS = 2
MOST_POINTS = 48
"""Of more measurements the newest are fitted."""
_ENOUGH = 0.9
"""Largest share of the loss that may be left: an average that leans to the best of four
explanations is a little better than none by chance alone. With 0.9 instead of 1 the fits that are
used predict other loads better (median error of throughput 4.8 instead of 5.6 %, of TTFT 8.0
instead of 8.7 %, by `benchmarks/few_shot.py --folds 5`)."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Residuals (logarithms) of the left-out points of one metric, without and with the fit."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    noise: tuple[float, ...]
    """What each of them may be without meaning anything."""

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
    weights, left_out = weigh(lines)
    is_used = is_worth_using(left_out)
    widths = log_widths(len(lines))
    trusted = {m: w for m, w in widths.items() if m in left_out and left_out[m].is_better}
    moves = fit_moves(lines, coefficients=shipped, weights=weights)
    return Fitted(
        calibration=calibration_of(
            moves, lines[0].point.prediction.work, points=len(lines), log_widths=trusted
        ),
        is_used=is_used,
        reason=_reason(left_out, is_used=is_used),
        left_out=left_out,
        points=tuple(line.point.id for line in lines),
    )


def weigh(lines: Sequence[Line]) -> tuple[tuple[float, ...], dict[str, LeftOut]]:
    """Return how much each hypothesis counts, and the left-out points as their average has them.

    A hypothesis counts as likely as it makes each point that it was not fitted to. Three points
    seldom tell one from the other, and to pick one would be to follow their noise.
    """
    tried = [leave_one_out(lines, hypothesis=hypothesis) for hypothesis in HYPOTHESES]
    losses = np.array([loss(left_out, after=True) * _count(left_out) for left_out in tried])
    weights = np.exp(losses.min() - losses)
    weights /= weights.sum()
    return tuple(weights), {
        metric: msgspec.structs.replace(
            pair,
            after=tuple(np.average([x[metric].after for x in tried], axis=0, weights=weights)),
        )
        for metric, pair in tried[0].items()
    }


def leave_one_out(lines: Sequence[Line], *, hypothesis: Hypothesis) -> dict[str, LeftOut]:
    """Return by metric the residuals of each point when the others are all that is known."""
    unmoved = np.zeros(NUM_DIRECTIONS)
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for index, line in enumerate(lines):
        others = [*lines[:index], *lines[index + 1 :]]
        moves = solve(others, start=unmoved, spreads=hypothesis.spreads)
        found = zip(residuals(line, unmoved), residuals(line, moves), noise(line), strict=True)
        for figure, row in zip(line.point.figures, found, strict=True):
            rows.setdefault(figure.metric, []).append(row)
    return {metric: _left_out(some) for metric, some in rows.items()}


def _left_out(rows: Sequence[tuple[float, float, float]]) -> LeftOut:
    before, after, allowed = (tuple(float(x) for x in column) for column in zip(*rows, strict=True))
    return LeftOut(before=before, after=after, noise=allowed)


def _count(left_out: Mapping[str, LeftOut]) -> int:
    return sum(len(pair.before) for pair in left_out.values())


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
    """Return the mean pseudo-Huber loss in units of each figure's noise."""
    scaled = [
        off / allowed
        for pair in left_out.values()
        for off, allowed in zip(pair.after if after else pair.before, pair.noise, strict=True)
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
