"""The outermost layer: request ids, limits, security headers, metrics and the access log.

It wraps the whole application, because the framework's own middleware does not see requests that
match no route.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any, Protocol

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPReceiveMessage, Message, Receive, Scope, Send

from service.api.access import caller_in
from service.api.cors import cors_headers
from service.api.limits import HEADERS
from service.api.metrics import Metrics
from service.api.problems import PROBLEM_MEDIA_TYPE, encode_problem
from service.log import get_logger
from service.problems import make_problem
from service.trace_context import parse_traceparent, set_incoming, trace_id_of

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:\-]{1,128}")
_STREAM = re.compile(r"/[^/]+/[^/]+/events")
"""Streams last as long as what they follow, so that they must not take the room of requests."""
_ALWAYS_ADMITTED = frozenset({"/livez", "/readyz", "/metrics"})
_SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PRIVATE = (b"cache-control", b"no-store")

_log = get_logger(__name__)


class Record(Protocol):
    """Keeps what a request did, once it was answered."""

    async def __call__(
        self, request: Mapping[str, Any], *, status: int, location: str | None
    ) -> None:
        """Keep it, or not."""


class Edge:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        record: Record,
        max_concurrent_requests: int,
        cors_origins: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._record = record
        self._cors_origins = cors_origins
        self._limit = max_concurrent_requests
        self._in_flight = {"request": 0, "stream": 0}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on and account for it."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        # A plain dictionary from here on: the framework's types do not allow a changed method.
        request: dict[str, Any] = dict(scope)
        identifier = _take_request_id(request)
        request["state"][HEADERS] = cors_headers(request, self._cors_origins)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=identifier)
        _take_trace_context(request)
        answer = _Answer(send, state=request["state"], without_body=request["method"] == "HEAD")
        method, started = request["method"], time.perf_counter()
        if request["method"] == "HEAD":
            request["method"] = "GET"
        if answer.without_body:
            receive = answer.hang_up_after_start(receive)
        try:
            await self._admit(request, receive, answer)
            await answer.end()
        finally:
            self._account(method, request, answer, time.perf_counter() - started)
        if answer.status is not None:
            await self._record(request, status=answer.status, location=answer.location)

    async def _admit(self, request: dict[str, Any], receive: Receive, answer: "_Answer") -> None:
        if request["path"] in _ALWAYS_ADMITTED:
            await self._app(request, receive, answer)  # type: ignore[arg-type]
            return
        kind = "stream" if _STREAM.fullmatch(request["path"]) else "request"
        if self._in_flight[kind] >= self._limit:
            self._metrics.count_rejected()
            await _answer_busy(request, answer)
            return
        self._count(kind, +1)
        try:
            await self._app(request, receive, answer)  # type: ignore[arg-type]
        finally:
            self._count(kind, -1)

    def _count(self, kind: str, change: int) -> None:
        self._in_flight[kind] += change
        self._metrics.set_in_flight(sum(self._in_flight.values()))

    def _account(
        self, method: str, request: dict[str, Any], answer: "_Answer", seconds: float
    ) -> None:
        route = request.get("path_template") or "unmatched"
        status = answer.status or 499  # the caller went away before an answer
        self._metrics.observe(route=route, method=method, status=status, seconds=seconds)
        _log.info(
            "request",
            method=method,
            path=request["path"],
            status=status,
            caller=caller_in(request["state"]).actor,
            duration_ms=round(seconds * 1000, 1),
        )


class _Answer:
    """Sends an answer on with our headers, and remembers its status."""

    def __init__(self, send: Send, *, state: Mapping[str, Any], without_body: bool) -> None:
        self._send = send
        self._state = state
        self._started = asyncio.Event()
        self._ended = False
        self.without_body = without_body
        self.status: int | None = None
        self.location: str | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self._complete(list(message["headers"]))}
        elif message["type"] == "http.response.body":
            self._ended = not message.get("more_body", False)
            message = {**message, "body": b""} if self.without_body else message
        await self._send(message)
        self._started.set()

    def hang_up_after_start(self, receive: Receive) -> Receive:
        """Return a receive that tells a stream that its reader left once it has its headers."""
        is_read = False

        async def receive_or_hang_up() -> HTTPReceiveMessage:
            nonlocal is_read
            if is_read:
                await self._started.wait()
                return {"type": "http.disconnect"}
            message = await receive()
            is_read = not message.get("more_body", False)
            return message  # type: ignore[return-value]  # no web socket gets here

        return receive_or_hang_up

    async def end(self) -> None:
        """End an answer whose stream was cut off."""
        if self.without_body and self.status is not None and not self._ended:
            await self({"type": "http.response.body", "body": b"", "more_body": False})

    def _complete(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        present = {name.lower(): value for name, value in headers}
        if b"location" in present:
            self.location = present[b"location"].decode("latin-1")
        request_id = self._state["request_id"].encode()
        ours = [*_SECURITY_HEADERS, _PRIVATE, (b"x-request-id", request_id)]
        ours += self._state[HEADERS]
        return headers + [header for header in ours if header[0] not in present]


def _take_request_id(request: dict[str, Any]) -> str:
    """Return the caller's X-Request-Id when it is well-formed, else a new one; remember it."""
    given = next((value for name, value in request["headers"] if name == b"x-request-id"), b"")
    identifier = given.decode() if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)
    request["state"] = {**(request.get("state") or {}), "request_id": identifier}
    return identifier


def _take_trace_context(request: dict[str, Any]) -> None:
    """Remember the caller's trace for what the request starts, and bind its id to all log lines.

    Two headers are none: it would be a guess which one is meant.
    """
    given = [value for name, value in request["headers"] if name == b"traceparent"]
    traceparent = parse_traceparent(given[0].decode("latin-1")) if len(given) == 1 else None
    set_incoming(traceparent)
    if traceparent is not None:
        structlog.contextvars.bind_contextvars(trace_id=trace_id_of(traceparent))


async def _answer_busy(request: dict[str, Any], answer: _Answer) -> None:
    body = encode_problem(
        make_problem(
            "rate-limited",
            "Too many requests are in work; retry after a second.",
            instance=request["path"],
            request_id=request["state"]["request_id"],
        )
    )
    headers = [
        (b"content-type", PROBLEM_MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"1"),
    ]
    await answer({"type": "http.response.start", "status": 429, "headers": headers})
    await answer({"type": "http.response.body", "body": body, "more_body": False})
