"""What an orchestrator is told of a worker's health."""

import pytest
import redis

from api_schemas.worker import WorkerNode
from service.store.workers import forget, register
from workers.health import main


def _node(name: str) -> WorkerNode:
    return WorkerNode(
        node=name,
        started_at="",
        heartbeat_at="",
        setpoint_version="0",
        driver=None,
        devices=[],
        environments=[],
        queues=[],
    )


def test_a_worker_is_healthy_while_its_heartbeat_lives(
    client: redis.Redis,
    store_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another node's heartbeat is no help, and one that signed off is not healthy."""
    monkeypatch.setenv("SETPOINT_REDIS_URL", store_url)
    monkeypatch.setenv("SETPOINT_WORKER_NODE", "mine")
    register(client, _node("other"))
    assert main() == 1
    assert "mine has no live heartbeat" in capsys.readouterr().err

    register(client, _node("mine"))
    assert main() == 0
    forget(client, "mine")
    assert main() == 1


def test_without_the_store_a_worker_is_not_healthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can give it work."""
    monkeypatch.setenv("SETPOINT_REDIS_URL", "unix:///nowhere/redis.sock")

    assert main() == 1
    assert "store cannot be reached" in capsys.readouterr().err
