"""Starting a validation, on its own or together with the recommendation that it proves."""

import secrets

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.validation import Validation, ValidationPlan
from service.api.context import Context
from service.api.problems import Refusal
from service.identifiers import ENTROPY_BYTES, time_ordered_id, timestamp
from service.queue import NoWorker, check_worker, device_count, enqueue, queue_of
from service.store.workers import live_nodes


def check_plan(
    context: Context, plan: ValidationPlan, *, gpu: str, config: EngineConfig | msgspec.Raw
) -> None:
    """Return when a worker can take the plan, or the plan is willing to wait for one.

    Raises:
        Refusal: No live worker can.
    """
    if plan.when_no_worker == "wait":
        return
    try:
        nodes = live_nodes(context.store)
        check_worker(nodes, plan=plan, gpu=gpu, device_count=device_count(config))
    except NoWorker as error:
        raise Refusal("no-worker", f'{error} Or let it wait: "when_no_worker": "wait".') from error


def start_validation(
    context: Context, plan: ValidationPlan, *, recommendation_id: str, gpu: str
) -> Validation:
    """Store a validation, then hand it to the workers; a crash in between is healed by them."""
    made_at = context.now()
    validation = Validation(
        id=time_ordered_id(made_at, entropy=secrets.token_bytes(ENTROPY_BYTES)),
        recommendation_id=recommendation_id,
        mode=plan.mode,
        plan=plan,
        status="queued",
        stage="queued",
        progress=0.0,
        created_at=timestamp(made_at),
        queue=queue_of(plan, gpu=gpu),
    )
    context.validations.create(validation)
    enqueue(context.store, validation)
    return validation
