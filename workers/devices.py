"""Which of a node's devices a run takes: free ones, best connected first."""

import itertools
from collections.abc import Iterable, Sequence

import redis

from api_schemas.worker import WorkerDevice
from service.queue import is_cpu
from service.store import leases

_MOST_CHOICES = 20_000


class NotEnoughDevices(Exception):
    """The node can never give as many devices as are needed."""


class InForeignUse(NotEnoughDevices):
    """Processes that no lease knows use too many of the devices at this moment."""


def choose_devices(
    client: redis.Redis, devices: Sequence[WorkerDevice], *, count: int
) -> list[WorkerDevice]:
    """Return devices that nobody uses, or none while too many are in use.

    A CPU is one device, whatever the number of ranks. A process on a leased device is that of
    the lease's holder; only those on free devices are foreign.

    Raises:
        NotEnoughDevices: There are too few of them.
        InForeignUse: Foreign processes hold them.
    """
    if any(is_cpu(device) for device in devices):
        count = 1
    whole = [device for device in devices if not device.mig]
    if len(whole) < count:
        raise NotEnoughDevices(
            f"{count} devices are needed; the node has {len(devices)} of them, "
            f"{len(devices) - len(whole)} split into slices"
        )
    taken = leases.held(client, [device.uuid for device in whole])
    free = [device for device in whole if device.uuid not in taken]
    usable = [device for device in free if not device.foreign_processes]
    if len(usable) + len(taken) < count:
        foreign = len(free) - len(usable)
        raise InForeignUse(
            f"{count} devices are needed; {foreign} of {len(whole)} are used by processes of others"
        )
    return pick(usable, count=count)


def pick(free: Sequence[WorkerDevice], *, count: int) -> list[WorkerDevice]:
    """Return the `count` devices with most direct links among them, in their order; or none."""
    if len(free) < count:
        return []
    choices = itertools.islice(itertools.combinations(free, count), _MOST_CHOICES)
    return list(max(choices, key=_links))


def _links(devices: Iterable[WorkerDevice]) -> int:
    """Return how many pairs are linked, directly or over a common switch."""
    return sum(
        one.uuid in other.nvlink_peers
        or other.uuid in one.nvlink_peers
        or bool(_switches(one) & _switches(other))
        for one, other in itertools.combinations(tuple(devices), 2)
    )


def _switches(device: WorkerDevice) -> set[str]:
    return {peer for peer in device.nvlink_peers if peer.startswith("switch:")}
