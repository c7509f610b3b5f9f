"""Which devices a run takes."""

import msgspec
import pytest
import redis

from api_schemas.worker import PciePath, WorkerDevice
from service.queue import leasable
from workers.devices import NotEnoughDevices, choose_devices, pick
from workers.server import server_environment


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


def _on_pcie(*, switches: int) -> list[WorkerDevice]:
    """Return eight GPUs without NVLink: this many under each switch, four on each socket."""
    devices = [_gpu(number) for number in range(8)]

    def path(one: int, other: int) -> PciePath:
        if one // switches == other // switches:
            return "switch"
        return "numa_node" if one // 4 == other // 4 else "system"

    return [
        msgspec.structs.replace(
            device, pcie_paths={f"GPU-{o}": path(n, o) for o in range(8) if o != n}
        )
        for n, device in enumerate(devices)
    ]


def test_without_nvlink_a_common_switch_comes_first() -> None:
    """Two GPUs under one PCIe switch are nearer than two that only share a socket."""
    free = _on_pcie(switches=2)

    assert _uuids(pick([free[1], *free[4:]], count=2)) == ["GPU-4", "GPU-5"]
    assert _uuids(pick([free[n] for n in (1, 3, 4, 7)], count=2)) == ["GPU-1", "GPU-3"]
    assert _uuids(pick([free[n] for n in (0, 2, 3, 6)], count=3)) == ["GPU-0", "GPU-2", "GPU-3"]
    assert _uuids(pick([free[n] for n in (1, 4, 5, 6, 7)], count=4)) == [
        *("GPU-4", "GPU-5", "GPU-6", "GPU-7"),
    ]


def test_nvlink_comes_before_pcie() -> None:
    """A bridged pair on two sockets is nearer than one under a switch."""
    free = _on_pcie(switches=2)
    free[0], free[7] = (
        msgspec.structs.replace(free[one], nvlink_peers=[f"GPU-{other}"])
        for one, other in ((0, 7), (7, 0))
    )

    assert _uuids(pick(free, count=2)) == ["GPU-0", "GPU-7"]


def test_a_path_that_one_side_tells_is_known() -> None:
    """The driver may tell how near two GPUs are on one of them alone."""
    free = [_gpu(0), _gpu(1), msgspec.structs.replace(_gpu(2), pcie_paths={"GPU-1": "switch"})]

    assert _uuids(pick(free, count=2)) == ["GPU-1", "GPU-2"]


def _split() -> list[WorkerDevice]:
    whole = msgspec.structs.replace(_gpu(0), mig=True)
    slices = [
        msgspec.structs.replace(_gpu(0), uuid=f"MIG-{number}", slice_of="GPU-0")
        for number in range(3)
    ]
    return [whole, *slices]


def test_a_split_gpu_is_leased_by_its_slices() -> None:
    """One slice serves a run on one device; several do not work together, nor does the whole."""
    assert _uuids(leasable(_split(), count=1)) == ["MIG-0", "MIG-1", "MIG-2"]
    assert leasable(_split(), count=2) == []
    with pytest.raises(NotEnoughDevices, match="slices of a GPU cannot"):
        choose_devices(redis.Redis(), _split(), count=2)


def test_the_server_sees_its_slice_alone() -> None:
    """A slice is pinned by its own UUID."""
    variables = server_environment({}, gpu_uuids=["MIG-1"], is_cpu=False, mark="m")

    assert variables["CUDA_VISIBLE_DEVICES"] == "MIG-1"


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
