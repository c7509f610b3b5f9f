"""`Idempotency-Key`: the same request sent twice makes one record and gives one answer.

The conventions are those of draft-ietf-httpapi-idempotency-key-header-07.
"""

import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from litestar import Request, Response

from service.api.context import Context
from service.api.describe import IDEMPOTENCY_KEY
from service.api.problems import Refusal, refuse_field
from service.identifiers import ENTROPY_BYTES, time_ordered_id
from service.log import get_logger
from service.store import keys
from service.store.client import StoreUnavailable
from service.store.idempotency import Attempt, ClaimState, IdempotencyStore, KeyedAnswer
from service.tuning.errors import TuningError

REPLAYED = "Idempotency-Replayed"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_RETRY_AFTER_S = "1"
_RENEWALS_PER_LIFETIME = 4

_log = get_logger(__name__)

AnyRequest = Request[Any, Any, Any]


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """One try at a creating request; a repeated try makes the same ids at the same time."""

    attempt: Attempt

    def identifier(self, kind: str) -> str:
        """Return the id of the one record of this kind that the request makes."""
        seed = self.attempt.entropy + kind.encode()
        entropy = hashlib.sha256(seed).digest()[:ENTROPY_BYTES]
        return time_ordered_id(self.attempt.started_at, entropy=entropy)


def answer_once(
    request: AnyRequest,
    body: bytes,
    *,
    context: Context,
    make: Callable[[Making], Response[bytes]],
) -> Response[bytes]:
    """Return what `make` answers, or what it answered before to the same key and body.

    Raises:
        Refusal: The key is malformed, came with another request, or its first request still runs.
    """
    key = _idempotency_key(request)
    attempt = Attempt(started_at=context.now(), entropy=secrets.token_bytes(ENTROPY_BYTES))
    if key is None:
        return make(Making(attempt=attempt))
    store = IdempotencyStore(context.store, tenant=context.caller.tenant)
    token = secrets.token_hex(16)
    claim = store.claim(key, fingerprint=_fingerprint(request, body), token=token, attempt=attempt)
    if claim.answer is not None:
        return _replay(claim.answer)
    if claim.attempt is None:
        raise _refusal(claim.state)
    making = Making(attempt=claim.attempt)
    return _make(store, key, token=token, make=lambda: make(making))


def _make(
    store: IdempotencyStore, key: str, *, token: str, make: Callable[[], Response[bytes]]
) -> Response[bytes]:
    try:
        with _renewing(store, key, token=token):
            response = make()
            store.complete(key, token=token, answer=_keyed(response))
    except (Refusal, TuningError):
        store.forget(key, token=token)  # refused before anything was made
        raise
    except Exception:
        _release(store, key, token=token)
        raise
    return response


def _release(store: IdempotencyStore, key: str, *, token: str) -> None:
    try:
        store.release(key, token=token)
    except StoreUnavailable:
        _log.warning("idempotency_lock_left")  # it runs out by itself


@contextmanager
def _renewing(store: IdempotencyStore, key: str, *, token: str) -> Iterator[None]:
    """Keep the lock as long as the work takes."""
    done = threading.Event()
    pause_s = keys.IDEMPOTENCY_LOCK_LIFETIME_S / _RENEWALS_PER_LIFETIME

    def renew() -> None:
        while not done.wait(pause_s):
            try:
                store.renew(key, token=token)
            except StoreUnavailable:
                _log.warning("idempotency_lock_not_renewed")

    thread = threading.Thread(target=renew, name="idempotency-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _idempotency_key(request: AnyRequest) -> str | None:
    """Return the key that was given, without the quotes of a structured field."""
    given = request.headers.getall(IDEMPOTENCY_KEY.lower(), [])
    if not given:
        return None
    key = given[0].strip()
    if len(key) > 1 and key.startswith('"') and key.endswith('"'):
        key = key[1:-1]
    if len(given) > 1 or not _KEY.fullmatch(key):
        raise refuse_field(IDEMPOTENCY_KEY, "must be one text of 1 to 255 visible ASCII characters")
    return key


def _fingerprint(request: AnyRequest, body: bytes) -> str:
    """Return what must be the same when a key comes again: method, path and body."""
    digest = hashlib.sha256(f"{request.method} {request.scope['path']}\n".encode())
    digest.update(body)
    return digest.hexdigest()


def _refusal(state: ClaimState) -> Refusal:
    if state is ClaimState.REUSED:
        return Refusal(
            "idempotency-key-reused",
            f"{IDEMPOTENCY_KEY} came with another path or body within the last "
            f"{keys.IDEMPOTENCY_LIFETIME_S // 3600} hours; use a new one.",
        )
    return Refusal(
        "idempotency-in-progress",
        "The first request with this key still runs; retry.",
        Retry_After=_RETRY_AFTER_S,
    )


def _keyed(response: Response[bytes]) -> KeyedAnswer:
    assert response.status_code is not None  # noqa: S101  # creating routes state it
    return KeyedAnswer(
        status=response.status_code,
        headers={name: str(value) for name, value in response.headers.items()},
        media_type=str(response.media_type),
        body=response.content,
    )


def _replay(answer: KeyedAnswer) -> Response[bytes]:
    return Response(
        answer.body,
        status_code=answer.status,
        media_type=answer.media_type,
        headers={**answer.headers, REPLAYED: "true"},
    )
