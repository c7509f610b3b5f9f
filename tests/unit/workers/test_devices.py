"""Which devices a run takes."""

import pytest
import redis

from api_schemas.worker import WorkerDevice
from workers.devices import NotEnoughDevices, choose_devices, pick


def _gpu(number: int, *peers: int, switch: str | None = None, foreign: int = 0) -> WorkerDevice:
    linked = [f"GPU-{peer}" for peer in peers] + ([f"switch:{switch}"] if switch else [])
    return WorkerDevice(
        name="NVIDIA A100-SXM4-80GB",
        uuid=f"GPU-{number}",
        memory_gib=80.0,
        free_gib=80.0,
        nvlink_peers=linked,
        foreign_processes=foreign,
    )


def _uuids(devices: list[WorkerDevice]) -> list[str]:
    return [device.uuid for device in devices]


def test_linked_devices_come_first() -> None:
    """Of four GPUs in two bridged pairs a pair is taken, never one of each."""
    free = [_gpu(0, 2), _gpu(1, 3), _gpu(2, 0), _gpu(3, 1)]

    assert _uuids(pick(free, count=2)) == ["GPU-0", "GPU-2"]
    assert _uuids(pick(free[1:], count=2)) == ["GPU-1", "GPU-3"]


def test_devices_on_one_switch_are_linked() -> None:
    """Links that end at the same switch connect every pair on it."""
    free = [_gpu(0), _gpu(1, switch="s"), _gpu(2), _gpu(3, switch="s")]

    assert _uuids(pick(free, count=2)) == ["GPU-1", "GPU-3"]


def test_without_links_the_first_ones_do() -> None:
    """Any devices serve when none is linked, and too few give none."""
    free = [_gpu(0), _gpu(1), _gpu(2)]

    assert _uuids(pick(free, count=2)) == ["GPU-0", "GPU-1"]
    assert pick(free, count=4) == []


@pytest.mark.parametrize("devices", [[_gpu(0)], []], ids=["too few", "none"])
def test_what_a_node_can_never_give_is_refused(devices: list[WorkerDevice]) -> None:
    """Too few devices are a reason and not an endless wait."""
    with pytest.raises(NotEnoughDevices):
        choose_devices(redis.Redis(), devices, count=2)
