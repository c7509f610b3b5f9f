"""What puts right what processes left behind: lost runs, and runs that nobody can take any more.

Every worker does it with its heartbeat, and every API process in turn: when the last worker is gone
somebody must still notice.
"""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Self

import redis

from service.log import get_logger
from service.queue import heal
from service.store import keys
from service.store.client import StoreUnavailable, reaching_the_store
from service.store.studies import StudyStore
from service.store.validations import ValidationStore
from service.studies import heal_studies
from service.unserved import end_unserved

SWEEP_S = 10.0
_STOP_LIMIT_S = 5.0
_log = get_logger(__name__)


def sweep(client: redis.Redis, *, retention: timedelta | None, now: datetime) -> None:
    """Queue or end what was lost, then end what nobody can take.

    Raises:
        StoreUnavailable: The store did not answer; the next sweep does the rest.
    """
    validations, studies = ValidationStore(client, retention=retention), StudyStore(client)
    heal(client, validations, now=now)
    heal_studies(client, studies, now=now)
    end_unserved(client, validations, studies, now=now)


class Sweeper:
    """Sweeps in a thread of its own while it is entered; of all that do, one at a time."""

    def __init__(
        self,
        client: redis.Redis,
        *,
        retention: timedelta | None,
        now: Callable[[], datetime],
        every_s: float = SWEEP_S,
    ) -> None:
        self._client = client
        self._retention = retention
        self._now = now
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweep", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=_STOP_LIMIT_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._sweep()
            except StoreUnavailable as error:
                _log.debug("sweep_put_off", reason=str(error))
            except Exception:  # noqa: BLE001  # one bad record must not end all sweeps
                _log.exception("sweep_broke")

    def _sweep(self) -> None:
        """Sweep, unless another process did so just now: the turn is kept until the next is due."""
        lifetime_ms = round(900 * self._every_s)
        with reaching_the_store():
            is_ours = self._client.set(keys.sweep_turn(), "1", nx=True, px=lifetime_ms)
        if is_ours:
            sweep(self._client, retention=self._retention, now=self._now())
