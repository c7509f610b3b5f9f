"""Studies: a search over settings on real hardware."""

from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.openapi.spec import Example
from litestar.params import PathParameter, RawBody
from litestar.response import Stream

from api_schemas.engine import EngineConfig
from api_schemas.event import StudyChange
from api_schemas.study import (
    STUDY_ENDS,
    Study,
    StudyPage,
    StudyRequest,
    StudySummary,
    StudyTrial,
)
from service.api import examples
from service.api.bodies import encode, read_body
from service.api.context import Context, InjectedContext
from service.api.describe import JSON, Answer, Body, describe, leads_to
from service.api.event_stream import LastEventId, stream_of
from service.api.idempotent import Making, answer_once
from service.api.limits import reserve_gpu_minutes
from service.api.paging import PageCursor, PageSize, next_link, position_of
from service.api.proof import check_plan
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
from service.measured import address_of_study
from service.queue import needed_devices
from service.store.cursor import encode_cursor
from service.studies import end_study, plan_of, start_study
from service.tuning.engine.versions import parse_version
from service.tuning.studies.space import PARALLEL_SIZES, check_space, largest_layout

RETRY_AFTER_S = "30"

StudyId = Annotated[
    str,
    PathParameter(
        max_length=64,
        description="Id of a study.",
        examples=[Example(value=examples.STUDY_ID)],
    ),
]


@post(
    "/studies",
    operation_id="createStudy",
    summary="Search for better settings on real hardware",
    tags=["proof"],
    sync_to_thread=True,
    status_code=202,
    opt=describe_start(
        Study,
        Body(
            StudyRequest,
            "A recommendation to start from, the settings that may vary, and a budget.",
            {"two settings, twelve trials": examples.study_request},
        ),
        links=leads_to("getStudy", "followStudy", "cancelStudy", takes="study_id"),
    ),
)
def create_study(
    body: RawBody, request: Request[Any, Any, Any], context: InjectedContext
) -> Response[bytes]:
    """Try configurations on a worker until the best one that meets the targets is known.

    vLLM's defaults and the recommendation are measured first, then what the model expects most of,
    then what a tree-structured Parzen estimator proposes with the targets as constraints. What
    cannot start or win is not measured; what fails keeps its reason. The study leases as many
    GPUs at its start as its largest layout takes.
    """
    asked = read_body(body, StudyRequest)
    return answer_once(
        request, body, context=context, make=lambda making: _create(context, asked, making)
    )


@get(
    "/studies",
    operation_id="listStudies",
    summary="List studies",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "One page, newest first.", kind=StudyPage, headers=("Link",)),
        problems=("store-unavailable",),
    ),
)
def list_studies(
    *,
    context: InjectedContext,
    cursor: PageCursor = None,
    limit: PageSize = 50,
) -> Response[bytes]:
    """Return studies with their state, newest first."""
    studies, last_id = context.studies.page(limit=limit, after=position_of(cursor))
    following = encode_cursor(last_id) if last_id else None
    answer = StudyPage(items=[_row(study) for study in studies], next_cursor=following)
    headers = next_link("/studies", {"limit": limit}, following)
    return Response(encode(answer), media_type=JSON, headers=headers)


@get(
    "/studies/{study_id:str}",
    operation_id="getStudy",
    summary="Show a study",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe_record(Study, "The study as far as it is."),
)
def get_study(study_id: StudyId, context: InjectedContext) -> Response[bytes]:
    """Return its trials so far, the best one that meets the targets, and the Pareto front."""
    return shown(_find(context, study_id), ends=STUDY_ENDS, retry_after_s=RETRY_AFTER_S)


@get(
    "/studies/{study_id:str}/events",
    operation_id="followStudy",
    summary="Follow a study",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe_stream({"status": StudyChange, "trial": StudyTrial}),
)
def follow_study(
    study_id: StudyId, context: InjectedContext, last_event_id: LastEventId = None
) -> Stream:
    """Stream states and trials as they come; `Last-Event-ID` resumes after that event."""
    _find(context, study_id)
    news = partial(news_of, context.studies, STUDY_ENDS, study_id)
    return stream_of(news, after=last_event_id)


@delete(
    "/studies/{study_id:str}",
    operation_id="cancelStudy",
    summary="Cancel a study",
    tags=["proof"],
    sync_to_thread=True,
    status_code=202,
    opt=describe_cancel(Study),
)
def cancel_study(study_id: StudyId, context: InjectedContext) -> Response[bytes]:
    """End it at whatever trial it is; its trials stay, and asking again changes nothing."""
    study = _find(context, study_id)
    refuse_ended(study, ends=STUDY_ENDS, noun="study")
    context.studies.request_cancel(study_id)
    if not context.studies.is_claimed(study_id):
        end_study(context.studies, study, now=context.now())
    return Response(encode(_find(context, study_id)), status_code=202, media_type=JSON)


def _create(context: Context, request: StudyRequest, making: Making) -> Response[bytes]:
    proven = proven_of(context, request.recommendation_id)
    check_space(request.space, version=parse_version(proven.request.engine.version))
    gpu = proven.request.hardware.gpu
    plan = plan_of(request)
    recommended = msgspec.json.decode(proven.config, type=EngineConfig)
    largest = largest_layout(recommended, request.space)
    check_plan(context, plan, gpu=gpu, config=largest, because=_why_so_many(largest, request))
    reserve_gpu_minutes(context, plan, config=largest)
    study = start_study(
        context.store,
        context.studies,
        request,
        identifier=making.identifier("study"),
        gpu=gpu,
        devices=needed_devices(plan, gpu=gpu, config=largest),
        at=making.attempt.started_at,
    )
    return queued(study, address=address_of_study(study.id), retry_after_s=RETRY_AFTER_S)


def _why_so_many(largest: EngineConfig, request: StudyRequest) -> str:
    sizes = [
        f"{name} {getattr(largest, name) or 1}" for name in PARALLEL_SIZES if name in request.space
    ]
    return f" The space's largest layout takes them: {', '.join(sizes)}." if sizes else ""


def _find(context: Context, identifier: str) -> Study:
    return find_run(context.studies, identifier, noun="study")


def _row(study: Study) -> StudySummary:
    return StudySummary(
        id=study.id,
        created_at=study.created_at,
        recommendation_id=study.request.recommendation_id,
        status=study.status,
        progress=study.progress,
        trials=len(study.trials),
        best=study.best,
        url=address_of_study(study.id),
    )
