"""What the document says of headers, those that are sent and those that come back."""

from collections.abc import Mapping
from typing import Any

PROBLEM_HEADERS: Mapping[int, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    403: ("WWW-Authenticate",),
    409: ("Retry-After",),
    429: ("Retry-After", "RateLimit", "RateLimit-Policy"),
    503: ("Retry-After",),
}
HEADERS: Mapping[str, str] = {
    "WWW-Authenticate": "How to prove who asks, and what was wrong with it (RFC 6750).",
    "RateLimit": "What is left of the key's budget, and in how many seconds it is full again.",
    "RateLimit-Policy": "The key's budget and its window in seconds.",
    "Idempotency-Key": "A text of the caller's choice, new for every new request: sent again with "
    "the same body within a day, it gets the first answer again and makes no second record.",
    "Idempotency-Replayed": "`true` when this is the answer to an earlier request with this key.",
    "X-Request-Id": "The id of this request: the caller's own when it was well-formed.",
    "Location": "Address of what was created.",
    "ETag": "Strong entity tag of the body; send it in If-None-Match.",
    "Link": "The next page, rel=next (RFC 8288).",
    "Retry-After": "Seconds to wait before the next try.",
    "Vary": "The request header that chose this representation.",
    "If-None-Match": "Entity tags the caller holds; 304 when one is current.",
}
HEADER_BOUNDS: Mapping[str, dict[str, Any]] = {
    "Idempotency-Key": {"minLength": 1, "maxLength": 255, "pattern": "^[!-~]*$"},
}
