"""The process that serves a node's queues."""

import threading
from pathlib import Path

import pytest

from workers.inventory import describe_node
from workers.serving import start_serving
from workers.settings import read_worker_settings


def test_the_queues_are_never_served_by_a_fork_of_threads(tmp_path: Path) -> None:
    """A lock that a thread holds at the fork would stay held for good in every job."""
    settings = read_worker_settings({"SETPOINT_DATA_DIR": str(tmp_path)})
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        with pytest.raises(RuntimeError, match="before any thread"):
            start_serving(settings, describe_node(settings))
    finally:
        done.set()
        other.join()
