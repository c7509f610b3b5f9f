"""What stages of a pipeline lose to waiting for each other."""

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import parse_version
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.latency.coefficients import PRIOR_COEFFICIENTS
from service.tuning.latency.work import StepWork, price_array, step_work
from service.tuning.models.catalogue import resolve_model


def work_of(*, stages: int) -> StepWork:
    node, _ = resolve_hardware(Hardware(gpu="H100 80GB", gpus_per_node=2))
    spec = resolve_model(ModelRef(id="Qwen/Qwen3-8B"))
    version = parse_version("0.19.0")
    config = effective_config(
        EngineConfig(pipeline_parallel_size=stages), spec=spec, node=node, version=version
    )
    return step_work(spec=spec, node=node, config=config, version=version)


def test_every_price_of_a_pipeline_bears_the_same_loss() -> None:
    """Batches in a pipeline are unequal: all that a stage does takes longer by one factor."""
    loss = 2.0
    waiting = msgspec.structs.replace(
        PRIOR_COEFFICIENTS, factors={**PRIOR_COEFFICIENTS.factors, "pipeline": loss}
    )
    none = msgspec.structs.replace(
        PRIOR_COEFFICIENTS, factors={**PRIOR_COEFFICIENTS.factors, "pipeline": 1.0}
    )
    work = work_of(stages=2)

    terms = len({term.component for term in work.terms})
    slower, ideal = price_array(work, waiting), price_array(work, none)
    assert sum(a == loss * b > 0 for a, b in zip(slower, ideal, strict=True)) == terms


def test_one_stage_waits_for_nobody() -> None:
    """Without a pipeline there is no such loss."""
    assert all("pipeline" not in term.factors for term in work_of(stages=1).terms)
