"""Clients of older revisions at `/mcp`: their messages in the words of the newest one, and back.

The library speaks the newest revision alone, whose every request says what the older ones agreed
on once, in a handshake. As they need no session, nothing is kept between messages here either.
What goes in and out passes the guards, limits and the trail like any other message.
"""

import base64
from typing import Any

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from litestar_mcp.core.jsonrpc import INVALID_PARAMS
from litestar_mcp.mcp.routes import HEADER_MISMATCH, MCP_PROTOCOL_VERSION
from msgspec import UNSET, Raw, UnsetType

from service.api.bodies import refuse_repeated_keys
from service.api.problems import Refusal

OLDER = ("2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions with Streamable HTTP and a handshake, oldest first."""
_PREFIX = "io.modelcontextprotocol/"
_SUBJECTS = {"tools/call": "name", "resources/read": "uri", "prompts/get": "name"}
"""By method the parameter that the newest revision wants in a header too."""
_DISCOVER = "server/discover"
_WITHOUT_COUNTERPART = frozenset({"initialize", "ping"})
_JSON = b"application/json"
_CHANGED = frozenset({b"content-length", b"mcp-protocol-version"})

Json = dict[str, Any]


class _Message(msgspec.Struct):
    """A message as a client sends it."""

    jsonrpc: str
    method: str | UnsetType = UNSET
    id: str | int | UnsetType = UNSET
    params: dict[str, Raw] | UnsetType = UNSET


class OlderRevisions:
    """An ASGI application around another one that speaks the newest revision at a path."""

    def __init__(self, app: ASGIApp, *, path: str, max_body_bytes: int) -> None:
        self._app = app
        self._path = path
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on: an older message in new words, and its answer in old ones."""
        if not self._may_be_older(scope):
            await self._app(scope, receive, send)
            return
        body, again = await _read(receive, most_bytes=self._max_body_bytes)
        message = None if body is None else _older_message(body)
        if message is None:
            await self._app(scope, again, send)
            return
        newer = _in_new_words(message)
        told = msgspec.json.encode(newer)
        kept = [(name, value) for name, value in scope["headers"] if name not in _CHANGED]
        scope["headers"] = [*kept, *_headers_of(newer, told)]
        await self._app(scope, _told(told, receive), _Answer(send, message))

    def _may_be_older(self, scope: Scope) -> bool:
        if scope["type"] != ScopeType.HTTP or scope["path"].rstrip("/") != self._path:
            return False
        headers = dict(scope["headers"])
        version = headers.get(b"mcp-protocol-version", b"").decode("latin-1").strip()
        is_named = b"mcp-method" in headers
        return scope["method"] == "POST" and not is_named and version in {"", *OLDER}


class _Answer:
    """Sends an answer on, in the words of the revision that was asked in."""

    def __init__(self, send: Send, asked: _Message) -> None:
        self._send = send
        self._asked = asked
        self._start: Any = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(n, v) for n, v in message["headers"] if n.lower() not in _CHANGED]
            is_json = dict(headers).get(b"content-type", b"").startswith(_JSON)
            if is_json:
                self._start = {**message, "headers": headers}
                return
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_whole()
            return
        await self._send(message)

    async def _send_whole(self) -> None:
        status, body = _in_old_words(self._asked, self._start["status"], self._body)
        length = (b"content-length", str(len(body)).encode())
        headers = [*self._start["headers"], length]
        start: Any = {**self._start, "status": status, "headers": headers}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


async def _read(receive: Receive, *, most_bytes: int) -> tuple[bytes | None, Receive]:
    """Return a body, and a receive that tells it again; no body when it is too large or broken off.

    Whoever receives then finds out what is wrong.
    """
    messages: list[Any] = []
    size = 0
    while size <= most_bytes:
        message: Any = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            break
    is_whole = messages[-1]["type"] == "http.request" and not messages[-1].get("more_body", False)
    body = b"".join(message.get("body", b"") for message in messages) if is_whole else None
    return body, _again(messages, receive)


def _again(messages: list[Any], receive: Receive) -> Receive:
    left = iter(messages)

    async def receive_again() -> Any:  # noqa: ANN401  # what was received
        for message in left:
            return message
        return await receive()

    return receive_again


def _told(body: bytes, receive: Receive) -> Receive:
    """Return a receive that tells a whole body instead of the one that was read."""
    return _again([{"type": "http.request", "body": body, "more_body": False}], receive)


def _older_message(body: bytes) -> _Message | None:
    """Return the message of an older revision, or None when it is another's or none at all."""
    try:
        message = msgspec.json.decode(body, type=_Message)
        meta = _meta_of(message)
        refuse_repeated_keys(body)
    except (msgspec.DecodeError, ValueError, RecursionError, Refusal):
        return None
    return None if f"{_PREFIX}protocolVersion" in meta or message.jsonrpc != "2.0" else message


def _in_new_words(message: _Message) -> Json:
    """Return the message to send on; what has no counterpart only has to pass the guards."""
    wants_answer = message.id is not UNSET and message.method is not UNSET
    is_kept = wants_answer and message.method not in _WITHOUT_COUNTERPART
    meta = {
        **_meta_of(message),
        f"{_PREFIX}protocolVersion": MCP_PROTOCOL_VERSION,
        f"{_PREFIX}clientCapabilities": {},
    }
    return {
        "jsonrpc": "2.0",
        "id": message.id if wants_answer else 0,
        "method": message.method if is_kept else _DISCOVER,
        "params": {**(_params_of(message) if is_kept else {}), "_meta": meta},
    }


def _headers_of(newer: Json, body: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers that the newest revision wants beside its messages."""
    method = str(newer["method"])
    headers = [
        (b"content-length", str(len(body)).encode()),
        (b"mcp-protocol-version", MCP_PROTOCOL_VERSION.encode()),
        (b"mcp-method", method.encode("latin-1", "replace")),
    ]
    subject = newer["params"].get(_SUBJECTS.get(method))
    if subject is not None:
        name = str(msgspec.json.decode(subject))
        headers.append((b"mcp-name", b"=?base64?%s?=" % base64.b64encode(name.encode())))
    return headers


def _in_old_words(asked: _Message, status: int, body: bytes) -> tuple[int, bytes]:
    """Return status and body of an answer as the older revisions have them.

    There an error of the protocol is an answer with 200; other statuses tell of the transport.
    """
    answer = msgspec.json.decode(body, type=dict[str, Raw])
    if "error" in answer:
        return 200, msgspec.json.encode({**answer, "error": _mistake(asked, answer["error"])})
    if "result" not in answer:
        return status, body
    if asked.method is UNSET or asked.id is UNSET:
        return 202, b""
    if asked.method == "ping":
        return status, msgspec.json.encode({**answer, "result": {}})
    if asked.method == "initialize":
        return status, msgspec.json.encode({**answer, "result": _greeting(asked, answer["result"])})
    return status, body


def _mistake(asked: _Message, error: Raw) -> Json:
    """Return an error; a header that is missing stands for a parameter of the older message."""
    found: Json = msgspec.json.decode(error)
    subject = _SUBJECTS.get(str(asked.method))
    if found["code"] != HEADER_MISMATCH or subject is None:
        return found
    return {"code": INVALID_PARAMS, "message": f"Missing or invalid params.{subject}"}


def _greeting(asked: _Message, discovered: Raw) -> Json:
    """Return what the handshake agrees on; nobody listens for changes, so none are announced."""
    found = msgspec.json.decode(discovered)
    wanted = msgspec.json.decode(_params_of(asked).get("protocolVersion", Raw(b"null")))
    return {
        "protocolVersion": wanted if wanted in OLDER else OLDER[-1],
        "capabilities": {name: {} for name in found["capabilities"]},
        "serverInfo": found["_meta"][f"{_PREFIX}serverInfo"],
        "instructions": found["instructions"],
    }


def _params_of(message: _Message) -> dict[str, Raw]:
    return {} if message.params is UNSET else message.params


def _meta_of(message: _Message) -> dict[str, Raw]:
    meta = _params_of(message).get("_meta")
    return {} if meta is None else msgspec.json.decode(meta, type=dict[str, Raw])
