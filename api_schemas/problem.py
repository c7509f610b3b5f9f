"""RFC 9457 problems."""

from typing import Literal

from api_schemas.base import Response

ProblemCode = Literal[
    "invalid-request",
    "unauthorized",
    "forbidden",
    "not-found",
    "method-not-allowed",
    "not-acceptable",
    "conflict",
    "idempotency-in-progress",
    "no-worker",
    "precondition-failed",
    "too-large",
    "unsupported-media-type",
    "unknown-model",
    "unknown-gpu",
    "unknown-engine-version",
    "unsupported-architecture",
    "idempotency-key-reused",
    "rate-limited",
    "internal-error",
    "store-unavailable",
]


class FieldError(Response, frozen=True, kw_only=True):
    """One mistake: a JSON pointer into the body (or the parameter's name) and what is wrong."""

    pointer: str
    message: str


class Problem(Response, frozen=True, kw_only=True):
    """What went wrong, for programs and people."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: ProblemCode
    errors: list[FieldError]
    request_id: str
