"""The loop that delivers what is due; every process with the secrets may run one."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from api_schemas.webhook import DeliveryAttempt, DeliveryOutcome, DeliveryStatus
from service.identifiers import timestamp
from service.log import get_logger
from service.store.client import StoreUnavailable
from service.store.webhooks import Claimed, WebhookStore
from service.webhooks.addresses import Resolve, resolve_host
from service.webhooks.message import message, signed_headers
from service.webhooks.schedule import pause_after
from service.webhooks.secrets import read_secret
from service.webhooks.sending import LIMIT_S, Reach, Reply, post

_T = TypeVar("_T")
_AT_ONCE = 64
"""Messages that one process takes at the same time."""
_AT_ONCE_TO_HOST = 2
_PUT_OFF = timedelta(seconds=2 * LIMIT_S)
"""After so long a receiver that hung is asked again for what it had not been sent."""
_LEASE = timedelta(seconds=4 * LIMIT_S)
"""After so long another process may try what one had begun."""
_POLL_S = 0.5
_AWAY_S = 5.0
"""Pause while the store is away; whoever needs it more says so."""
_log = get_logger(__name__)


class Dispatcher:
    """Delivers in a thread of its own while it is entered; without secrets it does nothing."""

    def __init__(
        self,
        store: WebhookStore,
        *,
        secrets_dir: Path | str | None,
        reach: Reach,
        now: Callable[[], datetime],
        resolve: Resolve = resolve_host,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._store = store
        self._secrets_dir = None if secrets_dir is None else Path(secrets_dir)
        self._reach = reach
        self._now = now
        self._resolve = resolve
        self._limit_s = limit_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._secrets_dir is not None:
            self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=LIMIT_S)

    def deliver_due(self) -> int:
        """Try what is due now, some at the same time; return how many were tried.

        Receivers do not wait for each other: one that hangs is given no more for a while.

        Raises:
            StoreUnavailable: The store did not answer; what was begun is tried again.
        """
        claimed = self._store.claim(now=self._now(), lease=_LEASE, limit=_AT_ONCE)
        return asyncio.run(self._deliver_all(claimed)) if claimed else 0

    def _run(self) -> None:
        while not self._stopped.is_set():
            found = 0
            try:
                found = self.deliver_due()
            except StoreUnavailable:
                self._stopped.wait(_AWAY_S)
            except Exception:  # noqa: BLE001  # one bad message must not end all deliveries
                _log.exception("webhook_broke")
            if not found:
                self._stopped.wait(_POLL_S)

    async def _deliver_all(self, claimed: list[Claimed]) -> int:
        by_host: dict[str, list[Claimed]] = {}
        for item in claimed:
            by_host.setdefault(_host_of(item.delivery.url), []).append(item)
        return sum(await _all_done(map(self._deliver_to, by_host.values())))

    async def _deliver_to(self, claimed: list[Claimed]) -> int:
        """Deliver to one receiver, a few at a time; once it took too long, put off the rest."""
        deadline = asyncio.get_running_loop().time() + self._limit_s
        for start in range(0, len(claimed), _AT_ONCE_TO_HOST):
            some = claimed[start : start + _AT_ONCE_TO_HOST]
            outcomes = await _all_done(map(self._deliver, some))
            rest = claimed[start + len(some) :]
            is_late = asyncio.get_running_loop().time() > deadline
            if rest and (is_late or "timed_out" in outcomes):
                until = self._now() + _PUT_OFF
                for item in rest:
                    self._store.put_off(item, until=until)
                return start + len(some)
        return len(claimed)

    async def _deliver(self, claimed: Claimed) -> DeliveryOutcome:
        started_at = self._now()
        reply = await self._try(claimed, at=started_at)
        pause = pause_after(
            claimed.tries + 1,
            outcome=reply.outcome,
            retry_after_s=reply.retry_after_s,
            seed=claimed.delivery.id,
        )
        next_attempt = None if pause is None else self._now() + pause
        attempt = DeliveryAttempt(
            number=claimed.number,
            started_at=timestamp(started_at),
            latency_ms=reply.latency_ms,
            outcome=reply.outcome,
            status_code=reply.status_code,
            next_attempt_at=None if next_attempt is None else timestamp(next_attempt),
        )
        self._store.record(
            claimed, attempt, status=_status(reply, next_attempt), next_attempt=next_attempt
        )
        return reply.outcome

    async def _try(self, claimed: Claimed, *, at: datetime) -> Reply:
        delivery = claimed.delivery
        record = self._store.told_of(delivery)
        if record is None:
            return Reply(outcome="record_missing")
        secret = read_secret(delivery.secret_ref, self._secrets_dir)
        if secret is None:
            return Reply(outcome="secret_missing")
        body = message(record)
        return await post(
            delivery.url,
            body=body,
            headers=signed_headers(body, identifier=delivery.id, at=at, secret=secret),
            reach=self._reach,
            resolve=self._resolve,
            limit_s=self._limit_s,
        )


async def _all_done(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Return what came of all; one that fails is told when the others are done."""
    found: list[_T] = []
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        found.append(outcome)
    return found


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return url


def _status(reply: Reply, next_attempt: datetime | None) -> DeliveryStatus:
    if reply.outcome == "delivered":
        return "delivered"
    return "failed" if next_attempt is None else "pending"
