"""What a route says of itself: the guards enforce it and the OpenAPI document prints it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from api_schemas.problem import ProblemCode

JSON = "application/json"
MARKDOWN = "text/markdown"
TEXT = "text/plain"
EVENTS = "text/event-stream"

IDEMPOTENCY_KEY = "Idempotency-Key"
OF_TUNING: tuple[ProblemCode, ...] = (
    "unknown-model",
    "unknown-gpu",
    "unknown-engine-version",
    "unsupported-architecture",
)
"""Problems of requests that name model, hardware and release."""
_OF_BODIES: tuple[ProblemCode, ...] = ("too-large", "unsupported-media-type")
_OF_IDEMPOTENCY_KEYS: tuple[ProblemCode, ...] = (
    "idempotency-in-progress",
    "idempotency-key-reused",
)

Example = Callable[[], Any]
"""Makes an example when the document is asked for, so that it is never out of date."""


class Link(NamedTuple):
    """An operation that an answer leads to."""

    operation: str
    takes: str
    """Name of its parameter."""
    place: str
    """Where the parameter's value is in the body of the answer."""


def leads_to(*operations: str, takes: str, place: str = "/id") -> tuple[Link, ...]:
    """Return the links of an answer to operations that take the same parameter."""
    return tuple(Link(operation, takes, place) for operation in operations)


class Answer(NamedTuple):
    """One successful answer of a route."""

    status: int
    description: str
    media_types: tuple[str, ...] = (JSON,)
    kind: Any = None
    """Type of the JSON body; None when there is none or it is a plain object."""
    events: dict[str, type[Any]] = {}  # noqa: RUF012  # of a tuple: never changed
    """Of a stream of events: by name what the JSON in `data` is."""
    headers: tuple[str, ...] = ()
    """Names of headers that the document explains."""
    example: Example | None = None
    links: tuple[Link, ...] = ()


class Body(NamedTuple):
    """The JSON body that a route takes."""

    kind: type[Any]
    description: str
    examples: dict[str, Example]


class Description(NamedTuple):
    """All that the document adds to a route's signature."""

    answers: tuple[Answer, ...]
    body: Body | None = None
    problems: tuple[ProblemCode, ...] = ()
    request_headers: tuple[str, ...] = ()

    @property
    def media_types(self) -> tuple[str, ...]:
        """Everything that the route can answer."""
        found = [name for answer in self.answers for name in answer.media_types]
        return tuple(dict.fromkeys(found))


KEY = "description"


def describe(
    *answers: Answer,
    body: Body | None = None,
    problems: tuple[ProblemCode, ...] = (),
    request_headers: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the `opt` of a route that answers so.

    What every route with a body refuses, or with an idempotency key, goes without saying.
    """
    implied = _OF_BODIES if body is not None else ()
    if IDEMPOTENCY_KEY in request_headers:
        implied += _OF_IDEMPOTENCY_KEYS
    description = Description(
        answers=answers,
        body=body,
        problems=(*problems, *implied),
        request_headers=request_headers,
    )
    return {KEY: description}
