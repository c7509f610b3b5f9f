"""Advice: `POST /recommendations`, and what was stored of it."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.openapi.spec import Example
from litestar.params import PathParameter, QueryParameter, RawBody
from msgspec import Meta

from api_schemas.recommendation import (
    Advice,
    Recommendation,
    RecommendationPage,
    RecommendationSummary,
    RenderedFile,
    TuningRequest,
)
from service.advice import as_recommendation
from service.api import examples
from service.api.access import require
from service.api.bodies import encode, read_body
from service.api.context import Context, InjectedContext
from service.api.describe import (
    IDEMPOTENCY_KEY,
    JSON,
    MARKDOWN,
    OF_TUNING,
    Answer,
    Body,
    describe,
    leads_to,
)
from service.api.entity_tags import entity_tag, is_current
from service.api.idempotent import REPLAYED, Making, answer_once
from service.api.limits import reserve_gpu_minutes
from service.api.negotiation import choose_media_type
from service.api.paging import GpuFilter, ModelFilter, PageCursor, PageSize, next_link, position_of
from service.api.problems import not_found
from service.api.proof import check_plan, start_validation
from service.identifiers import timestamp
from service.measured import with_validations
from service.store.cursor import encode_cursor
from service.store.recommendations import Filters, RecommendationRecord, StoredBody
from service.tuning.hardware.catalogue import catalogue_name

DECISION_FILE = "DECISION.md"
_ANY_FILE = "application/octet-stream"

RecommendationId = Annotated[
    str,
    PathParameter(
        max_length=64,
        description="Id that POST /recommendations answered.",
        examples=[Example(value=examples.RECOMMENDATION_ID)],
    ),
]


class _Files(msgspec.Struct):
    files: list[RenderedFile]


@post(
    "/recommendations",
    operation_id="createRecommendation",
    summary="Ask for launch settings",
    tags=["advice"],
    sync_to_thread=True,
    opt=describe(
        Answer(
            201,
            "The recommendation, stored under its id.",
            kind=Recommendation,
            headers=("Location", "ETag", REPLAYED),
            example=examples.recommendation,
            links=leads_to(
                "getRecommendation",
                "getRecommendationFile",
                "createValidation",
                "deleteRecommendation",
                takes="recommendation_id",
            ),
        ),
        body=Body(
            TuningRequest,
            "Model, hardware, load and targets.",
            {"chat with two targets": examples.tuning_request},
        ),
        problems=(*OF_TUNING, "no-worker", "store-unavailable"),
        request_headers=(IDEMPOTENCY_KEY,),
    ),
)
def create_recommendation(
    body: RawBody, request: Request[Any, Any, Any], context: InjectedContext
) -> Response[bytes]:
    """Choose launch settings with a reason for each, predict them, render files, and store it all.

    A request that no configuration can meet is answered too: `feasible` is false, `binding` names
    the constraint and `nearest` the nearest change that would do. With a `validation` the answer is
    proven on a worker as well, when it fits.
    """
    asked = read_body(body, TuningRequest)
    if asked.validation is not None:
        require(context.caller, "validate")
    return answer_once(
        request, body, context=context, make=lambda making: _create(context, asked, making)
    )


@get(
    "/recommendations",
    operation_id="listRecommendations",
    summary="List stored recommendations",
    tags=["advice"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "One page, newest first.", kind=RecommendationPage, headers=("Link",)),
        problems=("store-unavailable",),
    ),
)
def list_recommendations(
    *,
    context: InjectedContext,
    model: ModelFilter = None,
    gpu: GpuFilter = None,
    label: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=321)]] | None,
        QueryParameter(max_items=16, description="`name` or `name=value`; several must all match."),
    ] = None,
    cursor: PageCursor = None,
    limit: PageSize = 50,
) -> Response[bytes]:
    """Return what is stored, newest first, filtered by model, GPU and labels."""
    filters = Filters(
        model=model, gpu=catalogue_name(gpu) if gpu else None, labels=tuple(label or ())
    )
    page = context.recommendations.page(filters, limit=limit, after=position_of(cursor))
    following = encode_cursor(page.last_id) if page.last_id else None
    answer = RecommendationPage(items=[_row(row) for row in page.records], next_cursor=following)
    query = {"model": model, "gpu": gpu, "label": label, "limit": limit}
    return Response(
        encode(answer), media_type=JSON, headers=next_link("/recommendations", query, following)
    )


@get(
    "/recommendations/{recommendation_id:str}",
    operation_id="getRecommendation",
    summary="Show a stored recommendation",
    tags=["advice"],
    sync_to_thread=True,
    opt=describe(
        Answer(
            200,
            "What was answered when it was made, byte for byte, with the validations since then; "
            "as Markdown, its decision record.",
            media_types=(JSON, MARKDOWN),
            kind=Recommendation,
            headers=("ETag", "Vary"),
        ),
        Answer(304, "The caller's copy is current.", media_types=(), headers=("ETag",)),
        problems=("not-found", "store-unavailable"),
        request_headers=("If-None-Match",),
    ),
)
def get_recommendation(
    recommendation_id: RecommendationId,
    request: Request[Any, Any, Any],
    context: InjectedContext,
) -> Response[bytes]:
    """Return a recommendation as JSON, or its decision record as Markdown."""
    stored = _find(context, recommendation_id)
    validations = context.validations.of_recommendation(recommendation_id)
    accept = ",".join(request.headers.getall("accept", []))
    media_type = choose_media_type(accept, (JSON, MARKDOWN)) or JSON
    content, etag = stored.body, stored.etag
    if validations:
        content = with_validations(stored.body, validations)
        etag = entity_tag(content)
    if media_type == MARKDOWN:
        content = _file(stored, DECISION_FILE).content.encode()
        etag = entity_tag(content)
    headers = {"ETag": etag, "Vary": "Accept", "Cache-Control": "private, no-cache"}
    if is_current(etag, request.headers.getall("if-none-match", [])):
        return Response(content=b"", status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


@delete(
    "/recommendations/{recommendation_id:str}",
    operation_id="deleteRecommendation",
    summary="Remove a stored recommendation",
    tags=["advice"],
    sync_to_thread=True,
    opt=describe(
        Answer(204, "It is gone, with its index entries.", media_types=()),
        problems=("not-found", "store-unavailable"),
    ),
)
def delete_recommendation(recommendation_id: RecommendationId, context: InjectedContext) -> None:
    """Remove a recommendation for good."""
    if not context.recommendations.delete(recommendation_id):
        raise not_found("recommendation", recommendation_id)
    context.validations.forget_recommendation(recommendation_id)


@get(
    "/recommendations/{recommendation_id:str}/files/{file_path:path}",
    operation_id="getRecommendationFile",
    summary="Fetch one file of a recommendation",
    tags=["advice"],
    sync_to_thread=True,
    opt=describe(
        Answer(
            200,
            "The file as it would be committed, under its own media type.",
            media_types=("text/plain", "*/*"),
            headers=("ETag",),
        ),
        problems=("not-found", "store-unavailable"),
    ),
)
def get_recommendation_file(
    recommendation_id: RecommendationId,
    file_path: Annotated[
        str,
        PathParameter(
            description="Path of the file, as in `files`.", examples=[Example(value="serve.sh")]
        ),
    ],
    context: InjectedContext,
) -> Response[bytes]:
    """Return the content of a ready-to-commit file."""
    stored = _find(context, recommendation_id)
    file = _file(stored, file_path.removeprefix("/"))
    content = file.content.encode()
    return Response(
        content, media_type=file.media_type or _ANY_FILE, headers={"ETag": entity_tag(content)}
    )


def _create(context: Context, request: TuningRequest, making: Making) -> Response[bytes]:
    # Imported on use: the latency model compiles code, and the service starts without waiting.
    from service.calibrations import known_calibrations  # noqa: PLC0415
    from service.remembered import recommend_once  # noqa: PLC0415

    calibrations = known_calibrations(
        context.measurements,
        request.hardware,
        resolve_model=context.resolve_model,
        now=context.now,
    )
    advice = recommend_once(request, resolve_model=context.resolve_model, calibrations=calibrations)
    gpu = request.hardware.gpu
    plan = request.validation if advice.estimate.fits else None
    if plan is not None:
        check_plan(context, plan, gpu=gpu, config=advice.config, pointer="/validation")
        reserve_gpu_minutes(context, plan, config=advice.config)
    stored = _store(advice, labels=request.labels, context=context, making=making)
    content, etag = stored.body, stored.etag
    if plan is not None:
        validation = start_validation(
            context,
            plan,
            recommendation_id=stored.id,
            gpu=gpu,
            config=advice.config,
            making=making,
        )
        content = with_validations(stored.body, [validation])
        etag = entity_tag(content)
    headers = {"Location": _address(stored.id), "ETag": etag}
    return Response(content, status_code=201, media_type=JSON, headers=headers)


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    etag: str
    body: bytes


def _store(
    advice: Advice, *, labels: Mapping[str, str], context: Context, making: Making
) -> _Stored:
    """Give the advice an id and a time, and store the bytes that are answered."""
    made_at = making.attempt.started_at
    identifier = making.identifier("recommendation")
    recommendation = as_recommendation(
        advice, identifier=identifier, created_at=timestamp(made_at), labels=labels
    )
    body = encode(recommendation)
    record = RecommendationRecord(
        id=identifier,
        created_at=recommendation.created_at,
        etag=entity_tag(body),
        model=advice.request.model.id,
        gpu=catalogue_name(advice.request.hardware.gpu),
        feasible=advice.feasible,
        headline=advice.headline,
        labels=recommendation.labels,
    )
    context.recommendations.save(record, body, at=made_at)
    return _Stored(id=identifier, etag=record.etag, body=body)


def _find(context: Context, identifier: str) -> StoredBody:
    stored = context.recommendations.find(identifier)
    if stored is None:
        raise not_found("recommendation", identifier)
    return stored


def _file(stored: StoredBody, path: str) -> RenderedFile:
    files = msgspec.json.decode(stored.body, type=_Files).files
    for file in files:
        if file.path == path:
            return file
    raise not_found("file", path, hint=f"There are {', '.join(file.path for file in files)}.")


def _row(record: RecommendationRecord) -> RecommendationSummary:
    return RecommendationSummary(
        id=record.id,
        created_at=record.created_at,
        labels=record.labels,
        model=record.model,
        gpu=record.gpu,
        feasible=record.feasible,
        headline=record.headline,
        url=_address(record.id),
    )


def _address(identifier: str) -> str:
    return f"/recommendations/{quote(identifier)}"
