"""One configuration tried on paper: its predicted behaviour under its share of the load."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Performance
from api_schemas.slo import LatencyTarget, Slo, TargetOutcome
from api_schemas.workload import Workload
from service.tuning.accepted_load import accepted_workload
from service.tuning.latency.calibration import Calibration
from service.tuning.memory.plan import MemoryPlan
from service.tuning.performance import (
    MeanAtRates,
    Prediction,
    load_shape,
    mean_performance,
    prepare,
    simulated_performance,
)
from service.tuning.search.memo import Memo, encoded
from service.tuning.search.problem import Problem
from service.tuning.search.share import loaded_copies, share_of, slo_of_one
from service.tuning.search.sizing import Sized
from service.tuning.verdicts import judge_slo

Method = Literal["closed_form", "simulation"]
FASTEST_FACTOR, SLOWEST_FACTOR = 2.0**40, 1 / 1024
"""Multiples of the offered rate between which the capacity is looked for: a request a week is told
what the hardware carries, and limits that hardly any load keeps are not looked into further."""
_HALVINGS = 3
_HALF_OCTAVE = 2**0.5
_PREDICTIONS: Memo[Prediction] = Memo(most=4096)
"""Of all requests, like the plans; twice as many save 1.3 % of an answer's CPU for 40 MiB."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A sized configuration in `copies` copies, and what is predicted for one of them."""

    sized: Sized
    copies: int
    loaded_copies: float
    """How many of the predicted share make up the load; fewer where it does not divide evenly."""
    method: Method
    performance: Performance
    outcomes: tuple[TargetOutcome, ...]
    is_open_loop: bool
    """Whether requests come whether or not earlier ones are answered."""
    capacity_factor: float | None = None
    """How many times the offered rate all copies carry within the limits; None: closed loop."""
    is_confirmed: bool = False
    """Whether the simulation carries that much, too."""

    @property
    def gpus(self) -> int:
        """GPUs of all copies."""
        return self.copies * self.sized.topology.gpus

    @property
    def margin(self) -> float:
        """The smallest relative margin to a limit; negative when one is missed."""
        margins = [outcome.margin for outcome in self.outcomes]
        if self.performance.saturated and self.is_open_loop:
            margins.append(-1.0)
        return min(margins, default=0.0)

    @property
    def meets(self) -> bool:
        """Whether every limit is predicted to hold, and the queue does not grow."""
        return self.margin >= 0

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens per second of all copies at the offered load."""
        return self.performance.output_tokens_per_s * self.loaded_copies

    @property
    def requests_per_s(self) -> float:
        """Requests per second of all copies at the offered load."""
        return self.performance.requests_per_s * self.loaded_copies

    @property
    def capacity_requests_per_s(self) -> float | None:
        """Most requests per second of all copies within the limits; None for closed loops."""
        factor = self.capacity_factor
        if factor is None:
            return None
        if self.method == "simulation" and self.meets:
            # The closed form may be wrong about a load that the simulation sees carried.
            factor = max(1.0, factor)
        return self.requests_per_s * factor


def try_out(
    problem: Problem, sized: Sized, *, copies: int, method: Method = "closed_form"
) -> Trial:
    """Return the trial of a configuration at the offered load."""
    workload = share_of(problem.filled.workload, copies=copies)
    loaded = loaded_copies(problem.filled.workload, copies=copies)
    slo = slo_of_one(problem.filled.slo, copies=loaded)
    performance, outcomes = predict(problem, sized, workload, slo, method=method)
    return Trial(
        sized=sized,
        copies=copies,
        loaded_copies=loaded,
        method=method,
        performance=performance,
        outcomes=outcomes,
        is_open_loop=problem.demand.requests_per_s is not None,
    )


def with_capacity(
    problem: Problem,
    trial: Trial,
    *,
    near: float | None = None,
    targets: Sequence[LatencyTarget] | None = None,
) -> Trial:
    """Return the trial with the largest load that it carries within the limits (closed form).

    The offered rate is doubled or halved until the verdict changes, then the interval is halved
    three times on a logarithmic scale: known to about a tenth. `near` is a first guess; `targets`
    replace the latency limits of the problem.
    """
    if problem.demand.requests_per_s is None:
        return trial
    limits = problem.filled.slo.targets if targets is None else targets
    holds = _Holds(problem, trial, limits)
    starts_well = targets is None and trial.meets
    low, high = _around(holds, near) or _bracket(holds, starts_well=starts_well or holds(1.0))
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return msgspec.structs.replace(trial, capacity_factor=low)


class _Holds:
    """Whether a multiple of the offered load stays within the limits."""

    def __init__(self, problem: Problem, trial: Trial, targets: Sequence[LatencyTarget]) -> None:
        workload = accepted_workload(
            share_of(problem.filled.workload, copies=trial.copies),
            max_model_len=trial.sized.plan.max_model_len,
        )
        prediction = prepared(problem, trial.sized)
        load = load_shape(workload, replicas=prediction.replicas)
        self._rate = load.requests_per_s or 0.0
        self._means = MeanAtRates(prediction, load=load)
        self._targets = targets

    def __call__(self, factor: float) -> bool:
        return self._means.keeps(self._rate * factor, self._targets)


def _around(holds: _Holds, near: float | None) -> tuple[float, float] | None:
    """Return the octave around a guess when the verdict changes inside it."""
    if near is None:
        return None
    low, high = near / _HALF_OCTAVE, near * _HALF_OCTAVE
    return (low, high) if holds(low) and not holds(high) else None


def _bracket(holds: _Holds, *, starts_well: bool) -> tuple[float, float]:
    """Return two factors, a power of two apart, between which the verdict changes."""
    factor = 1.0
    if starts_well:
        while factor < FASTEST_FACTOR and holds(2 * factor):
            factor *= 2
        return factor, 2 * factor
    while factor > SLOWEST_FACTOR and not holds(factor / 2):
        factor /= 2
    return factor / 2, factor


def predict(
    problem: Problem,
    sized: Sized,
    workload: Workload,
    slo: Slo,
    *,
    method: Method,
    stops_when_lost: bool = False,
) -> tuple[Performance, tuple[TargetOutcome, ...]]:
    """Return the prediction for one copy under this load, and its limits judged."""
    if method == "simulation":
        return predict_config(
            problem,
            sized.effective,
            sized.plan,
            workload=workload,
            slo=slo,
            stops_when_lost=stops_when_lost,
        )
    workload = accepted_workload(workload, max_model_len=sized.plan.max_model_len)
    return closed_form(prepared(problem, sized), workload, slo)


def closed_form(
    prediction: Prediction, workload: Workload, slo: Slo
) -> tuple[Performance, tuple[TargetOutcome, ...]]:
    """Return mean-field behaviour under this load without bands, and its limits judged."""
    load = load_shape(workload, replicas=prediction.replicas)
    performance = mean_performance(prediction, load=load)
    return performance, tuple(judge_slo(performance, slo))


def predict_config(
    problem: Problem,
    effective: EngineConfig,
    plan: MemoryPlan,
    *,
    workload: Workload,
    slo: Slo,
    stops_when_lost: bool = False,
) -> tuple[Performance, tuple[TargetOutcome, ...]]:
    """Return the simulated behaviour of one copy of any configuration that fits."""
    key = problem.spec, problem.node, encoded((effective, workload, slo))
    return problem.runs.once(
        key,
        lambda: _simulated(
            problem, effective, plan, workload=workload, slo=slo, stops_when_lost=stops_when_lost
        ),
    )


def _simulated(
    problem: Problem,
    effective: EngineConfig,
    plan: MemoryPlan,
    *,
    workload: Workload,
    slo: Slo,
    stops_when_lost: bool,
) -> tuple[Performance, tuple[TargetOutcome, ...]]:
    workload = accepted_workload(workload, max_model_len=plan.max_model_len)
    known = problem.calibration_of(effective)
    prediction = _prediction(
        problem,
        effective,
        plan,
        shared_prefix_tokens=workload.shared_prefix_tokens or 0,
        calibration=known.under(workload) if known is not None else None,
    )
    performance = simulated_performance(
        prediction, workload=workload, slo=slo, stops_when_lost=stops_when_lost
    )
    return performance, tuple(judge_slo(performance, slo))


def prepared(problem: Problem, sized: Sized) -> Prediction:
    """Return what of a prediction does not depend on the load."""
    known = problem.calibration_of(sized.effective)
    return _prediction(
        problem,
        sized.effective,
        sized.plan,
        shared_prefix_tokens=problem.demand.shared_prefix_tokens,
        calibration=known.calibration if known is not None else None,
    )


def _prediction(
    problem: Problem,
    effective: EngineConfig,
    plan: MemoryPlan,
    *,
    shared_prefix_tokens: int,
    calibration: Calibration | None,
) -> Prediction:
    content = encoded((effective, problem.model.speculative, calibration))
    key = (
        problem.spec,
        problem.node,
        problem.version.text,
        problem.draft,
        shared_prefix_tokens,
        content,
    )
    return _PREDICTIONS.once(
        key,
        lambda: prepare(
            spec=problem.spec,
            node=problem.node,
            config=runnable(effective, plan),
            version=problem.version,
            plan=plan,
            shared_prefix_tokens=shared_prefix_tokens,
            speculative=problem.model.speculative,
            calibration=calibration,
        ),
    )


def runnable(effective: EngineConfig, plan: MemoryPlan) -> EngineConfig:
    """Return the effective settings with an "auto" length replaced by what fits."""
    if effective.max_model_len == plan.max_model_len:
        return effective
    return msgspec.structs.replace(effective, max_model_len=plan.max_model_len)
