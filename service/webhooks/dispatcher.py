"""The loop that delivers what is due; every process with the secrets may run one."""

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from api_schemas.webhook import DeliveryAttempt, DeliveryStatus
from service.identifiers import timestamp
from service.log import get_logger
from service.store.client import StoreUnavailable
from service.store.webhooks import Claimed, WebhookStore
from service.webhooks.addresses import Resolve, resolve_host
from service.webhooks.message import message, signed_headers
from service.webhooks.schedule import pause_after
from service.webhooks.secrets import read_secret
from service.webhooks.sending import LIMIT_S, Reach, Reply, post

_AT_ONCE = 8
"""Messages that one process sends at the same time."""
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
    ) -> None:
        self._store = store
        self._secrets_dir = None if secrets_dir is None else Path(secrets_dir)
        self._reach = reach
        self._now = now
        self._resolve = resolve
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

        Raises:
            StoreUnavailable: The store did not answer; what was begun is tried again.
        """
        claimed = self._store.claim(now=self._now(), lease=_LEASE, limit=_AT_ONCE)
        if claimed:
            asyncio.run(self._deliver_all(claimed))
        return len(claimed)

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

    async def _deliver_all(self, claimed: list[Claimed]) -> None:
        outcomes = await asyncio.gather(*map(self._deliver, claimed), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _deliver(self, claimed: Claimed) -> None:
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
        )


def _status(reply: Reply, next_attempt: datetime | None) -> DeliveryStatus:
    if reply.outcome == "delivered":
        return "delivered"
    return "failed" if next_attempt is None else "pending"
