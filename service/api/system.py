"""Health, metrics, the OpenAPI document and the pages that problem types resolve to."""

from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.openapi.spec import Example
from litestar.params import PathParameter

from api_schemas.system import Liveness, ProblemType, Readiness
from service.api.bodies import encode
from service.api.context import InjectedContext
from service.api.describe import JSON, Answer, describe
from service.api.metrics import METRICS_MEDIA_TYPE
from service.api.openapi import document
from service.api.problems import not_found
from service.problems import PROBLEMS

_OPENAPI = "application/vnd.oai.openapi+json;version=3.1"


@get(
    "/livez",
    operation_id="getLiveness",
    summary="Tell whether the process lives",
    tags=["system"],
    sync_to_thread=False,
    opt=describe(Answer(200, "The process answers; the store is not asked.", kind=Liveness)),
)
def get_liveness() -> Response[bytes]:
    """Answer as long as the process does; never touches the store."""
    return Response(encode(Liveness(status="ok")), media_type=JSON)


@get(
    "/readyz",
    operation_id="getReadiness",
    summary="Tell whether requests can be served",
    tags=["system"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "The store answers.", kind=Readiness), problems=("store-unavailable",)
    ),
)
def get_readiness(context: InjectedContext) -> Response[bytes]:
    """Answer 200 while the store answers, else 503."""
    context.check_store()
    return Response(encode(Readiness(status="ok", store="ok")), media_type=JSON)


@get(
    "/metrics",
    operation_id="getMetrics",
    summary="Expose Prometheus metrics",
    tags=["system"],
    sync_to_thread=True,
    opt=describe(Answer(200, "Prometheus' text format.", media_types=(METRICS_MEDIA_TYPE,))),
)
def get_metrics(context: InjectedContext) -> Response[bytes]:
    """Return counters and times of this process, and what all processes share in the store.

    The latter are prediction errors by GPU and model family, queues, workers and webhooks.
    """
    return Response(context.metrics.expose(), media_type=METRICS_MEDIA_TYPE)


@get(
    "/openapi.json",
    operation_id="getOpenApiDocument",
    summary="Return this document",
    tags=["system"],
    sync_to_thread=True,
    opt=describe(Answer(200, "OpenAPI 3.1.", media_types=(JSON, _OPENAPI))),
)
def get_openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the description of every operation, for client generators and portals."""
    return Response(document(request.app), media_type=JSON)


@get(
    "/problems/{code:str}",
    operation_id="getProblemType",
    summary="Explain a problem type",
    tags=["system"],
    sync_to_thread=False,
    opt=describe(Answer(200, "Code, status and title.", kind=ProblemType), problems=("not-found",)),
)
def get_problem_type(
    code: Annotated[
        str,
        PathParameter(
            max_length=64, description="Problem code.", examples=[Example(value="unknown-gpu")]
        ),
    ],
) -> Response[bytes]:
    """Return what a problem's `type` stands for."""
    for known, kind in PROBLEMS.items():
        if known == code:
            about = ProblemType(code=known, status=kind.status, title=kind.title)
            return Response(encode(about), media_type=JSON)
    raise not_found("problem type", code, hint=f"Known are {', '.join(sorted(PROBLEMS))}.")
