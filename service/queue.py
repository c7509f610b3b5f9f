"""The queue between API and workers: names of queues, who may take a validation, lost runs.

The record is in the store, and is written first. A queue entry is a ticket: it holds a function's
name and a queue's as JSON, and whoever draws it takes the run whose turn it is, so that tenants
share the workers (`service.store.waiting`). RQ 3.0 carries the tickets, those for larger runs in
queues of their own, so that nobody draws a ticket for what its node is too small for.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec
import redis
from rq import Queue
from rq.exceptions import DuplicateJobError
from rq.serializers import JSONSerializer

from api_schemas.engine import EngineConfig
from api_schemas.validation import Failure, Validation, ValidationPlan
from api_schemas.worker import WorkerDevice, WorkerNode
from service.identifiers import timestamp
from service.store.client import reaching_the_store
from service.store.decoding import UnreadableRecord
from service.store.validations import Change, ValidationStore
from service.store.waiting import WaitingRun, count_waiting, is_waiting
from service.tuning.errors import UnknownGpu
from service.tuning.hardware.catalogue import find_gpu

FUNCTION = "workers.dispatch.run_next"
MAX_ATTEMPTS = 2
"""A run whose process was lost is started once more: it changed nothing outside its own record."""
LEASE_WAIT_LIMIT_S = 3600.0
"""Longest wait for a free device; it does not count against the plan's minutes."""
_CPU = "cpu"
_SEVERAL = 2
_LONGEST_PLAN_MINUTES = 24 * 60
_MARGIN_S = 300.0
_RESULT_LIFETIME_S = 60
_FAILURE_LIFETIME_S = 24 * 3600


class _Layout(msgspec.Struct, frozen=True):
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    prefill_context_parallel_size: int | None = None


RecordT = TypeVar("RecordT")
_Record_co = TypeVar("_Record_co", covariant=True)


class RunStore(Protocol[_Record_co]):
    """Where runs of one kind are kept."""

    def unfinished(self) -> list[str]:
        """Return the ids of those that have not ended."""

    def find(self, identifier: str) -> _Record_co | None:
        """Return a record, or None."""

    def waiting_run(self, identifier: str) -> WaitingRun:
        """Return the entry under which it waits, or waited, for a worker."""

    def cancel_requested(self, identifier: str) -> bool:
        """Tell whether somebody asked to end it."""

    def is_claimed(self, identifier: str) -> bool:
        """Tell whether a live process works on it."""


class NoWorker(Exception):
    """No live node can take a validation; the message says what is missing."""


def node_queue(node: str) -> str:
    """Return the queue that only this node works off."""
    return f"validate.node.{node}"


def gpu_queue(gpu: str) -> str:
    """Return the queue that every node with this GPU works off."""
    return f"validate.gpu.{gpu_name(gpu).replace(' ', '-')}"


def ticket_queue(queue: str, *, devices: int) -> str:
    """Return where the tickets of a queue lie for runs on so many devices."""
    return queue if devices == 1 else f"{queue}.x{devices}"


def ticket_queues(node: WorkerNode) -> list[str]:
    """Return where a node draws its tickets: for every run that it can ever serve."""
    return [
        ticket_queue(queue, devices=devices)
        for queue in node.queues
        for devices in range(1, most_devices(node, queue) + 1)
    ]


def gpu_name(gpu: str) -> str:
    """Return the catalogue's name of a GPU, or the name itself where no catalogue knows it."""
    try:
        return find_gpu(gpu).name
    except UnknownGpu:
        return gpu


def job_timeout_s(plan: ValidationPlan) -> int:
    """Return the time after which a run is ended by force: the last net under its own budget."""
    return timeout_s(max_minutes=plan.max_minutes)


def timeout_s(*, max_minutes: float) -> int:
    """Return the longest time a run of so many minutes may take, with its wait for devices."""
    return round(LEASE_WAIT_LIMIT_S + max_minutes * 60 + _MARGIN_S)


def queue_of(plan: ValidationPlan, *, gpu: str) -> str:
    """Return the queue of a plan for a recommendation that asks for this GPU."""
    place = plan.queue
    if place is not None and place.node is not None:
        return node_queue(place.node)
    return gpu_queue(place.gpu if place is not None and place.gpu is not None else gpu)


def check_worker(
    nodes: Iterable[WorkerNode], *, plan: ValidationPlan, gpu: str, device_count: int
) -> None:
    """Return when a live node can take the plan.

    Raises:
        NoWorker: None can.
    """
    queue = queue_of(plan, gpu=gpu)
    listening = [node for node in nodes if queue in node.queues]
    if not listening:
        raise NoWorker(f"No live worker listens on {queue}; GET /workers lists what there is.")
    for node in listening:
        devices = devices_for(plan, node, gpu=gpu)
        if _most_of(devices, node) >= (1 if _on_cpu(devices) else device_count):
            return
    raise NoWorker(
        f"The workers on {queue} have fewer than {device_count} matching devices, or no vLLM "
        "environment for them (SETPOINT_VLLM_ENVS)."
    )


def device_count(config: EngineConfig | msgspec.Raw) -> int:
    """Return how many devices a configuration needs: all its ranks, which do not share any."""
    layout = (
        msgspec.json.decode(config, type=_Layout) if isinstance(config, msgspec.Raw) else config
    )
    sizes = (getattr(layout, name) for name in _Layout.__struct_fields__)
    return math.prod(max(size or 1, 1) for size in sizes)


def needed_devices(plan: ValidationPlan, *, gpu: str, config: EngineConfig | msgspec.Raw) -> int:
    """Return how many devices a node must have that takes a run from its queue.

    A CPU is one device, whatever the number of ranks; who names a node has no choice of nodes.
    """
    queue = queue_of(plan, gpu=gpu)
    is_shared = plan.queue is None or plan.queue.node is None
    return device_count(config) if is_shared and queue != gpu_queue(_CPU) else 1


def most_devices(node: WorkerNode, queue: str) -> int:
    """Return the most devices that a run of a queue can lease on a node; 0: it can run none.

    Runs that name the node are not told apart by size: there is no other node for them.
    """
    if queue == node_queue(node.node):
        return 1
    return _most_of([item for item in node.devices if gpu_queue(item.name) == queue], node)


def serves(node: WorkerNode, run: WaitingRun) -> bool:
    """Tell whether a live node would ever take a waiting run."""
    return run.queue in node.queues and most_devices(node, run.queue) >= run.devices


def devices_for(plan: ValidationPlan, node: WorkerNode, *, gpu: str) -> list[WorkerDevice]:
    """Return the devices of a node that a plan may run on, for a recommendation for this GPU.

    That is the GPU which the plan names, else the recommended one, else whatever a named node has.
    """
    place = plan.queue
    asked = gpu if place is None or place.gpu is None else place.gpu
    matching = [device for device in node.devices if gpu_name(device.name) == gpu_name(asked)]
    if matching or place is None or place.node is None or place.gpu is not None:
        return matching
    return node.devices


def is_cpu(device: WorkerDevice) -> bool:
    """Tell whether a device is the node's CPU."""
    return device.name == _CPU


def leasable(devices: Sequence[WorkerDevice], *, count: int) -> list[WorkerDevice]:
    """Return the devices that can be leased for a run on so many of them.

    A GPU that is split is leased by its slices alone, and a slice works alone: CUDA shows a process
    one MIG instance (NVIDIA's MIG user guide, "CUDA device enumeration").
    """
    return [
        device for device in devices if not device.mig and (count == 1 or device.slice_of is None)
    ]


def enqueue(client: redis.Redis, validation: Validation, *, devices: int = 1) -> None:
    """Hand a stored validation to the workers; doing it twice is the same as once.

    Raises:
        StoreUnavailable: The store did not acknowledge it.
    """
    name = f"{validation.id}-{validation.attempt}"
    add_ticket(client, validation.queue, devices=devices, identifier=name)


def add_ticket(
    client: redis.Redis, queue: str, *, devices: int, identifier: str | None = None
) -> None:
    """Let one more run of a queue be taken; two tickets with one identifier are one.

    Nodes that can serve a run on so many devices see it.

    A ticket too many does no harm: it finds nothing to take. How long it may run is set by the plan
    of the run it takes; its own limit is that of the longest plan.

    Raises:
        StoreUnavailable: The store did not acknowledge it.
    """
    with reaching_the_store():
        try:
            _tickets(client, queue, devices=devices).enqueue_call(
                FUNCTION,
                args=[queue, devices],
                job_id=identifier,
                timeout=timeout_s(max_minutes=_LONGEST_PLAN_MINUTES) + round(_MARGIN_S),
                result_ttl=_RESULT_LIFETIME_S,
                failure_ttl=_FAILURE_LIFETIME_S,
                unique=identifier is not None,
            )
        except DuplicateJobError:
            return


def heal(client: redis.Redis, store: ValidationStore, *, now: datetime) -> list[str]:
    """Give validations whose process was lost back to the queue, or end them; return their ids.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    return heal_runs(client, store, go_on=lambda lost: start_again(client, store, lost, now=now))


def heal_runs(
    client: redis.Redis, store: RunStore[RecordT], *, go_on: Callable[[RecordT], None]
) -> list[str]:
    """Let each run go on whose process was lost, or end it; return their ids.

    A run is lost when it neither waits nor is claimed; it is claimed in the step in which it stops
    to wait, so that asking in this order never finds a living one lost. One that waits although
    somebody cancelled it, between two attempts, is ended.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    healed, queues = [], set()
    for identifier in store.unfinished():
        try:
            record = store.find(identifier)
        except UnreadableRecord:  # left to `service.unserved`
            continue
        if record is None:
            continue
        run = store.waiting_run(identifier)
        if is_waiting(client, run) and not store.cancel_requested(identifier):
            queues.add((run.queue, run.devices))
        elif not store.is_claimed(identifier):
            go_on(record)
            healed.append(identifier)
    add_missing_tickets(client, queues)
    return healed


def add_missing_tickets(client: redis.Redis, queues: Iterable[tuple[str, int]]) -> None:
    """Let no run wait without a ticket in these queues, each for runs on so many devices.

    A crash between record and ticket leaves one without, and so does who draws a ticket for one
    size and takes a run of another.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    for name, devices in queues:
        with reaching_the_store():
            tickets = _tickets(client, name, devices=devices).count
        for _ in range(count_waiting(client, name, devices=devices) - tickets):
            add_ticket(client, name, devices=devices)


def start_again(
    client: redis.Redis,
    store: ValidationStore,
    validation: Validation,
    *,
    now: datetime,
    reason: str = "the process that worked on it was lost",
) -> None:
    """Queue a lost run once more, or end it as cancelled or failed."""
    ended: dict[str, Any] = {"finished_at": timestamp(now), "progress": 1.0}
    if store.cancel_requested(validation.id):
        store.change(
            validation.id, attempt=validation.attempt, to="cancelled", stage="cancelled", **ended
        )
        return
    if validation.attempt >= MAX_ATTEMPTS:
        failure = Failure(stage="lost", reason=f"{reason}, twice", log_tail="")
        store.change(
            validation.id,
            attempt=validation.attempt,
            to="failed",
            stage="lost",
            failure=failure,
            verdict="inconclusive",
            **ended,
        )
        return
    again = validation.attempt + 1
    moved = store.change(
        validation.id,
        attempt=validation.attempt,
        to="queued",
        stage="queued",
        progress=0.0,
        next_attempt=again,
        notes=[*validation.notes, f"Started again: {reason}."],
    )
    if moved is Change.DONE:
        fresh = store.find(validation.id)
        if fresh is not None:
            enqueue(client, fresh, devices=store.waiting_run(fresh.id).devices)


def _tickets(client: redis.Redis, queue: str, *, devices: int) -> Queue:
    name = ticket_queue(queue, devices=devices)
    return Queue(name, connection=client, serializer=JSONSerializer)


def _on_cpu(devices: Iterable[WorkerDevice]) -> bool:
    return any(is_cpu(device) for device in devices)


def _most_of(devices: Sequence[WorkerDevice], node: WorkerNode) -> int:
    """Return the most of these devices that work together under a vLLM that the node has."""
    on_cpu = _on_cpu(devices)
    if not any(environment.is_cpu == on_cpu for environment in node.environments):
        return 0
    alone = min(len(leasable(devices, count=1)), 1)
    return alone if on_cpu else max(len(leasable(devices, count=_SEVERAL)), alone)
