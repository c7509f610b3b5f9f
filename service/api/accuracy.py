"""How accurate the predictions are."""

from litestar import Response, get

from api_schemas.accuracy import AccuracyReport
from service.api.bodies import encode
from service.api.describe import JSON, Answer, describe
from service.tuning.accuracy import accuracy_report


@get(
    "/accuracy",
    operation_id="getAccuracy",
    summary="Show how accurate the predictions are",
    tags=["catalogues"],
    sync_to_thread=False,
    opt=describe(
        Answer(200, "Error tables on published measurements.", kind=AccuracyReport),
    ),
)
def get_accuracy() -> Response[bytes]:
    """Return the errors of memory and latency on measurements, most of them never fitted."""
    return Response(encode(accuracy_report()), media_type=JSON)
