"""Strong entity tags, and answers that the caller holds already."""

import hashlib
from typing import Any

from litestar import Request, Response


def entity_tag(content: bytes) -> str:
    """Return the strong entity tag of these bytes."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def is_current(etag: str, if_none_match: list[str]) -> bool:
    """Tell whether an If-None-Match header names this tag (weak comparison, RFC 9110)."""
    tags = [tag.strip().removeprefix("W/") for line in if_none_match for tag in line.split(",")]
    return "*" in tags or etag in tags


def unless_current(
    request: Request[Any, Any, Any], content: bytes, *, media_type: str, **headers: str
) -> Response[bytes]:
    """Return an answer with its entity tag, or 304 when the caller holds these very bytes."""
    etag = entity_tag(content)
    tagged = {name.replace("_", "-"): value for name, value in headers.items()} | {"ETag": etag}
    if is_current(etag, request.headers.getall("if-none-match", [])):
        return Response(content=b"", status_code=304, headers=tagged)
    return Response(content, media_type=media_type, headers=tagged)
