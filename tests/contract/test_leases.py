"""What leases promise, on every kind of server."""

import threading

import pytest
import redis

from api_schemas.worker import WorkerDevice
from service.store import keys
from service.store.leases import acquire, held, release
from workers.devices import InForeignUse, choose_devices


def test_one_holder_at_a_time(client: redis.Redis) -> None:
    """A second one waits until the first gives back; the first may take again."""
    assert acquire(client, ["gpu-0"], holder="a")
    assert acquire(client, ["gpu-0"], holder="a")
    assert not acquire(client, ["gpu-0"], holder="b")

    assert release(client, ["gpu-0"], holder="a") == 1
    assert acquire(client, ["gpu-0"], holder="b")


def test_all_or_none(client: redis.Redis) -> None:
    """When one of several is taken, none of the others is."""
    assert acquire(client, ["gpu-1"], holder="a")

    assert not acquire(client, ["gpu-0", "gpu-1"], holder="b")

    assert held(client, ["gpu-0", "gpu-1"]) == {"gpu-1"}


def test_nobody_gives_back_what_is_not_theirs(client: redis.Redis) -> None:
    """A holder that was too late does not free what somebody else holds now."""
    assert acquire(client, ["gpu-0"], holder="b")

    assert release(client, ["gpu-0"], holder="a") == 0
    assert held(client, ["gpu-0"]) == {"gpu-0"}


def test_a_lease_that_is_not_renewed_runs_out(client: redis.Redis) -> None:
    """It has a lifetime at the server, and renewal sets it anew."""
    assert acquire(client, ["gpu-0"], holder="a", lifetime_s=1000)
    assert acquire(client, ["gpu-0"], holder="a", lifetime_s=2000)

    assert 1000 < int(str(client.ttl(keys.lease("gpu-0")))) <= 2000


def test_of_many_racers_one_wins(client: redis.Redis) -> None:
    """Twelve threads want the same pair in different orders: exactly one gets both."""
    start, winners = threading.Barrier(12), []

    def race(number: int) -> None:
        pair = ["gpu-0", "gpu-1"] if number % 2 else ["gpu-1", "gpu-0"]
        start.wait()
        if acquire(client, pair, holder=str(number)):
            winners.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(winners) == 1


def _gpus(*foreign: int) -> list[WorkerDevice]:
    return [
        WorkerDevice(
            name="NVIDIA L4",
            uuid=f"GPU-{number}",
            memory_gib=24,
            free_gib=24,
            foreign_processes=processes,
        )
        for number, processes in enumerate(foreign)
    ]


def test_a_leased_device_is_waited_for_and_a_foreign_one_refuses(client: redis.Redis) -> None:
    """The process on a leased device is its holder's; one on a free device is somebody else's."""
    assert acquire(client, ["GPU-0"], holder="a")

    assert choose_devices(client, _gpus(1, 0), count=2) == []
    assert [d.uuid for d in choose_devices(client, _gpus(1, 0), count=1)] == ["GPU-1"]
    with pytest.raises(InForeignUse):
        choose_devices(client, _gpus(0, 1), count=2)
    release(client, ["GPU-0"], holder="a")
    assert len(choose_devices(client, _gpus(0, 0), count=2)) == 2
