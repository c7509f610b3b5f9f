"""W3C trace context: which request of the outside world something belongs to.

Source: W3C Recommendation "Trace Context", section 3.2.
"""

import re
from contextvars import ContextVar

_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-[0-9a-f]{2}"
    r"(?P<later>-.*)?"
)
_LONGEST = 256
_incoming: ContextVar[str | None] = ContextVar("traceparent", default=None)


def parse_traceparent(text: str) -> str | None:
    """Return a well-formed `traceparent`, else None: a broken one is as good as none.

    Only the fields of version 00 are kept of a later version, which may have more.
    """
    found = _TRACEPARENT.fullmatch(text.strip(" \t")) if len(text) <= _LONGEST else None
    if found is None or found["version"] == "ff":
        return None
    if found["later"] and found["version"] == "00":
        return None
    if not found["trace"].strip("0") or not found["parent"].strip("0"):
        return None
    return found[0].removesuffix(found["later"] or "")


def trace_id_of(traceparent: str) -> str:
    """Return the id of the trace, 32 hexadecimal digits."""
    return traceparent.split("-")[1]


def set_incoming(traceparent: str | None) -> None:
    """Remember the context of the request that this task works on."""
    _incoming.set(traceparent)


def incoming_traceparent() -> str | None:
    """Return the context that the request came with, None when it brought none."""
    return _incoming.get()
