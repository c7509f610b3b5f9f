"""Pages of other origins that may call: an exact list, and never with cookies."""

from collections.abc import Mapping
from typing import Any

_EXPOSED = (
    "ETag, Idempotency-Replayed, Link, Location, RateLimit, RateLimit-Policy, Retry-After, "
    "WWW-Authenticate, X-Request-Id"
)
_ACCEPTED = (
    "Accept, Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, "
    "X-Request-Id"
)
_PREFLIGHT: tuple[tuple[bytes, bytes], ...] = (
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE"),
    (b"access-control-allow-headers", _ACCEPTED.encode()),
    (b"access-control-max-age", b"600"),
)

Header = tuple[bytes, bytes]


def origins_of(setting: str) -> frozenset[str]:
    """Return the origins that SETPOINT_CORS_ORIGINS lists."""
    return frozenset(origin.strip() for origin in setting.split(",") if origin.strip())


def cors_headers(request: Mapping[str, Any], origins: frozenset[str]) -> list[Header]:
    """Return what the answer to a request tells the browser; nothing when no origin is allowed.

    A preflight needs no route of its own: OPTIONS is answered on every path.
    """
    if not origins:
        return []
    headers: list[Header] = [(b"vary", b"Origin")]
    given = [value for name, value in request["headers"] if name == b"origin"]
    if len(given) != 1 or given[0].decode("latin-1") not in origins:
        return headers
    headers += [
        (b"access-control-allow-origin", given[0]),
        (b"access-control-expose-headers", _EXPOSED.encode()),
    ]
    return headers + (list(_PREFLIGHT) if request["method"] == "OPTIONS" else [])
