"""Which of a node's devices a run takes: free ones, best connected first."""

import itertools
from collections.abc import Iterable, Sequence

import redis

from api_schemas.worker import PciePath, WorkerDevice
from service.queue import is_cpu, leasable
from service.store import leases

_MOST_CHOICES = 20_000
_FAR, _NUMA_NODE, _SWITCH, _NVLINK = range(4)
_NEARNESS: dict[PciePath, int] = {
    "board": _SWITCH,
    "switch": _SWITCH,
    "switches": _SWITCH,
    "host_bridge": _NUMA_NODE,
    "numa_node": _NUMA_NODE,
    "system": _FAR,
}


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
    whole = leasable(devices, count=count)
    if len(whole) < count:
        raise NotEnoughDevices(
            f"{count} devices are needed; the node has {len(whole)} of them that can work "
            "together: slices of a GPU cannot, and a GPU that is split into slices is not leased"
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
    """Return the `count` devices that are best connected among each other; or none.

    Of two choices the one with more pairs on NVLink is better, then the one with more pairs under
    common PCIe switches or nearer, then the one with more pairs on one NUMA node or nearer.
    """
    if len(free) < count:
        return []
    nearness = {
        frozenset((one.uuid, other.uuid)): _nearness(one, other)
        for one, other in itertools.combinations(free, 2)
    }

    def pairs_as_near(choice: Iterable[WorkerDevice]) -> list[int]:
        pairs = [
            nearness[frozenset((one.uuid, other.uuid))]
            for one, other in itertools.combinations(tuple(choice), 2)
        ]
        return [sum(near >= least for near in pairs) for least in (_NVLINK, _SWITCH, _NUMA_NODE)]

    choices = itertools.islice(itertools.combinations(free, count), _MOST_CHOICES)
    return list(max(choices, key=pairs_as_near))


def _nearness(one: WorkerDevice, other: WorkerDevice) -> int:
    """Return how near two devices are: linked directly or over an NVLink switch, else by PCIe."""
    if (
        one.uuid in other.nvlink_peers
        or other.uuid in one.nvlink_peers
        or _switches(one) & _switches(other)
    ):
        return _NVLINK
    path = one.pcie_paths.get(other.uuid) or other.pcie_paths.get(one.uuid)
    return _NEARNESS[path] if path else _FAR


def _switches(device: WorkerDevice) -> set[str]:
    return {peer for peer in device.nvlink_peers if peer.startswith("switch:")}
