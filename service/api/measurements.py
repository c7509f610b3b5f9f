"""The performance database: `POST /measurements`, and what it holds."""

from typing import Annotated, Any

from litestar import Request, Response, delete, get, post
from litestar.openapi.spec import Example
from litestar.params import PathParameter, QueryParameter, RawBody

from api_schemas.measurement import (
    Measurement,
    MeasurementPage,
    MeasurementRequest,
    MeasurementsCreated,
    MeasurementTool,
)
from service.api import examples
from service.api.bodies import encode, read_body
from service.api.context import Context, InjectedContext
from service.api.describe import IDEMPOTENCY_KEY, JSON, OF_TUNING, Answer, Body, describe, leads_to
from service.api.idempotent import REPLAYED, answer_once
from service.api.paging import GpuFilter, ModelFilter, PageCursor, PageSize, next_link, position_of
from service.api.problems import not_found
from service.store.cursor import encode_cursor
from service.store.measurements import MeasurementFilters
from service.tuning.hardware.catalogue import catalogue_name

MeasurementId = Annotated[
    str,
    PathParameter(
        max_length=64,
        description="Id of a measurement.",
        examples=[Example(value=examples.MEASUREMENT_ID)],
    ),
]
_CREATED, _KNOWN = 201, 200


@post(
    "/measurements",
    operation_id="createMeasurement",
    summary="Add measurements",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe(
        Answer(
            201,
            "Stored, and the calibrations that they belong to fitted anew.",
            kind=MeasurementsCreated,
            headers=("Location", REPLAYED),
            links=leads_to(
                "getMeasurement", "deleteMeasurement", takes="measurement_id", place="/items/0/id"
            ),
        ),
        Answer(200, "All of it was there already.", kind=MeasurementsCreated),
        body=Body(
            MeasurementRequest,
            "Figures in our own shape, or the report of a benchmark, with what it ran on.",
            {
                "our own shape": examples.measurement_request,
                "a result of vllm bench serve": examples.bench_report_request,
            },
        ),
        problems=(*OF_TUNING, "store-unavailable"),
        request_headers=(IDEMPOTENCY_KEY,),
    ),
)
def create_measurement(
    body: RawBody, request: Request[Any, Any, Any], context: InjectedContext
) -> Response[bytes]:
    """Store what was measured, by the definitions of vLLM's own benchmark.

    Reports are converted: GuideLLM's inter-token latency is our TPOT. Failed requests, latencies of
    zero and figures that contradict each other are refused, with the field named. The same content
    is stored once. Two or more loads of one configuration calibrate its next estimates, when that
    predicts left-out loads better.
    """
    asked = read_body(body, MeasurementRequest)
    return answer_once(request, body, context=context, make=lambda _: _create(context, asked))


@get(
    "/measurements",
    operation_id="listMeasurements",
    summary="List measurements",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "One page, newest first.", kind=MeasurementPage, headers=("Link",)),
        problems=("store-unavailable",),
    ),
)
def list_measurements(
    *,
    context: InjectedContext,
    model: ModelFilter = None,
    gpu: GpuFilter = None,
    engine_version: Annotated[
        str | None, QueryParameter(max_length=32, description="vLLM version as it was stated.")
    ] = None,
    tool: Annotated[
        MeasurementTool | None, QueryParameter(description="What the figures came from.")
    ] = None,
    cpu: Annotated[
        bool | None,
        QueryParameter(description="Only those of vLLM's CPU backend, or only those of GPUs."),
    ] = None,
    configuration: Annotated[
        str | None, QueryParameter(max_length=64, description="Key, as calibrations show it.")
    ] = None,
    cursor: PageCursor = None,
    limit: PageSize = 50,
) -> Response[bytes]:
    """Return what was measured, newest first; several filters must all match."""
    filters = MeasurementFilters(
        model=model,
        gpu=catalogue_name(gpu) if gpu else None,
        engine_version=engine_version,
        tool=tool,
        backend=None if cpu is None else ("cpu" if cpu else "gpu"),
        configuration=configuration,
    )
    page = context.measurements.page(filters, limit=limit, after=position_of(cursor))
    following = encode_cursor(page.last_id) if page.last_id else None
    query = {
        "model": model,
        "gpu": gpu,
        "engine_version": engine_version,
        "tool": tool,
        "cpu": None if cpu is None else str(cpu).lower(),
        "configuration": configuration,
        "limit": limit,
    }
    answer = MeasurementPage(items=page.records, next_cursor=following)
    headers = next_link("/measurements", query, following)
    return Response(encode(answer), media_type=JSON, headers=headers)


@get(
    "/measurements/{measurement_id:str}",
    operation_id="getMeasurement",
    summary="Show a measurement",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "The measurement as it was stored.", kind=Measurement),
        problems=("not-found", "store-unavailable"),
    ),
)
def get_measurement(measurement_id: MeasurementId, context: InjectedContext) -> Response[bytes]:
    """Return one measurement with what was converted."""
    record = context.measurements.find(measurement_id)
    if record is None:
        raise not_found("measurement", measurement_id)
    return Response(encode(record), media_type=JSON)


@delete(
    "/measurements/{measurement_id:str}",
    operation_id="deleteMeasurement",
    summary="Remove a measurement",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe(
        Answer(204, "It is gone, and its configuration is fitted without it.", media_types=()),
        problems=("not-found", "store-unavailable"),
    ),
)
def delete_measurement(measurement_id: MeasurementId, context: InjectedContext) -> None:
    """Remove a measurement that turned out wrong, and what it taught."""
    from service.measurements import remove_measurement  # noqa: PLC0415 - as above

    found = remove_measurement(
        context.measurements, measurement_id, resolve_model=context.resolve_model, now=context.now
    )
    if not found:
        raise not_found("measurement", measurement_id)


def _create(context: Context, request: MeasurementRequest) -> Response[bytes]:
    # Imported on use: the latency model compiles code, and the service starts without waiting.
    from service.measurements import add_measurements  # noqa: PLC0415

    added = add_measurements(
        context.measurements, request, resolve_model=context.resolve_model, now=context.now
    )
    answer = MeasurementsCreated(items=added.measurements, calibrations=added.calibrations)
    headers = {"Location": _address(added.measurements[0].id)} if added.is_new else {}
    status = _CREATED if added.is_new else _KNOWN
    return Response(encode(answer), status_code=status, media_type=JSON, headers=headers)


def _address(identifier: str) -> str:
    return f"/measurements/{identifier}"
