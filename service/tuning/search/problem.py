"""Everything that a request fixes before the search starts."""

import math

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Performance
from api_schemas.model import ModelRef
from api_schemas.recommendation import Constraints, Objective, Posture
from api_schemas.slo import TargetOutcome
from service.tuning.calibrations.known import Calibrations, KnownCalibration, calibration_for
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.models.spec import ModelSpec
from service.tuning.presets import FilledWorkload
from service.tuning.rules.domains import recommended_dtype
from service.tuning.search.demand import Demand, demand_of
from service.tuning.search.lengths_rule import LengthChoice, choose_length
from service.tuning.search.memo import Memo
from service.tuning.search.share import scaled
from service.tuning.search.utilization_rule import UtilizationChoice, choose_utilization

_MOST_RUNS = 1024
_NOTHING_PINNED = EngineConfig()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Model, hardware, release, load and limits, with what follows from them alone."""

    spec: ModelSpec
    model: ModelRef
    draft: ModelSpec | None
    """The model that drafts tokens, when it is one of its own."""
    node: Node
    version: EngineVersion
    filled: FilledWorkload
    objective: Objective
    posture: Posture
    constraints: Constraints
    demand: Demand
    length: LengthChoice
    utilization: UtilizationChoice
    base: EngineConfig
    """Settings that are not searched: pinned ones, dtype, adapters, drafter."""
    calibrations: Calibrations = ()
    """What was learned from measurements, one per configuration."""
    runs: Memo[tuple[Performance, tuple[TargetOutcome, ...]]] = msgspec.field(
        default_factory=lambda: Memo(most=_MOST_RUNS)
    )
    """What was simulated for this request already."""

    def most_copies(self, gpus: int) -> int:
        """Return how many copies of that many GPUs the nodes hold and the load can use.

        None is cut by a node, and none waits for requests that are never in flight.
        """
        held = self.node.nodes * (self.node.gpus_per_node // gpus)
        if gpus > self.node.gpus_per_node:
            held = self.node.num_gpus // gpus
        in_flight = self.demand.max_concurrency
        return held if in_flight is None else min(held, max(1, in_flight))

    def calibration_of(self, effective: EngineConfig) -> KnownCalibration | None:
        """Return what was learned from measurements of this very configuration."""
        return calibration_for(
            self.calibrations,
            spec=self.spec,
            node=self.node,
            config=effective,
            version=self.version,
            speculative=self.model.speculative,
        )

    @property
    def pin(self) -> EngineConfig:
        """What the caller fixed."""
        return self.constraints.pin or _NOTHING_PINNED


def pose_problem(
    *,
    spec: ModelSpec,
    model: ModelRef,
    node: Node,
    version: EngineVersion,
    filled: FilledWorkload,
    objective: Objective,
    posture: Posture,
    constraints: Constraints,
    draft: ModelSpec | None = None,
    calibrations: Calibrations = (),
) -> Problem:
    """Return the problem with the choices that need no search: length and memory share."""
    demand = demand_of(filled.workload)
    return Problem(
        spec=spec,
        model=model,
        draft=draft,
        node=node,
        version=version,
        filled=filled,
        objective=objective,
        posture=posture,
        constraints=constraints,
        demand=demand,
        length=choose_length(demand, model_limit_tokens=spec.max_position_embeddings),
        utilization=choose_utilization(node, version=version, posture=posture),
        calibrations=tuple(calibrations),
        base=_base_config(model, constraints.pin or EngineConfig(), spec=spec, node=node),
    )


def _base_config(
    model: ModelRef, pin: EngineConfig, *, spec: ModelSpec, node: Node
) -> EngineConfig:
    """Return the pinned settings plus those that dtype, adapters and drafter make necessary."""
    changes: dict[str, object] = {}
    if spec.dtype == "bfloat16" and (usable := recommended_dtype(spec, node.gpu)) != spec.dtype:
        changes["dtype"] = usable
    if model.lora is not None:
        changes |= {
            "enable_lora": True,
            "max_loras": model.lora.max_adapters,
            "max_lora_rank": _lora_rank(model.lora.max_rank),
        }
    if model.speculative is not None:
        changes["speculative_config"] = _speculative_config(model)
    unpinned = {name: value for name, value in changes.items() if getattr(pin, name) is None}
    return msgspec.structs.replace(pin, **unpinned)


def _lora_rank(rank: int) -> int:
    """Return the rank rounded up to one that vLLM accepts: a power of two from 8, or 320."""
    accepted = (1, 8, 16, 32, 64, 128, 256, 320, 512)
    return next((size for size in accepted if size >= rank), rank)


def _speculative_config(model: ModelRef) -> dict[str, object]:
    speculative = model.speculative
    if speculative is None:
        return {}
    config: dict[str, object] = {
        "method": speculative.method,
        "num_speculative_tokens": speculative.num_tokens,
    }
    if speculative.model is not None:
        config["model"] = speculative.model.id
    return config


WITHIN_LIMITS = "70 % of what this hardware carries within the limits by a first estimate"
BEYOND_LIMITS = "a tenth of what this hardware answers at all: no load keeps the limits on it"


def at_rate(problem: Problem, requests_per_s: float, *, share: str = WITHIN_LIMITS) -> Problem:
    """Return the problem at another mean rate of its open loop, and say which share it is."""
    rate = problem.demand.requests_per_s or requests_per_s
    workload = scaled(problem.filled.workload, requests_per_s / rate)
    sentence = f"No load was stated: the figures are for {requests_per_s:g} requests/s, {share}."
    kept = [
        said
        for said in problem.filled.assumptions
        if not said.startswith(("No arrivals", "No load"))
    ]
    filled = msgspec.structs.replace(
        problem.filled, workload=workload, assumptions=(*kept, sentence)
    )
    return msgspec.structs.replace(problem, filled=filled, demand=demand_of(workload))


def whole(value: float) -> int:
    """Return the value rounded up, at least 1."""
    return max(1, math.ceil(value - 1e-9))
