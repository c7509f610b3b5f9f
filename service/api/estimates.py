"""What-ifs: `POST /estimates`."""

from typing import Any

from litestar import Request, Response, post
from litestar.params import RawBody
from litestar.status_codes import HTTP_200_OK

from api_schemas.estimate import Estimate, EstimateRequest
from service.api import examples
from service.api.bodies import encode, read_body
from service.api.context import InjectedContext
from service.api.describe import JSON, OF_TUNING, Answer, Body, describe
from service.api.entity_tags import unless_current


@post(
    "/estimates",
    operation_id="createEstimate",
    summary="Judge one configuration",
    tags=["advice"],
    status_code=HTTP_200_OK,
    sync_to_thread=True,
    opt=describe(
        Answer(
            200,
            "Memory, latency and findings; a configuration that does not fit is an answer too.",
            kind=Estimate,
            headers=("ETag",),
            example=examples.estimate_answer,
        ),
        Answer(304, "The caller's copy is current.", media_types=(), headers=("ETag",)),
        body=Body(
            EstimateRequest,
            "The configuration to judge.",
            {"chat on one H100": examples.estimate_request},
        ),
        problems=(*OF_TUNING, "store-unavailable"),
        request_headers=("If-None-Match",),
    ),
)
def create_estimate(
    body: RawBody, request: Request[Any, Any, Any], context: InjectedContext
) -> Response[bytes]:
    """Predict memory and latency of a model on hardware with given settings.

    Nothing is stored, so it needs no Idempotency-Key, and `If-None-Match` saves an answer that the
    caller holds: the same request to the same version and calibrations gives the same bytes.
    """
    asked = read_body(body, EstimateRequest)
    # Imported on use: the latency model compiles code, and the service starts without waiting.
    from service.calibrations import known_calibrations  # noqa: PLC0415
    from service.tuning.estimate import estimate  # noqa: PLC0415

    calibrations = known_calibrations(
        context.measurements,
        asked.hardware,
        resolve_model=context.resolve_model,
        now=context.now,
    )
    answer = estimate(asked, resolve_model=context.resolve_model, calibrations=calibrations)
    return unless_current(request, encode(answer), media_type=JSON)
