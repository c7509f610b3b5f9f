"""Reasons: every id can be looked up, every decision is complete."""

import re

import pytest

from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.model import Lora, ModelRef
from api_schemas.recommendation import Advice, Constraints, Posture, TuningRequest
from api_schemas.workload import ClosedLoop, PoissonArrivals, Workload
from service.tuning.decisions.catalogue import CHOICES, find_choice
from service.tuning.recommend import recommend

REQUESTS = {
    "plain": TuningRequest(
        model=ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=2),
        workload=Workload(preset="chat", arrivals=PoissonArrivals(requests_per_s=2)),
    ),
    "latent experts": TuningRequest(
        model=ModelRef(id="deepseek-ai/DeepSeek-R1"),
        hardware=Hardware(gpu="H200-SXM-141GB", gpus_per_node=8),
        workload=Workload(preset="long_context", arrivals=ClosedLoop(max_concurrency=64)),
        objective="throughput",
    ),
    "pinned and adapters": TuningRequest(
        model=ModelRef(
            id="meta-llama/Llama-3.1-8B-Instruct", lora=Lora(max_rank=8, max_adapters=2)
        ),
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=1),
        constraints=Constraints(pin=EngineConfig(max_num_seqs=32, stream_interval=2)),
        objective="latency",
    ),
    "does not fit": TuningRequest(
        model=ModelRef(id="meta-llama/Llama-3.3-70B-Instruct"),
        hardware=Hardware(gpu="T4", gpus_per_node=1),
    ),
}


@pytest.fixture(scope="module", params=list(REQUESTS))
def advice(request: pytest.FixtureRequest) -> Advice:
    """Return the answer to each request once."""
    return recommend(REQUESTS[request.param])


def test_every_rule_of_a_decision_can_be_looked_up(advice: Advice) -> None:
    """No answer names a rule of choice that the catalogue lacks."""
    assert all(find_choice(decision.rule) is not None for decision in advice.decisions)


def test_every_decision_is_complete(advice: Advice) -> None:
    """Each says why, from where, and what a higher and a lower value would do."""
    for decision in advice.decisions:
        assert decision.reason.endswith(".")
        assert decision.if_higher.endswith(".")
        assert decision.if_lower.endswith(".")
        assert decision.source


def test_a_setting_is_explained_once(advice: Advice) -> None:
    """No setting has two decisions, and the value is the one that is emitted."""
    settings = [decision.setting for decision in advice.decisions]
    assert len(settings) == len(set(settings))
    for decision in advice.decisions:
        assert decision.value == getattr(advice.config, decision.setting)


def test_ids_are_unique() -> None:
    """No two rules of choice share an id."""
    ids = [choice.id for choice in CHOICES]
    assert len(ids) == len(set(ids))


def test_requests_of_all_data_parallel_ranks_are_counted() -> None:
    """The cap is one of each rank's own scheduler; the sentence speaks of the whole copy."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="deepseek-ai/DeepSeek-V3"),
            hardware=Hardware(gpu="B200", gpus_per_node=8),
            objective="throughput",
            constraints=Constraints(
                pin=EngineConfig(
                    tensor_parallel_size=1, data_parallel_size=8, enable_expert_parallel=True
                )
            ),
        )
    )

    assert advice.config.data_parallel_size == 8
    assert advice.config.max_num_seqs is not None
    assert f"at most {8 * advice.config.max_num_seqs} requests at once" in advice.headline


@pytest.mark.parametrize(("posture", "said"), [("production", " at least"), ("aggressive", "")])
def test_a_pool_that_is_taken_at_its_low_end_is_called_that(posture: Posture, said: str) -> None:
    """The memory table shows the middle of the band, the cap rests on its low end."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
            hardware=Hardware(gpu="L4"),
            posture=posture,
        )
    )

    why = next(d.reason for d in advice.decisions if d.setting == "max_num_seqs")
    assert re.match(rf"The KV cache holds{said} [\d.,]+ requests of [\d.,]+ live tokens", why)
