"""Webhooks: what was sent to whom, and what came of every try."""

from typing import Literal

from api_schemas.base import Record, Response

DeliveryStatus = Literal["pending", "delivered", "failed"]
"""pending: a try is due now or at `next_attempt_at`; failed: given up, until it is replayed."""
DeliveryOutcome = Literal[
    "delivered",
    "refused",
    "gone",
    "redirect_refused",
    "address_refused",
    "timed_out",
    "unreachable",
    "secret_missing",
    "record_missing",
]
"""delivered: answered 2xx; refused: answered anything else; gone: answered 410, which ends it;
redirect_refused and address_refused: this service did not want to go there; secret_missing: the
process that tried has no secret of that name; record_missing: what it is about was removed."""


class DeliveryAttempt(Record, frozen=True, kw_only=True):
    """One try to deliver a message."""

    number: int
    started_at: str
    latency_ms: float
    """From looking up the host to the answer's status line."""
    outcome: DeliveryOutcome
    status_code: int | None = None
    """What the receiver answered; None when it did not."""
    next_attempt_at: str | None = None
    """When it is tried again after this; None when it is not."""


class WebhookDelivery(Record, frozen=True, kw_only=True):
    """One message to one receiver, with every try so far; its id is the header `webhook-id`."""

    id: str
    validation_id: str | None = None
    """The validation that it tells of."""
    study_id: str | None = None
    """The study that it tells of."""
    event: str
    """Type of the message, such as `validation.succeeded`."""
    url: str
    secret_ref: str
    status: DeliveryStatus
    created_at: str
    next_attempt_at: str | None = None
    """When the next try is due; None is at once while pending, never otherwise."""
    replays: int = 0
    """How often somebody asked to send it again."""
    attempts: list[DeliveryAttempt] = []
    """The tries, oldest first; only the newest hundred are kept."""


class WebhookDeliveryPage(Response, frozen=True, kw_only=True):
    """One page of deliveries, newest first."""

    items: list[WebhookDelivery]
    next_cursor: str | None
