"""What-ifs: `POST /estimates`."""

from litestar import Response, post
from litestar.params import RawBody
from litestar.status_codes import HTTP_200_OK

from api_schemas.estimate import Estimate, EstimateRequest
from service.api import examples
from service.api.bodies import encode, read_body
from service.api.context import InjectedContext
from service.api.describe import JSON, Answer, Body, describe


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
            example=examples.estimate_answer,
        ),
        body=Body(
            EstimateRequest,
            "The configuration to judge.",
            {"chat on one H100": examples.estimate_request},
        ),
        problems=(
            "too-large",
            "unsupported-media-type",
            "unknown-model",
            "unknown-gpu",
            "unknown-engine-version",
            "unsupported-architecture",
            "store-unavailable",
        ),
    ),
)
def create_estimate(body: RawBody, context: InjectedContext) -> Response[bytes]:
    """Predict memory and latency of a model on hardware with given settings; nothing is stored."""
    request = read_body(body, EstimateRequest)
    # Imported on use: the latency model compiles code, and the service starts without waiting.
    from service.measurements import known_calibrations  # noqa: PLC0415
    from service.tuning.estimate import estimate  # noqa: PLC0415

    calibrations = known_calibrations(
        context.measurements,
        request.hardware,
        resolve_model=context.resolve_model,
        now=context.now,
    )
    answer = estimate(request, resolve_model=context.resolve_model, calibrations=calibrations)
    return Response(content=encode(answer), media_type=JSON)
