"""From any exception to an RFC 9457 problem on the wire."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from api_schemas.problem import FieldError, Problem, ProblemCode
from service.log import get_logger
from service.problems import PROBLEMS, make_problem, problem_of_tuning_error
from service.store.client import StoreUnavailable
from service.tuning.errors import TuningError

PROBLEM_MEDIA_TYPE = "application/problem+json"
_RETRY_AFTER_S = "1"
_CODE_BY_STATUS: Mapping[int, ProblemCode] = {
    400: "invalid-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    413: "too-large",
    415: "unsupported-media-type",
    429: "rate-limited",
}
_PATH_OF_PARAMETER = re.compile(r" - at `\$\.?.*`$")

_log = get_logger(__name__)


class Refusal(Exception):
    """A request that a route will not carry out, with the problem's code."""

    def __init__(
        self, code: ProblemCode, detail: str, *, errors: Sequence[FieldError] = (), **headers: str
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def refuse_field(pointer: str, message: str) -> Refusal:
    """Return the refusal of one value: a JSON pointer, or the name of a parameter."""
    error = FieldError(pointer=pointer, message=message)
    return Refusal("invalid-request", f"{pointer or 'the body'}: {message}", errors=[error])


def not_found(kind: str, name: str, *, hint: str = "") -> Refusal:
    """Return the refusal of a name that nothing has."""
    first = hint.split(" ", 1)[0]
    # A name such as vLLM keeps its letters.
    sentence = hint[:1].upper() + hint[1:] if first.islower() else hint
    return Refusal("not-found", f"There is no {kind} {name!r}. {sentence}".rstrip())


def problem_response(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the problem for an exception; the only way an error leaves the service."""
    problem = _problem(error, instance=_instance(request), request_id=request_id(request.scope))
    if problem.code == "internal-error":
        _log.error("request_failed", path=request.url.path, exc_info=error)
    if problem.code == "store-unavailable":
        request.app.state.context.metrics.count_store_error()
    return Response(
        content=encode_problem(problem),
        status_code=problem.status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers=_headers(error),
    )


def with_implied_methods(allow: str) -> str:
    """Return the methods of an Allow header with those that need no handler of their own."""
    methods = {method.strip() for method in allow.split(",")} | {"OPTIONS"}
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))


def encode_problem(problem: Problem) -> bytes:
    """Return the problem as it goes over the wire."""
    return msgspec.json.encode(problem)


def request_id(scope: Mapping[str, Any]) -> str:
    """Return the id that the edge gave this request."""
    return str(scope.get("state", {}).get("request_id", ""))


def _instance(request: Request[Any, Any, Any]) -> str:
    return quote(request.scope["path"], safe="/:@!$&'()*+,;=~-._")


def _problem(error: Exception, *, instance: str, request_id: str) -> Problem:
    match error:
        case TuningError():
            return problem_of_tuning_error(error, instance=instance, request_id=request_id)
        case Refusal():
            code, detail, errors = error.code, error.detail, error.errors
        case StoreUnavailable():
            code, detail, errors = "store-unavailable", "The store does not answer; retry.", ()
        case HTTPException() if error.status_code in _CODE_BY_STATUS:
            code = _CODE_BY_STATUS[error.status_code]
            errors = _parameter_errors(error)
            detail = _http_detail(error, code=code, errors=errors)
        case _:
            code, detail, errors = "internal-error", "The fault was logged.", ()
    return make_problem(code, detail, errors=errors, instance=instance, request_id=request_id)


def _http_detail(error: HTTPException, *, code: ProblemCode, errors: tuple[FieldError, ...]) -> str:
    if errors:
        return "; ".join(f"{item.pointer}: {item.message}" for item in errors)
    if code == "not-found":
        return "Nothing is served at this path; GET /openapi.json lists what is."
    if code == "too-large":
        return "The body is larger than SETPOINT_MAX_BODY_BYTES allows."
    if code == "method-not-allowed":
        return f"Allowed are {with_implied_methods((error.headers or {}).get('allow', ''))}."
    return f"{PROBLEMS[code].title}."


def _parameter_errors(error: HTTPException) -> tuple[FieldError, ...]:
    """Return name and message of each parameter that the framework refused."""
    if not isinstance(error.extra, list):
        return ()
    return tuple(
        FieldError(
            pointer=str(item.get("key", "")),
            message=_PATH_OF_PARAMETER.sub("", str(item.get("message", "refused"))),
        )
        for item in error.extra
        if isinstance(item, dict)
    )


def _headers(error: Exception) -> dict[str, str]:
    if isinstance(error, Refusal):
        return error.headers
    if isinstance(error, StoreUnavailable):
        return {"Retry-After": _RETRY_AFTER_S}
    if isinstance(error, HTTPException) and error.headers:
        allow = error.headers.get("allow", "")
        return {"Allow": with_implied_methods(allow)} if allow else {}
    return {}
