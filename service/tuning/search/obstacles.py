"""What stands in the way besides memory and latency, and what would help."""

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.explanation import Finding
from api_schemas.recommendation import Binding, Nearest, TargetEngine
from service.tuning.engine.versions import parse_version
from service.tuning.errors import TuningError
from service.tuning.rules.versions import serving_release
from service.tuning.search.emission import emitted
from service.tuning.search.figures import figure
from service.tuning.search.pins import check_pins
from service.tuning.search.problem import Problem
from service.tuning.search.trial import Trial

_ROOM = 1.1
_NO_CODE = "VER008"


def is_beyond_length(problem: Problem) -> bool:
    """Whether even a typical request is longer than the model, or a pinned length, takes."""
    demand = problem.demand
    return demand.prompt_mean_tokens + demand.output_mean_tokens > _longest(problem)


def _longest(problem: Problem) -> int:
    pinned = problem.pin.max_model_len
    limit = problem.spec.max_position_embeddings
    return min(pinned, limit) if isinstance(pinned, int) and pinned > 0 else limit


def length_ends(problem: Problem, config: EngineConfig) -> tuple[Binding, Nearest]:
    """Return that the length is too short for the load, and the load that it takes."""
    demand, longest = problem.demand, _longest(problem)
    is_pinned = longest < problem.spec.max_position_embeddings
    binding = Binding(
        constraint="max_model_len",
        detail=(
            f"A typical request has {demand.prompt_mean_tokens:.0f} prompt and "
            f"{demand.output_mean_tokens:.0f} output tokens, but the "
            f"{'pinned length' if is_pinned else 'model'} ends at {longest} tokens."
        ),
    )
    way = "pin a longer length" if is_pinned else "take a model with a longer context"
    nearest = Nearest(
        change=f"keep prompt and answer within {longest} tokens, or {way}",
        config=config,
        hardware=None,
        slo=None,
        detail="Longer prompts are refused and answers end at the limit.",
    )
    return binding, nearest


def refused(problem: Problem, error: Finding) -> tuple[Binding, Nearest | None]:
    """Return that vLLM would not start, and what the rule suggests; the release if that is it."""
    binding = Binding(constraint=error.setting or error.rule, detail=error.message)
    if error.suggestion is None:
        return binding, None
    suggestion = error.suggestion.rstrip(".")
    nearest = Nearest(
        change=suggestion[:1].lower() + suggestion[1:],
        config=None,
        hardware=None,
        slo=None,
        detail=f"Rule {error.rule}.",
        engine=_release_with_code(problem) if error.rule == _NO_CODE else None,
    )
    return binding, nearest


def _release_with_code(problem: Problem) -> TargetEngine | None:
    """Return the release that has the model's code, unless it lacks a setting that is pinned."""
    release = serving_release(problem.spec, problem.version)
    if release is None:
        return None
    try:
        check_pins(problem.pin, parse_version(release))
    except TuningError:
        return None
    return TargetEngine(version=release)


def too_dear(
    problem: Problem, pick: Trial, *, cost: float, limit: float
) -> tuple[Binding, Nearest]:
    """Return that tokens cost more than allowed, and the ceiling that holds at this load."""
    binding = Binding(
        constraint="max_cost_per_million_output_tokens",
        detail=f"Output tokens cost {figure(cost)} a million, but at most {figure(limit)} is set.",
    )
    ceiling = float(f"{cost * _ROOM:.2g}")
    nearest = Nearest(
        change=f"allow {figure(ceiling)} per million output tokens, or bring more load",
        config=emitted(problem, pick.sized.config, pick.sized.effective),
        hardware=None,
        slo=msgspec.structs.replace(problem.filled.slo, max_cost_per_million_output_tokens=ceiling),
        detail="A GPU costs the same however few tokens it makes.",
    )
    return binding, nearest
