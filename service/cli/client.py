"""Asking a running service instead of the core in this process."""

from typing import TypeVar

import httpx
import msgspec

from api_schemas.problem import Problem
from service.cli.documents import Refused
from service.settings import api_key

T = TypeVar("T")
_TIMEOUT_S = 60.0


class Unreachable(Exception):
    """The service did not answer, or answered something that is not its contract."""


def post(server: str, path: str, body: msgspec.Struct, kind: type[T]) -> T:
    """Return the service's answer to a POST."""
    return _answer(
        server,
        httpx.Request(
            "POST",
            server.rstrip("/") + path,
            content=msgspec.json.encode(body),
            headers={"content-type": "application/json", "accept": "application/json"},
        ),
        kind,
    )


def get(server: str, path: str, kind: type[T], **query: str | int | None) -> T:
    """Return the service's answer to a GET; of the query, what is None is left out."""
    asked = {name: value for name, value in query.items() if value is not None}
    url = httpx.URL(server.rstrip("/") + path, params=asked)
    return _answer(server, httpx.Request("GET", url), kind)


def _answer(server: str, request: httpx.Request, kind: type[T]) -> T:
    secret = api_key()
    if secret is not None:
        request.headers["authorization"] = f"Bearer {secret}"
    try:
        with httpx.Client(timeout=_TIMEOUT_S) as client:
            response = client.send(request)
    except httpx.HTTPError as error:
        raise Unreachable(f"{server} cannot be reached: {error}") from error
    try:
        if response.is_success:
            return msgspec.json.decode(response.content, type=kind)
        problem = msgspec.json.decode(response.content, type=Problem)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"{server} answered {response.status_code}, not as expected") from error
    if response.is_server_error:
        raise Unreachable(f"{server}: {problem.detail}")
    raise Refused(problem)
