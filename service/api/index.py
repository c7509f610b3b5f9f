"""The root: where to go from here."""

from litestar import Response, get

from api_schemas.system import ServiceIndex
from service.api.bodies import encode
from service.api.describe import JSON, Answer, describe
from service.tuning.provenance import setpoint_version

LINKS = {
    "recommendations": "/recommendations",
    "estimates": "/estimates",
    "models": "/models",
    "gpus": "/gpus",
    "presets": "/presets",
    "engine_versions": "/engine-versions",
    "rules": "/rules",
    "openapi": "/openapi.json",
    "health": "/readyz",
    "metrics": "/metrics",
}


@get(
    "/",
    operation_id="getIndex",
    summary="Show where to go",
    tags=["system"],
    sync_to_thread=False,
    opt=describe(Answer(200, "Name, version and links.", kind=ServiceIndex)),
)
def get_index() -> Response[bytes]:
    """Return the addresses of everything that this service offers."""
    index = ServiceIndex(name="setpoint", version=setpoint_version(), links=LINKS)
    return Response(encode(index), media_type=JSON)
