"""What measurements taught: `GET /calibrations`."""

from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter

from api_schemas.measurement import CalibrationList, CalibrationStatus
from service.api.bodies import encode
from service.api.context import InjectedContext
from service.api.describe import JSON, Answer, describe
from service.api.paging import GpuFilter
from service.tuning.hardware.catalogue import catalogue_name


@get(
    "/calibrations",
    operation_id="listCalibrations",
    summary="List calibrations",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "All calibrations, with the reason for each status.", kind=CalibrationList),
        problems=("store-unavailable",),
    ),
)
def list_calibrations(
    *,
    context: InjectedContext,
    gpu: GpuFilter = None,
    model: Annotated[
        str | None, QueryParameter(max_length=256, description="Model id that was measured.")
    ] = None,
    status: Annotated[
        CalibrationStatus | None, QueryParameter(description="Only used or only refused ones.")
    ] = None,
) -> Response[bytes]:
    """Return what the measurements of each configuration changed, and whether answers use it.

    A calibration is used only when it predicts left-out loads better than the model that ships; the
    refused ones are listed with the reason.
    """
    store = context.measurements
    gpus = [catalogue_name(gpu)] if gpu else store.calibrated_gpus()
    records = [
        record
        for name in gpus
        for record in store.calibrations_of(name)
        if (model is None or record.model == model) and (status is None or record.status == status)
    ]
    return Response(encode(CalibrationList(items=records)), media_type=JSON)
