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
    devices_for,
    gpu_queue,
    job_timeout_s,
    most_devices,
    needed_devices,
    node_queue,
    queue_of,
    ticket_queue,
    ticket_queues,
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


def _with(node: WorkerNode, *others: WorkerNode) -> WorkerNode:
    """Return a node that has the devices of others as well."""
    devices = [device for item in (node, *others) for device in item.devices]
    queues = [
        node.queues[0],
        *dict.fromkeys(q for item in (node, *others) for q in item.queues[1:]),
    ]
    return msgspec.structs.replace(node, devices=devices, queues=queues)


def test_a_node_draws_tickets_for_all_that_it_can_ever_serve() -> None:
    """Of each kind as many devices as it has; for its own queue there is one place."""
    node = _with(_node(count=2), _node("L4", count=1))
    h100 = gpu_queue(_H100)

    assert ticket_queues(node) == [
        node_queue("n"),
        h100,
        ticket_queue(h100, devices=2),
        gpu_queue("L4"),
    ]


def test_slices_and_a_cpu_serve_runs_on_one_device() -> None:
    """However many slices there are, and whatever else; without a vLLM for them, none."""
    node = _node("L4", count=3)
    sliced = [msgspec.structs.replace(device, slice_of="GPU-0") for device in node.devices]
    cpu = _node("cpu", count=1, cpu_build=True)

    assert most_devices(node, gpu_queue("L4")) == 3
    assert most_devices(msgspec.structs.replace(node, devices=sliced), gpu_queue("L4")) == 1
    assert most_devices(cpu, gpu_queue("cpu")) == 1
    assert most_devices(msgspec.structs.replace(cpu, environments=[]), gpu_queue("cpu")) == 0
    assert most_devices(node, gpu_queue("cpu")) == 0


@pytest.mark.parametrize(
    ("place", "gpu", "devices"),
    [
        (None, "L4", 4),
        (QueueChoice(gpu="h100"), "L4", 4),
        (None, "cpu", 1),
        (QueueChoice(gpu="cpu"), "L4", 1),
        (QueueChoice(node="lab-1"), "L4", 1),
    ],
)
def test_only_runs_of_shared_gpus_are_told_apart_by_size(
    place: QueueChoice | None, gpu: str, devices: int
) -> None:
    """A CPU is one device whatever the ranks, and who names a node has no other to wait for."""
    plan = msgspec.structs.replace(_PLAN, queue=place)
    config = EngineConfig(tensor_parallel_size=4)

    assert needed_devices(plan, gpu=gpu, config=config) == devices


def test_a_named_node_gives_what_it_has() -> None:
    """The GPU that the plan names, else the recommended one, else any."""
    node = _with(_node(count=2), _node("L4", count=1))
    here = msgspec.structs.replace(_PLAN, queue=QueueChoice(node="n"))
    exact = msgspec.structs.replace(_PLAN, queue=QueueChoice(node="n", gpu="A100"))

    assert [device.name for device in devices_for(here, node, gpu="L4")] == ["L4"]
    assert len(devices_for(here, node, gpu="A100")) == 3
    assert devices_for(exact, node, gpu="L4") == []
    assert devices_for(_PLAN, node, gpu="A100") == []


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
        (EngineConfig(tensor_parallel_size=2, prefill_context_parallel_size=2), 4),
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
