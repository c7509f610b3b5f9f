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


def choose_devices(
    client: redis.Redis, devices: Sequence[WorkerDevice], *, count: int
) -> list[WorkerDevice]:
    """Return devices that nobody uses, or none while too many are in use.

    A CPU is one device, whatever the number of ranks.

    Raises:
        NotEnoughDevices: There are too few, or foreign processes hold them.
    """
    if any(is_cpu(device) for device in devices):
        count = 1
    usable = [device for device in devices if not device.foreign_processes and not device.mig]
    if len(usable) < count:
        foreign = len(devices) - len(usable)
        raise NotEnoughDevices(
            f"{count} devices are needed; the node has {len(devices)} of them, "
            f"{foreign} in use by processes of others or split into slices"
        )
    taken = leases.held(client, [device.uuid for device in usable])
    return pick([device for device in usable if device.uuid not in taken], count=count)


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
