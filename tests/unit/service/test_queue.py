"""Names of queues, and who may take a validation."""

import msgspec
import pytest

from api_schemas.engine import EngineConfig
from api_schemas.validation import QueueChoice, ValidationPlan
from api_schemas.worker import VllmEnvironment, WorkerDevice, WorkerNode
from service.queue import (
    LEASE_WAIT_LIMIT_S,
    NoWorker,
    check_worker,
    device_count,
    gpu_queue,
    job_timeout_s,
    node_queue,
    queue_of,
)

_PLAN = ValidationPlan(mode="quick")
_H100 = "NVIDIA H100 80GB HBM3"


def _node(
    gpu: str = _H100, *, count: int = 2, cpu_build: bool = False, name: str = "n"
) -> WorkerNode:
    device = WorkerDevice(name=gpu, uuid="u", memory_gib=80, free_gib=80)
    environment = VllmEnvironment(version="0.32.0", path="/env/bin/vllm", is_cpu=cpu_build)
    return WorkerNode(
        node=name,
        started_at="",
        heartbeat_at="",
        setpoint_version="0",
        driver=None,
        devices=[device] * count,
        environments=[environment],
        queues=[node_queue(name), gpu_queue(gpu)],
    )


@pytest.mark.parametrize("gpu", ["H100-SXM5-80GB", _H100, "h100"])
def test_every_spelling_of_a_gpu_has_one_queue(gpu: str) -> None:
    """What the driver prints and what people write meet in the same queue."""
    assert gpu_queue(gpu) == "validate.gpu.H100-SXM5-80GB"


@pytest.mark.parametrize(
    ("place", "queue"),
    [
        (None, "validate.gpu.L4"),
        (QueueChoice(gpu="h100"), "validate.gpu.H100-SXM5-80GB"),
        (QueueChoice(node="lab-1"), "validate.node.lab-1"),
        (QueueChoice(node="lab-1", gpu="h100"), "validate.node.lab-1"),
    ],
)
def test_a_plan_goes_where_it_says(place: QueueChoice | None, queue: str) -> None:
    """To a node, to a GPU, or to the GPU that was recommended for."""
    assert queue_of(msgspec.structs.replace(_PLAN, queue=place), gpu="L4") == queue


def test_a_node_with_device_and_environment_may_take_it() -> None:
    """Enough devices of the kind and a vLLM for them are what it takes."""
    check_worker([_node("L4"), _node()], plan=_PLAN, gpu="h100", device_count=2)
    check_worker([_node("cpu", count=1, cpu_build=True)], plan=_PLAN, gpu="cpu", device_count=1)


def test_slices_count_one_by_one() -> None:
    """A slice takes a run on one device; two slices, and a GPU that is split, take none on two."""
    part = "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    node = _node(part)
    slices = [msgspec.structs.replace(device, slice_of="GPU-0") for device in node.devices]
    whole = msgspec.structs.replace(_node().devices[0], mig=True)
    node = msgspec.structs.replace(node, devices=[whole, *slices])

    check_worker([node], plan=_PLAN, gpu=part, device_count=1)
    with pytest.raises(NoWorker):
        check_worker([node], plan=_PLAN, gpu=part, device_count=2)
    with pytest.raises(NoWorker):
        check_worker([node], plan=_PLAN, gpu=_H100, device_count=1)


@pytest.mark.parametrize(
    "nodes",
    [[], [_node("L4")], [_node(count=1)], [_node(cpu_build=True)]],
    ids=["no node", "other GPU", "too few", "only a CPU build"],
)
def test_without_one_it_is_refused_with_the_reason(nodes: list[WorkerNode]) -> None:
    """The message names the queue, so that one can see which worker is missing."""
    with pytest.raises(NoWorker, match=r"validate\.gpu\.H100-SXM5-80GB"):
        check_worker(nodes, plan=_PLAN, gpu="h100", device_count=2)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (EngineConfig(), 1),
        (EngineConfig(tensor_parallel_size=4, pipeline_parallel_size=2), 8),
        (EngineConfig(data_parallel_size=2, tensor_parallel_size=-1), 2),
    ],
)
def test_devices_are_the_product_of_the_layout(config: EngineConfig, count: int) -> None:
    """Tensor x pipeline x data parallel, from a configuration or from its bytes."""
    assert device_count(config) == count
    assert device_count(msgspec.Raw(msgspec.json.encode(config))) == count


def test_a_job_outlives_its_plan() -> None:
    """The queue ends a job by force only long after its own budget is over."""
    plan = msgspec.structs.replace(_PLAN, max_minutes=30)

    assert job_timeout_s(plan) > LEASE_WAIT_LIMIT_S + 30 * 60
