"""Mode `knee`: how many requests may run at once before the KV cache or the targets break.

The guides' procedure: begin at half of what the cache holds, walk up until preemptions begin, back
off, and confirm the setting in a fresh start.
"""

import math
from collections.abc import Sequence

import msgspec

from api_schemas.estimate import Estimate
from api_schemas.validation import Knee, LoadPoint
from api_schemas.workload import ClosedLoop
from workers.experiment import Experiment, requests_that_fit
from workers.points import Measurement, judge
from workers.run import OutOfTime
from workers.session import Session
from workers.walk import BACK_OFF, Walk

_START_SHARE = 0.5
_GAIN = 1.02
"""Twice as many requests at once that serve less than 2 % more are past the knee."""
_CONFIRMATIONS = 3
_WALK_SHARE = 0.6
_POINTS = 8


def knee(experiment: Experiment) -> None:
    """Find the largest admission cap that holds, and start once more to confirm it."""
    walk, points = _walk(experiment)
    if not points:
        raise OutOfTime
    found = next((p for p in points if _concurrency(p) == walk.knee), points[0])
    experiment.findings.knee = Knee(
        max_num_seqs=walk.suggestion,
        requests_per_s=found.requests_per_s,
        reason=walk.reason or f"{walk.knee} at once held: the highest that may be admitted",
    )
    _confirm(experiment, walk)


def _walk(experiment: Experiment) -> tuple[Walk, list[LoadPoint]]:
    points: list[LoadPoint] = []
    with experiment.recommended() as session:
        _measure_as_asked(experiment, session)
        highest = _highest(experiment)
        facts = experiment.findings.startup
        fits = requests_that_fit(experiment, facts) if facts else 1
        walk = Walk(start=math.floor(_START_SHARE * fits), highest=highest)
        deadline = (1 - _WALK_SHARE) * experiment.run.remaining_s
        seconds = experiment.run.remaining_s * _WALK_SHARE / _POINTS
        while (concurrency := walk.ask()) is not None:
            if points and experiment.run.remaining_s < deadline + seconds:
                experiment.run.note("The minutes ended before the walk was finished.")
                break
            found = experiment.measure(
                session,
                ClosedLoop(max_concurrency=concurrency),
                label=f"knee-{concurrency}",
                seconds=seconds,
                progress=min(0.3 + 0.05 * len(points), 0.7),
            )
            walk.tell(concurrency, broken_by=_broken_by(experiment, found, points))
            points.append(found.point)
    return walk, points


def _measure_as_asked(experiment: Experiment, session: Session) -> None:
    """Measure the asked load first: the verdict is about the recommendation as it stands."""
    found = experiment.measure(
        session,
        experiment.arrivals,
        label="as-asked",
        seconds=experiment.run.remaining_s / _POINTS,
        progress=0.25,
    )
    experiment.findings.judged.append(found)


def _highest(experiment: Experiment) -> int:
    """Return the admission cap of the recommendation: the walk never goes above it."""
    given = experiment.config.max_num_seqs
    if given is None:
        given = experiment.subject.recommendation.estimate.defaults_applied.max_num_seqs
    return max(given or 1, 1)


def _broken_by(
    experiment: Experiment, found: Measurement, earlier: Sequence[LoadPoint]
) -> str | None:
    """Return what a load broke, None when it held."""
    point, concurrency = found.point, _concurrency(found.point)
    if point.preemptions:
        return f"{point.preemptions} preemptions with {concurrency} requests at once"
    outcomes = judge(
        msgspec.structs.replace(
            experiment.subject.slo, min_requests_per_s=None, min_output_tokens_per_s=None
        ),
        [found],
        replicas=1,
        price_per_hour=None,
    )
    missed = next((item for item in outcomes if item.verdict == "missed"), None)
    if missed is not None:
        name = f"{missed.target['metric']} {missed.target.get('percentile', '')}".strip()
        return f"{name} missed its limit with {concurrency} requests at once"
    lower = [p for p in earlier if 2 * _concurrency(p) <= concurrency]
    if lower and point.requests_per_s < _GAIN * max(p.requests_per_s for p in lower):
        return f"no more requests per second with {concurrency} at once"
    return None


def _concurrency(point: LoadPoint) -> int:
    return point.offered.max_concurrency if isinstance(point.offered, ClosedLoop) else 0


def _confirm(experiment: Experiment, walk: Walk) -> None:
    """Start afresh with the setting under more clients than it admits: nothing may be preempted."""
    value = walk.suggestion
    pressure = ClosedLoop(max_concurrency=max(walk.broke or 0, 2 * value))
    planned = experiment.subject.recommendation.estimate
    for attempt in range(_CONFIRMATIONS):
        try:
            point = _confirm_once(experiment, value, pressure, planned, attempt=attempt)
        except OutOfTime:
            experiment.run.note("The minutes ended before the setting was confirmed.")
            return
        if not point.preemptions:
            _conclude(experiment, value)
            return
        value = max(1, math.floor(BACK_OFF * value))
    experiment.run.note("No setting was confirmed: preemptions came at every one that was tried.")


def _confirm_once(
    experiment: Experiment,
    value: int,
    pressure: ClosedLoop,
    planned: Estimate,
    *,
    attempt: int,
) -> LoadPoint:
    config = msgspec.structs.replace(experiment.config, max_num_seqs=value)
    progress = 0.75 + 0.05 * attempt
    with experiment.server(config, planned=planned, progress=progress) as session:
        found = experiment.measure(
            session,
            pressure,
            label=f"confirm-{value}",
            seconds=experiment.run.remaining_s / 2,
            progress=progress + 0.03,
        )
    return found.point


def _conclude(experiment: Experiment, value: int) -> None:
    findings = experiment.findings
    if findings.knee is not None:
        findings.knee = msgspec.structs.replace(findings.knee, max_num_seqs=value, confirmed=True)
    if value != _highest(experiment):
        findings.suggested_config = msgspec.structs.replace(experiment.config, max_num_seqs=value)
