"""Streams of events (SSE): they resume after `Last-Event-ID` and keep quiet connections open."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated

from litestar.params import HeaderParameter
from litestar.response import Stream

from service.api.describe import EVENTS
from service.store.events import Event

HEARTBEAT_S = 15.0
"""Longest silence of a stream: proxies close what is quiet for a minute."""
_POLL_S = 0.25
_START = "0"

LastEventId = Annotated[
    str | None,
    HeaderParameter(
        name="Last-Event-ID",
        # More digits than these could exceed the 64 bits of each half in the store.
        pattern=r"^[0-9]{1,19}(-[0-9]{1,19})?$(?!\n)",
        description="Id of the last event that was received; the stream goes on after it.",
    ),
]
"""How a route takes the id of the last event that the caller has seen."""
News = Callable[[str], tuple[Sequence[Event], bool]]
"""Returns what happened after an event id, and whether nothing more can follow.

It must ask for the end first and for the events second, or the last ones could be missed.
"""


def stream_of(news: News, *, after: str | None) -> Stream:
    """Return the answer of a route that streams events."""
    events = formatted_events(news, after=after or _START)
    return Stream(events, media_type=EVENTS, headers={"Cache-Control": "no-store"})


async def formatted_events(
    news: News, *, after: str, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncIterator[bytes]:
    """Yield what happens in the format of server-sent events, until nothing more can follow."""
    position, quiet_s = after, 0.0
    yield b"retry: 2000\n\n"
    while True:
        found, is_finished = await asyncio.to_thread(news, position)
        for event in found:
            position = event.id
            yield _formatted(event)
        if is_finished and not found:
            return
        quiet_s = 0.0 if found else quiet_s + _POLL_S
        if quiet_s >= HEARTBEAT_S:
            quiet_s = 0.0
            yield b": still here\n\n"
        await pause(0 if found else _POLL_S)


def _formatted(event: Event) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        event.id.encode(),
        event.name.encode(),
        event.data,
    )
