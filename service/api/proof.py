"""Starting a validation, on its own or together with the recommendation that it proves."""

import httpx
import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.validation import Validation, ValidationPlan
from service.api.context import Context
from service.api.idempotent import Making
from service.api.problems import Refusal, refuse_field
from service.identifiers import timestamp
from service.queue import (
    NoWorker,
    check_worker,
    device_count,
    enqueue,
    needed_devices,
    queue_of,
)
from service.store.workers import live_nodes
from service.telemetry import current_traceparent
from service.webhooks.addresses import AddressRefused, networks_of, refuse_literal


def check_plan(
    context: Context,
    plan: ValidationPlan,
    *,
    gpu: str,
    config: EngineConfig | msgspec.Raw,
    because: str = "",
    pointer: str = "",
) -> None:
    """Return when a worker can take the plan, or the plan is willing to wait for one.

    `because` says why it takes so many devices, where that is not plain; `pointer` where the plan
    stands in the request.

    Raises:
        Refusal: No live worker can, or its webhook can never be delivered.
    """
    if plan.webhook is not None:
        _check_receiver(context, plan.webhook.url, pointer=f"{pointer}/webhook/url")
    if plan.when_no_worker == "wait":
        return
    try:
        nodes = live_nodes(context.store)
        check_worker(nodes, plan=plan, gpu=gpu, device_count=device_count(config))
    except NoWorker as error:
        detail = f'{error}{because} Or let it wait: "when_no_worker": "wait".'
        raise Refusal("no-worker", detail) from error


def _check_receiver(context: Context, url: str, *, pointer: str) -> None:
    """Return when a receiver may be reached as far as its address says; names are judged later."""
    try:
        host = httpx.URL(url).raw_host.decode("ascii")
    except (httpx.InvalidURL, UnicodeError):
        host = ""
    if not host:
        raise refuse_field(pointer, "the address names no host")
    try:
        refuse_literal(host, allowed=networks_of(context.settings.webhook_networks))
    except AddressRefused:
        message = f"webhooks may not go to {host}: SETPOINT_WEBHOOK_NETWORKS does not allow it"
        raise refuse_field(pointer, message) from None


def start_validation(
    context: Context,
    plan: ValidationPlan,
    *,
    recommendation_id: str,
    gpu: str,
    config: EngineConfig | msgspec.Raw,
    making: Making,
) -> Validation:
    """Store a validation, then hand it to the workers; a crash in between is healed by them.

    One that an earlier try of the same request made is returned as it is.
    """
    identifier = making.identifier("validation")
    made = context.validations.find(identifier)
    if made is not None:
        return made
    validation = Validation(
        id=identifier,
        recommendation_id=recommendation_id,
        mode=plan.mode,
        plan=plan,
        status="queued",
        stage="queued",
        progress=0.0,
        created_at=timestamp(making.attempt.started_at),
        queue=queue_of(plan, gpu=gpu),
        traceparent=current_traceparent(),
    )
    devices = needed_devices(plan, gpu=gpu, config=config)
    context.validations.create(validation, devices=devices)
    enqueue(context.store, validation, devices=devices)
    return validation
