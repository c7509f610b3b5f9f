"""The named workloads."""

from litestar import Response, get

from api_schemas.catalogue import PresetList
from service.api.bodies import encode
from service.api.describe import JSON, Answer, describe
from service.tuning.presets import all_presets


@get(
    "/presets",
    operation_id="listPresets",
    summary="List the workload presets",
    tags=["catalogues"],
    sync_to_thread=False,
    opt=describe(
        Answer(200, "Every preset with its figures, targets and sources.", kind=PresetList)
    ),
)
def list_presets() -> Response[bytes]:
    """Return the named workloads: lengths, arrivals, usual targets and where they come from."""
    return Response(encode(PresetList(items=list(all_presets()))), media_type=JSON)
