"""Proof: validations of a recommendation on real hardware, and the workers that run them."""

import asyncio
from functools import partial
from typing import Annotated, Any

from litestar import Request, Response, delete, get, post
from litestar.openapi.spec import Example
from litestar.params import PathParameter, QueryParameter, RawBody
from litestar.response import Stream

from api_schemas.event import ValidationChange
from api_schemas.validation import TERMINAL, LoadPoint, Validation, ValidationPlan
from api_schemas.worker import WorkerList
from service.api import examples
from service.api.bodies import encode, read_body
from service.api.context import Context, InjectedContext
from service.api.describe import JSON, Answer, Body, describe, leads_to
from service.api.event_stream import LastEventId, stream_of
from service.api.idempotent import Making, answer_once
from service.api.limits import reserve_gpu_minutes
from service.api.problems import Refusal
from service.api.proof import check_plan, start_validation
from service.api.recommendations import RecommendationId
from service.api.runs import (
    describe_cancel,
    describe_record,
    describe_start,
    describe_stream,
    find_run,
    news_of,
    proven_of,
    queued,
    refuse_ended,
    shown,
)
from service.identifiers import timestamp
from service.measured import address_of
from service.store.queues import queue_states
from service.store.validations import ValidationStore
from service.store.workers import live_nodes

RETRY_AFTER_S = "5"
_POLL_S = 0.25
_MAX_WAIT_S = 60

ValidationId = Annotated[
    str,
    PathParameter(
        max_length=64,
        description="Id of a validation.",
        examples=[Example(value=examples.VALIDATION_ID)],
    ),
]


@post(
    "/recommendations/{recommendation_id:str}/validations",
    operation_id="createValidation",
    summary="Prove a recommendation on real hardware",
    tags=["proof"],
    sync_to_thread=True,
    status_code=202,
    opt=describe_start(
        Validation,
        Body(
            ValidationPlan,
            "How it is to be proven.",
            {"one load point": examples.validation_plan},
        ),
        links=leads_to(
            "getValidation", "followValidation", "cancelValidation", takes="validation_id"
        ),
    ),
)
def create_validation(
    recommendation_id: RecommendationId,
    body: RawBody,
    request: Request[Any, Any, Any],
    context: InjectedContext,
) -> Response[bytes]:
    """Start vLLM with the recommended command on a worker, load it with the asked workload, and
    attach what was measured.

    Without a worker that has the hardware this is refused, unless the plan says to wait. What is
    expected to miss its targets can be measured too, as long as it fits.
    """  # noqa: D205  # one sentence
    plan = read_body(body, ValidationPlan)
    return answer_once(
        request,
        body,
        context=context,
        make=lambda making: _create(context, plan, recommendation_id, making),
    )


@get(
    "/validations/{validation_id:str}",
    operation_id="getValidation",
    summary="Show a validation",
    tags=["proof"],
    opt=describe_record(Validation, "The record as far as it is."),
)
async def get_validation(
    validation_id: ValidationId,
    context: InjectedContext,
    wait: Annotated[
        int,
        QueryParameter(
            ge=0, le=_MAX_WAIT_S, description="Seconds to wait for its end before answering."
        ),
    ] = 0,
) -> Response[bytes]:
    """Return status, progress, load points so far and, at the end, the verdict."""
    deadline = asyncio.get_running_loop().time() + wait
    while True:
        validation = await asyncio.to_thread(_find, context.validations, validation_id)
        if validation.status in TERMINAL or asyncio.get_running_loop().time() >= deadline:
            break
        await asyncio.sleep(_POLL_S)
    return shown(validation, ends=TERMINAL, retry_after_s=RETRY_AFTER_S)


@get(
    "/validations/{validation_id:str}/events",
    operation_id="followValidation",
    summary="Follow a validation",
    tags=["proof"],
    opt=describe_stream({"status": ValidationChange, "load_point": LoadPoint}),
)
async def follow_validation(
    validation_id: ValidationId,
    context: InjectedContext,
    last_event_id: LastEventId = None,
) -> Stream:
    """Stream states and load points as they come; `Last-Event-ID` resumes after that event."""
    await asyncio.to_thread(_find, context.validations, validation_id)
    news = partial(news_of, context.validations, TERMINAL, validation_id)
    return stream_of(news, after=last_event_id)


@delete(
    "/validations/{validation_id:str}",
    operation_id="cancelValidation",
    summary="Cancel a validation",
    tags=["proof"],
    sync_to_thread=True,
    status_code=202,
    opt=describe_cancel(Validation),
)
def cancel_validation(validation_id: ValidationId, context: InjectedContext) -> Response[bytes]:
    """End it at whatever stage it is; asking again changes nothing."""
    store = context.validations
    validation = _find(store, validation_id)
    refuse_ended(validation, ends=TERMINAL, noun="validation")
    store.request_cancel(validation_id)
    if not store.is_claimed(validation_id):
        at = timestamp(context.now())
        store.change(
            validation_id,
            attempt=validation.attempt,
            to="cancelled",
            stage="cancelled",
            progress=1.0,
            finished_at=at,
        )
    return Response(encode(_find(store, validation_id)), status_code=202, media_type=JSON)


@get(
    "/workers",
    operation_id="listWorkers",
    summary="List the nodes that can prove a recommendation",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "Nodes with a live heartbeat, and queues.", kind=WorkerList),
        problems=("store-unavailable",),
    ),
)
def list_workers(context: InjectedContext) -> Response[bytes]:
    """Return each live node with its devices and vLLM environments, and how long queues are."""
    nodes = live_nodes(context.store)
    listed = [queue for node in nodes for queue in node.queues]
    queues = queue_states(context.store, listed=listed, now=context.now())
    return Response(encode(WorkerList(items=nodes, queues=queues)), media_type=JSON)


def _create(
    context: Context, plan: ValidationPlan, recommendation_id: str, making: Making
) -> Response[bytes]:
    proven = proven_of(context, recommendation_id)
    gpu = proven.request.hardware.gpu
    if not proven.estimate.fits:
        raise Refusal("conflict", "Nothing that was found fits: there is nothing to start.")
    check_plan(context, plan, gpu=gpu, config=proven.config)
    reserve_gpu_minutes(context, plan, config=proven.config)
    validation = start_validation(
        context,
        plan,
        recommendation_id=recommendation_id,
        gpu=gpu,
        config=proven.config,
        making=making,
    )
    return queued(validation, address=address_of(validation.id), retry_after_s=RETRY_AFTER_S)


def _find(store: ValidationStore, identifier: str) -> Validation:
    return find_run(store, identifier, noun="validation")
