"""The fit: which factors on the physics make a few measured points come out right.

Twelve unknowns with priors against a handful of figures: Gauss-Newton on the logarithms with a
pseudo-Huber loss, so that one odd figure does not decide. What several explanations say is
averaged. The schedules are simulated anew at the first solution, because bursts and open loops
queue differently at other speeds.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.tuning.calibrations.directions import (
    FRONT_END_AT,
    HYPOTHESES,
    MEMBERSHIP,
    NUM_DIRECTIONS,
    factors_of,
)
from service.tuning.calibrations.noise import noise_of
from service.tuning.calibrations.schedule import Figure, Schedule, schedule_of
from service.tuning.latency.calibration import Calibration
from service.tuning.latency.coefficients import Coefficients
from service.tuning.latency.work import StepWork, price_array
from service.tuning.performance import Prediction, front_end_of
from service.tuning.simulation.traffic import Traffic

Floats = NDArray[np.float64]
_ROUNDS = 8
_SCHEDULES = 3
_LONGEST_STEP = 0.5
_SETTLED = 1e-3


class MeasuredPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One measured load of a configuration, with all that its prediction needs."""

    id: str
    prediction: Prediction
    """At the coefficients that ship, without any calibration."""
    traffic: Traffic
    figures: tuple[Figure, ...]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A point with its schedule, which was simulated at these moves of the directions."""

    point: MeasuredPoint
    schedule: Schedule
    at: Floats


def line_of(
    point: MeasuredPoint, *, coefficients: Coefficients, moves: Floats | None = None
) -> Line | None:
    """Return the point's schedule at these moves (none: as shipped); None when it has none."""
    at = np.zeros(NUM_DIRECTIONS) if moves is None else moves
    work = point.prediction.work
    moved = calibration_of(at, work).applied_to(coefficients)
    prediction = msgspec.structs.replace(
        point.prediction, price=price_array(work, moved), front_end=front_end_of(work, moved)
    )
    schedule = schedule_of(prediction, traffic=point.traffic, figures=point.figures)
    return None if schedule is None else Line(point=point, schedule=schedule, at=at.copy())


def fit_moves(
    lines: Sequence[Line], *, coefficients: Coefficients, weights: Sequence[float]
) -> Floats:
    """Return the logarithms of the directions' factors that fit the points best.

    `weights` say how much each of the hypotheses counts; they add up to one.
    """
    known = list(lines)
    moves = np.zeros(NUM_DIRECTIONS)
    each = [moves] * len(HYPOTHESES)
    for attempt in range(_SCHEDULES):
        if attempt:
            anew = (line_of(x.point, coefficients=coefficients, moves=moves) for x in lines)
            known = [new or old for new, old in zip(anew, known, strict=True)]
        each = [
            solve(known, start=start, spreads=hypothesis.spreads)
            for start, hypothesis in zip(each, HYPOTHESES, strict=True)
        ]
        moves = np.average(each, axis=0, weights=weights)
    return moves


def calibration_of(
    moves: Floats, work: StepWork, *, points: int = 0, log_widths: dict[str, float] | None = None
) -> Calibration:
    """Return the moves as factors on the coefficients of this work."""
    return Calibration(factors=factors_of(moves, work), points=points, log_widths=log_widths or {})


def residuals(line: Line, moves: Floats) -> Floats:
    """Return log(predicted / measured) of each figure at these moves."""
    predicted, _ = _evaluate(line, moves)
    return predicted - np.log([figure.value for figure in line.point.figures])


def noise(line: Line) -> Floats:
    """Return the error that each figure may have without meaning anything, relative."""
    return noise_of(line.point.figures, line.point.traffic)


def solve(lines: Sequence[Line], *, start: Floats, spreads: Floats) -> Floats:
    """Return the moves that fit the points best at the schedules given."""
    moves = start.copy()
    allowed = np.concatenate([noise(line) for line in lines])
    measured = np.log([figure.value for line in lines for figure in line.point.figures])
    for _ in range(_ROUNDS):
        parts = [_evaluate(line, moves) for line in lines]
        residual = np.concatenate([predicted for predicted, _ in parts]) - measured
        slopes = np.concatenate([slope for _, slope in parts])
        weight = 1.0 / np.sqrt(1.0 + (residual / allowed) ** 2) / allowed**2
        normal = slopes.T @ (slopes * weight[:, None]) + np.diag(1.0 / spreads**2)
        right = -(slopes.T @ (weight * residual)) - moves / spreads**2
        step = np.clip(np.linalg.solve(normal, right), -_LONGEST_STEP, _LONGEST_STEP)
        moves = moves + step
        if np.abs(step).max() < _SETTLED:
            break
    return moves


def _evaluate(line: Line, moves: Floats) -> tuple[Floats, Floats]:
    """Return the logarithm of each predicted figure, and its derivatives by the directions."""
    schedule = line.schedule
    change = moves - line.at
    seconds = schedule.seconds * np.exp(MEMBERSHIP @ change)
    front = schedule.front_end * np.exp(change[FRONT_END_AT])
    total = seconds.sum(axis=1) + front + schedule.idle
    slopes = seconds @ MEMBERSHIP
    slopes[:, FRONT_END_AT] = front
    slopes /= total[:, None]
    is_rate = np.array([f.metric == "output_tokens_per_s" for f in line.point.figures])
    predicted = np.where(is_rate, np.log(schedule.tokens) - np.log(total), np.log(total))
    slopes[is_rate] *= -1.0
    return predicted, slopes
