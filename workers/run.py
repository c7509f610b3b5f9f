"""One running validation: its claim, its budget, its record, and whether it must end."""

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self

import redis

from api_schemas.validation import (
    Failure,
    FailureStage,
    LoadPoint,
    Validation,
    ValidationStatus,
)
from service.identifiers import timestamp
from service.log import get_logger
from service.queue import node_queue
from service.store import leases
from service.store.client import StoreUnavailable
from service.store.validations import Change
from service.store.waiting import WaitingRun, has_devices, is_overtaking
from service.store.workers import store_identity

_POLL_S = 0.5
_RENEW_S = 4.0
_STORE_WAIT_S = 300.0
_STORE_POLL_S = 0.5
_TAIL_LINES = 60
_log = get_logger(__name__)


class Cancelled(Exception):
    """Somebody asked to end the validation."""


class OutOfTime(Exception):
    """The plan's minutes are over."""


class TakenOver(Exception):
    """The record went to another process, or is finished: nothing may be written any more."""


class Failed(Exception):
    """The validation ends without a result; stage and reason say why."""

    def __init__(self, stage: FailureStage, reason: str, *, log: str = "") -> None:
        super().__init__(reason)
        tail = "\n".join(log.splitlines()[-_TAIL_LINES:])
        self.failure = Failure(stage=stage, reason=reason, log_tail=tail)


def mark_of(store: str, node: str, validation: str) -> str:
    """Return what the processes of a run carry: which store, which node, which validation."""
    return f"{store}/{node}/{validation}"


class Track(Protocol):
    """What a run writes to: a validation's record, or a study's."""

    def change(self, identifier: str, *, attempt: int, **fields: Any) -> Change:  # noqa: ANN401
        """Set fields of the record."""

    def cancel_requested(self, identifier: str) -> bool:
        """Tell whether somebody asked to end it."""

    def keep_claim(self, identifier: str, *, owner: str, attempt: int) -> bool:
        """Say that a process works on it; False when another attempt does."""

    def drop_claim(self, identifier: str, *, attempt: int) -> None:
        """Say that nobody works on it any more, unless another attempt does."""


class Run:
    """The claim on one validation while it is worked on."""

    def __init__(
        self,
        client: redis.Redis,
        store: Track,
        validation: Validation,
        *,
        waiting: WaitingRun,
        node: str,
    ) -> None:
        self.client = client
        self.validation = validation
        self._waiting = waiting
        self.notes = list(validation.notes)
        self._store = store
        self._node = node
        self._store_identity = store_identity(client)
        self._deadline: float | None = None
        self._leases: list[str] = []
        self._token = f"{validation.id}-{validation.attempt}"
        self._cancelled = threading.Event()
        self._lost_lease = threading.Event()
        self._taken_over = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="claim", daemon=True)

    def __enter__(self) -> Self:
        self._claim()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join(timeout=_RENEW_S)
        with contextlib.suppress(StoreUnavailable):
            leases.release(self.client, self._leases, holder=self._token)
            self._store.drop_claim(self.validation.id, attempt=self.validation.attempt)

    @property
    def mark(self) -> str:
        """What the processes of this run carry in their environment."""
        return mark_of(self._store_identity, self._node, self.validation.id)

    @property
    def remaining_s(self) -> float:
        """Seconds left of the plan's minutes."""
        limit_s = self.validation.plan.max_minutes * 60
        if self._deadline is None:
            return limit_s
        return max(0.0, self._deadline - time.monotonic())

    @property
    def is_cancelled(self) -> bool:
        """Whether the work must end now, for whichever reason."""
        ends = (self._cancelled, self._lost_lease, self._taken_over)
        return any(end.is_set() for end in ends)

    def start_clock(self) -> None:
        """Let the plan's minutes run from now on."""
        self._deadline = time.monotonic() + self.validation.plan.max_minutes * 60

    def check(self) -> None:
        """Return when the work may go on.

        Raises:
            Cancelled: Somebody asked to end it.
            OutOfTime: The plan's minutes are over.
            Failed: The lease was lost to somebody else.
            TakenOver: The run was given to another attempt.
        """
        if self._taken_over.is_set():
            raise TakenOver(f"{self.validation.id}: another attempt works on it")
        if self._cancelled.is_set():
            raise Cancelled
        if self._lost_lease.is_set():
            raise Failed("lease", "the lease on the device was lost to another process")
        if self.remaining_s <= 0:
            raise OutOfTime

    def is_overtaking(self) -> bool:
        """Whether a run that this node took earlier still waits for its devices."""
        found: bool = self._persist(
            lambda: is_overtaking(
                self.client, self._waiting, owner=self._node, node_queue=node_queue(self._node)
            )
        )
        return found

    def lease(self, resources: list[str]) -> bool:
        """Take these devices, all or none; tell whether they were free."""
        taken: bool = self._persist(
            lambda: leases.acquire(self.client, resources, holder=self._token)
        )
        if taken:
            self._leases = resources
            self._persist(lambda: has_devices(self.client, self._waiting))
        return taken

    def note(self, *notes: str) -> None:
        """Remember what a reader of the result must know; each is said once."""
        self.notes += [note for note in notes if note not in self.notes]

    def report(
        self,
        stage: str,
        progress: float,
        *,
        to: ValidationStatus | None = None,
        **fields: Any,  # noqa: ANN401  # fields of the record
    ) -> None:
        """Write where the work is; what goes wrong with the store is waited for."""
        self._write(to=to, stage=stage, progress=round(progress, 3), notes=self.notes, **fields)
        _log.info("validation_stage", id=self.validation.id, stage=stage, progress=progress)

    def add_point(self, point: LoadPoint) -> None:
        """Store a load point as it comes."""
        self._write(load_point=point)

    def finish(self, status: ValidationStatus, **fields: Any) -> None:  # noqa: ANN401
        """Write the end; the record never changes afterwards."""
        finished_at = timestamp(datetime.now(UTC))
        self.report(status, 1.0, to=status, finished_at=finished_at, **fields)

    def _write(self, **change: Any) -> None:  # noqa: ANN401  # arguments of the store
        outcome = self._persist(
            lambda: self._store.change(
                self.validation.id, attempt=self.validation.attempt, **change
            )
        )
        if outcome is Change.REFUSED:
            raise RuntimeError(f"{change['to']} cannot follow here")
        if outcome is not Change.DONE:
            raise TakenOver(f"{self.validation.id}: {outcome.value}")

    def _persist(self, write: Callable[[], Any]) -> Any:  # noqa: ANN401  # what the write returns
        """Repeat a write until the store acknowledges it: it may restart meanwhile."""
        deadline = time.monotonic() + _STORE_WAIT_S
        while True:
            try:
                return write()
            except StoreUnavailable as error:
                if time.monotonic() > deadline:
                    raise
                _log.warning("store_away", id=self.validation.id, reason=str(error))
                self._done.wait(_STORE_POLL_S)

    def _keep(self) -> None:
        """Renew claim and leases, and look whether somebody cancelled."""
        renewed = 0.0
        while not self._done.wait(_POLL_S):
            with contextlib.suppress(StoreUnavailable):
                self._look_for_cancel()
                if time.monotonic() - renewed >= _RENEW_S:
                    self._renew()
                    renewed = time.monotonic()

    def _look_for_cancel(self) -> None:
        """Say at once that somebody cancelled; a server that hangs takes its time to end."""
        identifier, attempt = self.validation.id, self.validation.attempt
        if self._cancelled.is_set() or not self._store.cancel_requested(identifier):
            return
        self._store.change(identifier, attempt=attempt, stage="cancelling")
        self._cancelled.set()

    def _claim(self) -> None:
        attempt = self.validation.attempt
        if not self._store.keep_claim(self.validation.id, owner=self._node, attempt=attempt):
            self._taken_over.set()

    def _renew(self) -> None:
        self._claim()
        if self._leases and not leases.acquire(self.client, self._leases, holder=self._token):
            self._lost_lease.set()
