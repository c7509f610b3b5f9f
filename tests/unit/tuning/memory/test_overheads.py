"""Communication buffers, CUDA graphs and slack, release by release."""

import pytest

from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import parse_version
from service.tuning.memory.constants import constants_row, memory_constants
from service.tuning.memory.overheads import (
    charged_graph_bytes,
    graph_bytes,
    non_torch_bytes,
    parallelism,
    slack_bytes,
)
from service.tuning.memory.plan import GIB
from tests.unit.tuning.memory.builders import gpu, mixture_model, model, node

ADA = gpu(name="L40S", arch="Ada", compute_capability=(8, 9), memory_gib=44.42, link_gb_s=0.0)


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


@pytest.mark.parametrize(
    ("version", "uses_v2_runner", "is_charged"),
    [
        ("0.19.0", False, False),
        ("0.20.0", False, True),
        ("0.26.0", True, False),
        ("0.26.0", False, True),
        ("0.29.0", True, True),
    ],
)
def test_graphs_are_charged_from_0_20_but_not_by_early_runner_v2(
    version: str, uses_v2_runner: object, is_charged: object
) -> None:
    """Model Runner V2 reported no graph memory while it was optional."""
    charged = charged_graph_bytes(
        1e9, uses_v2_runner=bool(uses_v2_runner), version=parse_version(version)
    )

    assert (charged > 0) is is_charged


@pytest.mark.parametrize(
    ("spec", "layers", "logged"),
    [(model(), 32, 0.96), (mixture_model(), 48, 1.41)],
)
def test_graphs_on_h100_within_a_third_of_the_log(spec: object, layers: int, logged: float) -> None:
    """Llama-3.1-8B and Qwen3-30B-A3B in 0.19: the model is only good to tens of percent."""
    size = graph_bytes(
        spec,  # type: ignore[arg-type]
        num_layers=layers,
        num_capture_sizes=51,
        version=parse_version("0.19.0"),
    )

    assert size / GIB == pytest.approx(logged, rel=0.35)


def test_no_capture_sizes_no_graphs() -> None:
    """Eager mode captures nothing."""
    version = parse_version("0.19.0")

    assert graph_bytes(model(), num_layers=32, num_capture_sizes=0, version=version) == 0


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
