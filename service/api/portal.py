"""The page for people at `/`, and the files it is made of.

The files are built from `service/portal/web` and kept in `service/portal/static`. They are read
once, when the routes are made: only what was read then can be asked for.
"""

from importlib.resources import files
from typing import Annotated, Any, NamedTuple

from litestar import Request, Response, get
from litestar.openapi.spec import Example
from litestar.params import PathParameter

from api_schemas.system import ServiceIndex
from service.api.bodies import encode
from service.api.describe import JSON, Answer, describe
from service.api.entity_tags import entity_tag, is_current
from service.api.negotiation import choose_media_type
from service.api.problems import not_found
from service.tuning.provenance import setpoint_version

HTML = "text/html"
LINKS = {
    "recommendations": "/recommendations",
    "estimates": "/estimates",
    "models": "/models",
    "gpus": "/gpus",
    "presets": "/presets",
    "engine_versions": "/engine-versions",
    "rules": "/rules",
    "workers": "/workers",
    "openapi": "/openapi.json",
    "health": "/readyz",
    "metrics": "/metrics",
}
_MEDIA_TYPES = {
    "css": "text/css",
    "html": HTML,
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}


class _Asset(NamedTuple):
    content: bytes
    media_type: str
    etag: str


def _read_assets() -> dict[str, _Asset]:
    """Return every file of the page by its name."""
    folder = files("service.portal") / "static"
    found = {}
    for entry in folder.iterdir():
        media_type = _MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if media_type is None:
            continue
        content = entry.read_bytes()
        found[entry.name] = _Asset(content, media_type, entity_tag(content))
    return found


_ASSETS = _read_assets()


@get(
    "/",
    operation_id="getIndex",
    summary="Show the page for people, or where to go from here",
    tags=["system"],
    sync_to_thread=False,
    opt=describe(
        Answer(
            200,
            "The page; as JSON: name, version and links.",
            media_types=(HTML, JSON),
            kind=ServiceIndex,
            headers=("Vary",),
        )
    ),
)
def get_index(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the page for people; to callers who ask for JSON, the addresses of everything."""
    accept = ",".join(request.headers.getall("accept", []))
    vary = {"Vary": "Accept"}
    if choose_media_type(accept, (HTML, JSON)) == JSON:
        index = ServiceIndex(name="setpoint", version=setpoint_version(), links=LINKS)
        return Response(encode(index), media_type=JSON, headers=vary)
    return Response(_ASSETS["index.html"].content, media_type=HTML, headers=vary)


@get(
    "/static/{name:str}",
    operation_id="getPortalFile",
    summary="Return a file that the page is made of",
    tags=["system"],
    sync_to_thread=False,
    opt=describe(
        Answer(
            200,
            "The file.",
            media_types=tuple(sorted(set(_MEDIA_TYPES.values()))),
            headers=("ETag",),
        ),
        Answer(304, "The caller's copy is current.", media_types=(), headers=("ETag",)),
        problems=("not-found",),
        request_headers=("If-None-Match",),
    ),
)
def get_portal_file(
    name: Annotated[
        str,
        PathParameter(
            max_length=64, description="Name of the file.", examples=[Example(value="portal.js")]
        ),
    ],
    request: Request[Any, Any, Any],
) -> Response[bytes]:
    """Return script, style, icon or licences; browsers keep them and ask whether they changed."""
    asset = _ASSETS.get(name)
    if asset is None:
        raise not_found("file", name)
    headers = {"ETag": asset.etag, "Cache-Control": "public, no-cache"}
    if is_current(asset.etag, request.headers.getall("if-none-match", [])):
        return Response(content=b"", status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)
