"""Legal layouts and their sizing on real models."""

import msgspec
import pytest

from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import Constraints, TuningRequest
from api_schemas.workload import Workload
from service.tuning.recommend import understand
from service.tuning.search.finder import size_all, topologies
from service.tuning.search.problem import Problem
from service.tuning.search.sizing import Sized, size_topology
from service.tuning.search.topology import Topology


def problem(model: str, gpu: str, count: int, **changes: object) -> Problem:
    """Return the problem of a chat load for this model and hardware."""
    fields: dict[str, object] = {
        "model": ModelRef(id=model),
        "hardware": Hardware(gpu=gpu, gpus_per_node=count),
        "workload": Workload(preset="chat"),
    }
    return understand(TuningRequest(**(fields | changes)))[0]  # type: ignore[arg-type]


def test_tensor_sizes_divide_the_heads() -> None:
    """Llama 70B with 64 heads takes 1, 2, 4 and 8 GPUs per layer, not 3, 5, 6 or 7."""
    posed = problem("meta-llama/Llama-3.3-70B-Instruct", "H100-SXM5-80GB", 8)

    sizes = {t.tensor_parallel_size for t in topologies(posed)}

    assert sizes == {1, 2, 4, 8}


def test_a_limit_on_tensor_parallelism_is_obeyed() -> None:
    """No layout is wider than the constraint allows."""
    posed = problem(
        "meta-llama/Llama-3.3-70B-Instruct",
        "H100-SXM5-80GB",
        8,
        constraints=Constraints(max_tensor_parallel_size=2),
    )

    assert max(t.tensor_parallel_size for t in topologies(posed)) == 2


def test_pinned_layouts_are_the_only_ones() -> None:
    """A pinned size leaves layouts of that size alone."""
    pin = EngineConfig(tensor_parallel_size=4)
    posed = problem(
        "meta-llama/Llama-3.3-70B-Instruct",
        "H100-SXM5-80GB",
        8,
        constraints=Constraints(pin=pin),
    )

    assert {t.tensor_parallel_size for t in topologies(posed)} == {4}


def test_stages_join_nodes() -> None:
    """Two nodes offer tensor parallelism inside and pipeline stages across."""
    posed = problem(
        "meta-llama/Llama-3.1-405B-Instruct",
        "H100-SXM5-80GB",
        8,
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=8, nodes=2),
    )

    assert Topology(tensor_parallel_size=8, pipeline_parallel_size=2) in topologies(posed)
    sized, misfits = size_all(posed)
    assert [one.topology.gpus for one in sized][:1] == [16]
    assert any(m.topology == Topology(tensor_parallel_size=8) for m in misfits)


def test_stages_are_not_offered_for_what_fits_without() -> None:
    """On GPUs without a fast link a model that fits one GPU is not cut into stages."""
    posed = problem("Qwen/Qwen2.5-7B-Instruct-AWQ", "RTX-4090", 2)

    sized, _ = size_all(posed)

    assert all(one.topology.pipeline_parallel_size == 1 for one in sized)


def test_copies_never_straddle_nodes() -> None:
    """Three GPUs a copy on two nodes of eight make four copies, not five."""
    posed = problem(
        "meta-llama/Llama-3.1-8B-Instruct",
        "H100-SXM5-80GB",
        8,
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=8, nodes=2),
    )

    assert posed.most_copies(3) == 4
    assert posed.most_copies(16) == 1


@pytest.mark.parametrize("dtype", [None, "fp8"])
def test_a_sized_layout_fits_and_its_pool_carries_the_cap(dtype: str | None) -> None:
    """The cap times the live tokens stays inside the pool that the cap itself leaves."""
    posed = problem("meta-llama/Llama-3.1-8B-Instruct", "H100-SXM5-80GB", 1)

    sized = size_topology(posed, Topology(tensor_parallel_size=1), kv_cache_dtype=dtype)

    assert isinstance(sized, Sized)
    assert sized.plan.fits
    needed = sized.admission.value * posed.demand.live_mean_tokens
    assert needed <= sized.kv.num_blocks * 16


def test_an_eight_bit_cache_carries_nearly_twice_the_requests() -> None:
    """Halving the bytes per token doubles the limit of a dense model."""
    posed = problem("meta-llama/Llama-3.1-8B-Instruct", "H100-SXM5-80GB", 1)
    one = Topology(tensor_parallel_size=1)

    wide = size_topology(posed, one)
    narrow = size_topology(posed, one, kv_cache_dtype="fp8")

    assert isinstance(wide, Sized)
    assert isinstance(narrow, Sized)
    assert narrow.admission.theoretical == pytest.approx(2 * wide.admission.theoretical, rel=0.05)


def test_length_shrinks_to_what_is_needed_before_a_layout_is_given_up() -> None:
    """Where the head-room does not fit, the needed length is tried."""
    workload = Workload(preset="chat", max_request_tokens=9000)
    posed = problem("meta-llama/Llama-3.1-8B-Instruct", "L4", 1, workload=workload)

    sized = size_topology(posed, Topology(tensor_parallel_size=1))

    assert isinstance(sized, Sized)
    assert 9000 <= (sized.plan.max_model_len) <= 10_880


def test_a_gpu_more_than_experts_spread_over_takes_no_layout_away() -> None:
    """Nine GPUs hold the eight data-parallel ranks of 256 experts, and one stays idle."""
    request = TuningRequest(
        model=ModelRef(id="deepseek-ai/DeepSeek-V3"),
        hardware=Hardware(gpu="B200", gpus_per_node=9),
    )

    layouts = topologies(understand(request)[0])

    assert (
        Topology(tensor_parallel_size=1, data_parallel_size=8, enable_expert_parallel=True)
        in layouts
    )


def test_a_copy_is_spread_over_slices_only_where_that_is_pinned() -> None:
    """NCCL hardly joins MIG slices: each gets a copy of its own, or the model does not fit."""
    request = TuningRequest(
        model=ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
        hardware=Hardware(gpu="H100-SXM5-80GB MIG 1g.10gb", gpus_per_node=4),
    )
    pinned = msgspec.structs.replace(
        request, constraints=Constraints(pin=EngineConfig(tensor_parallel_size=2))
    )

    free, asked = (topologies(understand(one)[0]) for one in (request, pinned))

    assert free == (Topology(tensor_parallel_size=1),)
    assert asked == (Topology(tensor_parallel_size=2),)
