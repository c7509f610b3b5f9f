"""The one table of problems: code to status and title, and how errors become problems.

It knows no web framework: the routes and the command line share it.
"""

import re
from typing import NamedTuple

from api_schemas.problem import FieldError, Problem, ProblemCode
from service.tuning.errors import TuningError


class ProblemKind(NamedTuple):
    """What is the same for every occurrence of a code."""

    status: int
    title: str


PROBLEMS: dict[ProblemCode, ProblemKind] = {
    "invalid-request": ProblemKind(400, "The request is malformed or out of range"),
    "unauthorized": ProblemKind(401, "No valid credentials were given"),
    "forbidden": ProblemKind(403, "The credentials do not allow this"),
    "not-found": ProblemKind(404, "There is no such thing here"),
    "method-not-allowed": ProblemKind(405, "The method is not allowed here"),
    "not-acceptable": ProblemKind(406, "None of the accepted media types can be made"),
    "conflict": ProblemKind(409, "The state does not allow this"),
    "idempotency-in-progress": ProblemKind(409, "The first request with this key still runs"),
    "no-worker": ProblemKind(409, "No worker has the hardware"),
    "precondition-failed": ProblemKind(412, "The record has changed"),
    "too-large": ProblemKind(413, "The body is too large or too deep"),
    "unsupported-media-type": ProblemKind(415, "The media type of the body is not supported"),
    "unknown-model": ProblemKind(422, "The model is not known"),
    "unknown-gpu": ProblemKind(422, "The GPU is not known"),
    "unknown-engine-version": ProblemKind(422, "The vLLM version is not known"),
    "unsupported-architecture": ProblemKind(422, "The model's architecture is not supported"),
    "idempotency-key-reused": ProblemKind(422, "The key was used with another body"),
    "rate-limited": ProblemKind(429, "Too many requests"),
    "internal-error": ProblemKind(500, "A fault of the service"),
    "store-unavailable": ProblemKind(503, "The store cannot be reached"),
}

_MSGSPEC_PATH = re.compile(
    r"^(?P<message>.*?)(?: - at (?:`key` in )?`(?P<path>\$.*)`)?$", re.DOTALL
)
_PATH_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def make_problem(
    code: ProblemCode,
    detail: str,
    *,
    errors: tuple[FieldError, ...] = (),
    instance: str = "",
    request_id: str = "",
) -> Problem:
    """Return the problem of this code with this occurrence's detail."""
    kind = PROBLEMS[code]
    return Problem(
        type=f"/problems/{code}",
        title=kind.title,
        status=kind.status,
        detail=detail,
        instance=instance,
        code=code,
        errors=list(errors),
        request_id=request_id,
    )


def problem_of_tuning_error(
    error: TuningError, *, instance: str = "", request_id: str = ""
) -> Problem:
    """Return the problem that says what the core refused, with the field's pointer."""
    code: ProblemCode = error.code  # type: ignore[assignment]  # every subclass uses a listed code
    errors = (FieldError(pointer=error.pointer, message=error.message),)
    return make_problem(
        code, error.message, errors=errors, instance=instance, request_id=request_id
    )


def field_error_of_validation(message: str) -> FieldError:
    """Return pointer and message of a decoding error's text (`... - at `$.a[0]``)."""
    match = _MSGSPEC_PATH.match(message)
    path = (match["path"] if match else None) or "$"
    found = [name or index for name, index in _PATH_STEP.findall(path[1:])]
    # `[...]` stands for a key that the decoder does not tell: point at what holds it.
    steps = [step for step in found if step != "..."]
    pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if unknown:
        pointer += "/" + unknown[1].replace("~", "~0").replace("/", "~1")
    return FieldError(pointer=pointer, message=match["message"] if match else message)
