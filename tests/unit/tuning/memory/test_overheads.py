"""Communication buffers, CUDA graphs and slack, release by release."""

from statistics import median

import pytest

from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import parse_version
from service.tuning.memory.constants import constants_row, memory_constants
from service.tuning.memory.overheads import (
    Captures,
    GraphMemory,
    graph_memory,
    non_torch_bytes,
    parallelism,
    slack_bytes,
)
from service.tuning.memory.plan import GIB
from service.tuning.models.spec import MixtureOfExperts, ModelSpec
from tests.unit.tuning.memory.builders import gpu, group, latent, mixture_model, model, node

ADA = gpu(name="L40S", arch="Ada", compute_capability=(8, 9), memory_gib=44.42, link_gb_s=0.0)
AMPERE = gpu(name="RTX-3090", arch="Ampere", compute_capability=(8, 6), memory_gib=23.56)


def non_torch_gib(version: str, *, tensor: int = 1, **changes: object) -> float:
    config = EngineConfig(tensor_parallel_size=tensor)
    size = non_torch_bytes(
        node(count=8, **changes),
        parallelism(config, num_layers=32),
        config=config,
        version=parse_version(version),
    )
    return size / GIB


@pytest.mark.parametrize(
    ("version", "tensor", "logged"),
    [
        ("0.11.0", 1, 0.13),
        ("0.11.0", 2, 0.55),
        ("0.18.0", 1, 0.25),
        ("0.19.0", 2, 2.11),
        ("0.19.0", 4, 2.19),
        ("0.6.4", 8, 7.7),
    ],
)
def test_communication_buffers_on_hopper_as_logged(
    version: str, tensor: int, logged: float
) -> None:
    """Each release has its own level; tensor parallelism adds NCCL and all-reduce buffers."""
    assert non_torch_gib(version, tensor=tensor) == pytest.approx(logged)


def test_without_a_link_the_all_reduce_buffers_are_missing() -> None:
    """PCIe parts, and servers with custom all-reduce off, hold less."""
    linked = non_torch_gib("0.19.0", tensor=2)

    assert non_torch_gib("0.19.0", tensor=2, interconnect="pcie") < linked


@pytest.mark.parametrize(("version", "counted"), [("0.9.0", 4.0), ("0.9.1", 0.0)])
def test_other_processes_count_against_the_budget_until_0_9_1(version: str, counted: float) -> None:
    """Early releases subtract whatever the device holds; newer ones only what they add."""
    alone = non_torch_gib(version)

    assert non_torch_gib(version, used_memory_gib=4.0) - alone == pytest.approx(counted)


def test_data_and_expert_parallelism_add_exchange_buffers() -> None:
    """All-to-all buffers come on top of those of tensor parallelism."""
    config = EngineConfig(data_parallel_size=8, enable_expert_parallel=True)
    version = parse_version("0.19.0")

    size = non_torch_bytes(
        node(count=8), parallelism(config, num_layers=32), config=config, version=version
    )

    assert size / GIB > 2.5


def graphs_of(
    spec: ModelSpec,
    *,
    version: str = "0.19.0",
    layers: int = 32,
    sizes: int = 51,
    decode_sizes: int = 35,
    v2: bool = False,
) -> GraphMemory:
    return graph_memory(
        spec,
        node=node(),
        num_layers=layers,
        captures=Captures(sizes=sizes, decode_sizes=decode_sizes),
        uses_v2_runner=v2,
        version=parse_version(version),
    )


@pytest.mark.parametrize(
    ("version", "runner", "is_charged"),
    [
        ("0.19.0", "V1", False),
        ("0.20.0", "V1", True),
        ("0.26.0", "V2", False),
        ("0.26.0", "V1", True),
        ("0.29.0", "V2", True),
    ],
)
def test_graphs_are_charged_from_0_20_but_not_by_early_runner_v2(
    version: str, runner: str, is_charged: object
) -> None:
    """Model Runner V2 reported no graph memory while it was optional."""
    graphs = graphs_of(model(), version=version, v2=runner == "V2")

    assert (graphs.charged_bytes > 0) is is_charged
    assert graphs.real_bytes > 0


@pytest.mark.parametrize(
    ("spec", "layers", "logged"),
    [(model(), 32, 0.96), (mixture_model(), 48, 1.41)],
)
def test_graphs_on_h100_within_a_third_of_the_log(
    spec: ModelSpec, layers: int, logged: float
) -> None:
    """Llama-3.1-8B and Qwen3-30B-A3B in 0.19: the model is only good to tens of percent."""
    assert graphs_of(spec, layers=layers).real_bytes / GIB == pytest.approx(logged, rel=0.35)


def test_graphs_are_smaller_on_other_parts() -> None:
    """Qwen2.5-7B with 35 sizes on an L40S in 0.22: 0.31 GiB real, 0.37 estimated by vLLM."""
    on_ada = graph_memory(
        model(),
        node=node(ADA),
        num_layers=28,
        captures=Captures(sizes=35, decode_sizes=19),
        uses_v2_runner=False,
        version=parse_version("0.22.0"),
    )

    assert on_ada.real_bytes / GIB == pytest.approx(0.31, abs=0.1)
    assert on_ada.charged_bytes / GIB == pytest.approx(0.37, abs=0.1)


@pytest.mark.parametrize(
    ("layers", "sizes", "decode_sizes", "logged"),
    [
        (64, 5, 0, 0.13),
        (64, 7, 5, 0.18),
        (28, 35, 19, 0.37),
        (36, 51, 35, 0.52),
        (42, 51, 35, 0.79),
        (64, 51, 35, 1.11),
    ],
)
def test_the_estimate_grows_with_layers_and_graphs(
    layers: int, sizes: int, decode_sizes: int, logged: float
) -> None:
    """What vLLM 0.20 to 0.26 printed as its estimate on parts from RTX 3090 to L40S."""
    graphs = graphs_of(
        model(), version="0.22.0", layers=layers, sizes=sizes, decode_sizes=decode_sizes
    )

    assert graphs.charged_bytes / GIB == pytest.approx(logged, abs=0.2)


def test_sparse_attention_is_estimated_at_gigabytes() -> None:
    """Three logs of 78 layers scatter by a GiB around it: GLM-5.2 on B300, GLM-5.1 on PRO 6000."""
    experts = MixtureOfExperts(num_experts=256, experts_per_token=8, expert_intermediate_size=2048)
    sparse = latent(index_topk=2048, index_num_heads=32, index_head_dim=128)
    spec = model(group(78, sparse, experts))
    logs = ((51, 51, 4.99), (35, 11, 4.77), (33, 33, 6.04))

    misses = [
        logged
        - graphs_of(
            spec, version="0.20.2", layers=78, sizes=sizes, decode_sizes=decode_sizes
        ).charged_bytes
        / GIB
        for sizes, decode_sizes, logged in logs
    ]

    assert median(misses) == pytest.approx(0.0, abs=0.05)
    assert max(abs(miss) for miss in misses) < 1.0


def test_ampere_lacks_the_large_link_buffers_of_hopper() -> None:
    """Two RTX 3090 with NVLink and 0.20 keep 0.19 GiB less than two without: not two more."""
    config = EngineConfig(tensor_parallel_size=2)
    release = parse_version("0.20.2")

    size = non_torch_bytes(
        node(AMPERE, count=2), parallelism(config, num_layers=64), config=config, version=release
    )

    assert 0.3 <= size / GIB <= 0.7
    assert non_torch_gib("0.20.2", tensor=2) > 2


def test_no_capture_sizes_no_graphs() -> None:
    """Eager mode captures nothing."""
    graphs = graphs_of(model(), sizes=0, decode_sizes=0, version="0.22.0")

    assert graphs.real_bytes == graphs.charged_bytes == 0


def test_runner_v1_has_slack_only_from_0_27() -> None:
    """The difference of free memory counts allocator remains from there on."""
    old = slack_bytes(num_layers=32, uses_v2_runner=False, version=parse_version("0.26.0"))
    new = slack_bytes(num_layers=32, uses_v2_runner=False, version=parse_version("0.27.0"))

    assert old == 0 < new


def test_every_period_of_every_constant_has_a_source() -> None:
    """A number from the world says where it comes from, and its periods leave no gap."""
    for name, block in memory_constants().items():
        if not isinstance(block, dict) or "rows" not in block:
            continue
        assert all("source" in row for row in block["rows"]), name
        for text in ("0.4.0", "0.6.4", "0.8.5", "0.9.1", "0.17.0", "0.20.0", "0.26.0", "0.33.0"):
            assert constants_row(name, parse_version(text))
