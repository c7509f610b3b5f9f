"""The layouts that were compared, as an answer shows them."""

from functools import cache

import pytest

from api_schemas.base import ModelId
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import Advice, TuningRequest
from api_schemas.workload import Workload
from service.tuning.recommend import recommend


@cache
def _advice(model: ModelId, gpus: int) -> Advice:
    return recommend(
        TuningRequest(
            model=ModelRef(id=model),
            hardware=Hardware(gpu="A100-SXM4-80GB", gpus_per_node=gpus),
            workload=Workload(preset="chat"),
        )
    )


@pytest.fixture
def advice() -> Advice:
    return _advice("Qwen/Qwen3-32B", 8)


def test_the_recommendation_is_one_of_the_compared(advice: Advice) -> None:
    """Exactly one compared layout is the chosen one, with the recommended settings."""
    chosen = [item for item in advice.compared if item.chosen]

    assert [item.config for item in chosen] == [advice.config]
    assert chosen[0].gpus == advice.replicas.gpus
    assert chosen[0].copies == advice.replicas.count


def test_nothing_beats_a_layout_on_the_front(advice: Advice) -> None:
    """No layout within the limits has more capacity and faster answers than one on the front."""
    within = [item for item in advice.compared if item.meets_slo]
    front = [item for item in advice.compared if item.on_front]

    assert front
    for item in front:
        assert not [
            other
            for other in within
            if other.capacity_output_tokens_per_s > item.capacity_output_tokens_per_s
            and other.answer_ms < item.answer_ms
        ]


def test_compared_layouts_have_names_of_their_own(advice: Advice) -> None:
    """Each compared layout can be told from the others."""
    labels = [item.label for item in advice.compared]

    assert len(labels) > 1
    assert len(set(labels)) == len(labels)


def test_nothing_is_compared_when_nothing_fits() -> None:
    """A model that fits in no way has nothing to choose from."""
    assert _advice("meta-llama/Llama-3.1-70B-Instruct", 1).compared == []


def test_all_copies_do_what_one_does_times_their_number() -> None:
    """The figures of all copies are those of one, as often as it runs, on the GPUs they fill."""
    advice = _advice("openai/gpt-oss-20b", 8)

    together, one = advice.all_copies, advice.estimate
    assert one.performance is not None
    assert one.memory is not None
    assert (together.count, together.gpus) == (advice.replicas.count, advice.replicas.gpus)
    assert together.output_tokens_per_s == one.performance.output_tokens_per_s * together.count
    assert together.kv_cache_tokens == one.memory.kv_cache_tokens * together.count
    assert advice.baseline_all_copies.gpus <= 8
