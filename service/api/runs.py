"""What the routes of validations and of studies share: both are runs that workers carry out."""

from typing import Any, Protocol, TypeVar

import msgspec
from litestar import Response

from api_schemas.recommendation import UnderstoodRequest
from service.api.bodies import encode
from service.api.context import Context
from service.api.describe import EVENTS, IDEMPOTENCY_KEY, JSON, Answer, Body, Link, describe
from service.api.idempotent import REPLAYED
from service.api.problems import Refusal, not_found
from service.store.decoding import UnreadableRecord, decode_record
from service.store.events import Event


class Fit(msgspec.Struct, frozen=True):
    """Whether a configuration is expected to start."""

    fits: bool


class Proven(msgspec.Struct, frozen=True):
    """What a run needs of a stored recommendation."""

    request: UnderstoodRequest
    estimate: Fit
    config: msgspec.Raw


class Record(Protocol):
    """A validation or a study."""

    @property
    def status(self) -> str:
        """Where it is."""


_R = TypeVar("_R", bound=Record)
_Found_co = TypeVar("_Found_co", bound=Record, covariant=True)


class Store(Protocol[_Found_co]):
    """Where such records lie."""

    def find(self, identifier: str) -> _Found_co | None:
        """Return a record, or None."""

    def events(self, identifier: str, *, after: str) -> list[Event]:
        """Return what happened to it after an event."""


def describe_start(kind: type[Any], body: Body, *, links: tuple[Link, ...]) -> dict[str, Any]:
    """Return the `opt` of a route that queues a run."""
    return describe(
        Answer(
            202,
            "Stored and queued; follow it under Location.",
            kind=kind,
            headers=("Location", "Retry-After", REPLAYED),
            links=links,
        ),
        body=body,
        problems=("not-found", "conflict", "no-worker", "store-unavailable"),
        request_headers=(IDEMPOTENCY_KEY,),
    )


def describe_record(kind: type[Any], description: str) -> dict[str, Any]:
    """Return the `opt` of a route that shows a run."""
    return describe(
        Answer(200, description, kind=kind, headers=("Retry-After",)),
        problems=("not-found", "store-unavailable"),
    )


def describe_stream(events: dict[str, type[Any]]) -> dict[str, Any]:
    """Return the `opt` of a route that streams what happens to a run, by name of the event."""
    return describe(
        Answer(200, "Server-sent events until its end.", media_types=(EVENTS,), events=events),
        problems=("not-found", "store-unavailable"),
    )


def describe_cancel(kind: type[Any]) -> dict[str, Any]:
    """Return the `opt` of a route that ends a run."""
    return describe(
        Answer(
            202,
            "It is cancelled, or will be within seconds; its record stays to be read.",
            kind=kind,
        ),
        problems=("not-found", "conflict", "store-unavailable"),
    )


def proven_of(context: Context, identifier: str) -> Proven:
    """Return the stored recommendation that a run is about.

    Raises:
        Refusal: There is none, or only one that this release cannot read.
    """
    stored = context.recommendations.find(identifier)
    if stored is None:
        raise not_found("recommendation", identifier)
    try:
        return decode_record(stored.body, Proven)
    except UnreadableRecord:
        message = "The recommendation is of another release, which this one cannot read: ask anew."
        raise Refusal("conflict", message) from None


def find_run(store: Store[_R], identifier: str, *, noun: str) -> _R:
    """Return a record.

    Raises:
        Refusal: There is none.
    """
    record = store.find(identifier)
    if record is None:
        raise not_found(noun, identifier)
    return record


def refuse_ended(record: Record, *, ends: frozenset[str], noun: str) -> None:
    """Return when a run can be cancelled, or is already.

    Raises:
        Refusal: It ended otherwise.
    """
    if record.status in ends and record.status != "cancelled":
        raise Refusal("conflict", f"The {noun} is already {record.status}.")


def queued(record: Record, *, address: str, retry_after_s: str) -> Response[bytes]:
    """Return the answer that says where a queued run can be followed."""
    headers = {"Location": address, "Retry-After": retry_after_s}
    return Response(encode(record), status_code=202, media_type=JSON, headers=headers)


def shown(record: Record, *, ends: frozenset[str], retry_after_s: str) -> Response[bytes]:
    """Return the answer that shows a run, and when to ask again while it goes on."""
    headers = {} if record.status in ends else {"Retry-After": retry_after_s}
    return Response(encode(record), media_type=JSON, headers=headers)


def news_of(
    store: Store[Record], ends: frozenset[str], identifier: str, after: str
) -> tuple[list[Event], bool]:
    """Return new events, and whether none can follow; read in this order, none is missed."""
    record = store.find(identifier)
    is_finished = record is None or record.status in ends
    return store.events(identifier, after=after), is_finished
