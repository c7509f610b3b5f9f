"""Proof: what a validation measures."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Name, Value

ValidationMode = Literal["boot", "quick", "knee", "compare", "soak"]


class QueueChoice(Value, frozen=True, kw_only=True):
    """Where a validation may run."""

    node: Name | None = None
    gpu: Name | None = None


class Webhook(Value, frozen=True, kw_only=True):
    """Where the outcome is sent, signed with the secret that is stored under this name."""

    url: Annotated[str, Meta(min_length=8, max_length=2048, pattern=r"^https?://")]
    secret_ref: Name


class ValidationPlan(Value, frozen=True, kw_only=True):
    """How a recommendation is to be proven on real hardware."""

    mode: ValidationMode
    max_minutes: Annotated[float, Meta(gt=0, le=24 * 60)] = 10
    queue: QueueChoice | None = None
    model_path: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    webhook: Webhook | None = None
    when_no_worker: Literal["reject", "wait"] = "reject"
