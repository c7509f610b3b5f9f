"""The embedded store as processes: it starts, survives kills, and never blocks a new start."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.embedded import DataFolderInUse, EmbeddedStore, StoreNotStarted, store_url
from service.store.client import connect

_HOLD = """
import os, sys
from service.embedded import EmbeddedStore
from service.store.client import connect
store = EmbeddedStore(sys.argv[1])
store.start()
connect(store.url, timeout_s=5).set("kept", "yes")
print(store.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def _value(url: str) -> object:
    with connect(url, timeout_s=5.0) as client:
        return client.get("kept")


def test_an_acknowledged_write_survives_kill_9_of_everything(tmp_path: Path) -> None:
    """After SIGKILL of the owner and of the store, a new start finds the write."""
    owner = subprocess.run(
        [sys.executable, "-c", _HOLD, str(tmp_path)], capture_output=True, check=False
    )
    assert owner.returncode == -signal.SIGKILL
    with contextlib.suppress(ProcessLookupError):  # it may have followed its owner already
        os.kill(int(owner.stdout), signal.SIGKILL)

    with EmbeddedStore(str(tmp_path)) as store:
        assert _value(store.url) == b"yes"


def test_a_store_left_behind_is_replaced(tmp_path: Path) -> None:
    """When only the owner was killed, a new start waits for the old store to end and goes on."""
    subprocess.run([sys.executable, "-c", _HOLD, str(tmp_path)], capture_output=True, check=False)

    with EmbeddedStore(str(tmp_path)) as store:
        assert _value(store.url) == b"yes"


def test_stale_files_do_not_block_a_start(tmp_path: Path) -> None:
    """A socket file and lock files without a process behind them are ignored."""
    for name in ("store.sock", "service.lock", "store.lock"):
        (tmp_path / name).write_text("1")

    with EmbeddedStore(str(tmp_path)) as store:
        assert _value(store.url) is None


def test_a_second_service_on_the_folder_is_refused(tmp_path: Path) -> None:
    """Two owners never share a folder; the message names the process and the ways out."""
    with EmbeddedStore(str(tmp_path)) as store:
        with pytest.raises(DataFolderInUse, match=f"process {os.getpid()}.*SETPOINT_REDIS_URL"):
            EmbeddedStore(str(tmp_path)).start()

        assert _value(store.url) is None  # the first one still answers


def test_the_store_ends_with_its_owner_and_frees_the_folder(tmp_path: Path) -> None:
    """After a stop no process is left, and the folder can be used again at once."""
    with EmbeddedStore(str(tmp_path)) as store:
        pid = store.pid
        assert pid is not None

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with EmbeddedStore(str(tmp_path)):
        pass


def test_a_killed_store_comes_back_by_itself(tmp_path: Path) -> None:
    """When only the store is killed it is started again with everything acknowledged."""
    with EmbeddedStore(str(tmp_path)) as store:
        with connect(store.url, timeout_s=5.0) as client:
            client.set("kept", "yes")
        first = store.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)

        store.wait_for_restart(after=first, timeout_s=30)

        assert _value(store.url) == b"yes"


def test_a_data_folder_with_a_long_path_works(tmp_path: Path) -> None:
    """A path too long for a socket gets its socket in a private folder elsewhere."""
    folder = tmp_path / ("long" * 30)

    with EmbeddedStore(str(folder)) as store:
        assert _value(store.url) is None
        assert str(folder) not in store_url(str(folder))


def test_the_store_listens_on_no_network(tmp_path: Path) -> None:
    """The store is reached through a socket that only its user may open."""
    with EmbeddedStore(str(tmp_path)) as store:
        with connect(store.url, timeout_s=5.0) as client:
            assert client.config_get("port") == {"port": "0"}
        assert (tmp_path / "store.sock").stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    """A file where the data folder should be is an error that names it."""
    blocked = tmp_path / "file"
    blocked.write_text("")

    with pytest.raises(StoreNotStarted, match=str(blocked)):
        EmbeddedStore(str(blocked)).start()
