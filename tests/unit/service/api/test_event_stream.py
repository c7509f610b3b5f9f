"""Streams of events."""

import asyncio
from collections.abc import Sequence

from service.api.event_stream import HEARTBEAT_S, formatted_events
from service.store.events import Event

_EVENTS = [Event(id=f"{number}-0", name="status", data=b"{}") for number in range(1, 6)]


class Source:
    """Events that become known one by one; the last one ends the stream."""

    def __init__(self, *, silence: int = 0) -> None:
        self.asked = 0
        self._silence = silence

    def __call__(self, after: str) -> tuple[Sequence[Event], bool]:
        """Return the news after an event."""
        self.asked += 1
        known = max(0, self.asked - self._silence)
        later = [event for event in _EVENTS[:known] if event.id > after]
        return later, known >= len(_EVENTS)


def _read(source: Source, *, after: str = "0") -> tuple[list[bytes], float]:
    """Return all blocks, and how long the stream paused in all."""
    paused = 0.0

    async def pause(seconds: float) -> None:
        nonlocal paused
        paused += seconds

    async def read() -> list[bytes]:
        return [block async for block in formatted_events(source, after=after, pause=pause)]

    return asyncio.run(read()), paused


def test_every_event_comes_once_and_in_order() -> None:
    """Whenever they become known, events are neither lost nor repeated."""
    blocks, _ = _read(Source())

    assert blocks[0].startswith(b"retry: ")
    assert blocks[1:] == [b"id: %d-0\nevent: status\ndata: {}\n\n" % n for n in range(1, 6)]


def test_a_stream_resumes_after_the_last_event_that_was_seen() -> None:
    """Only what followed is sent again."""
    blocks, _ = _read(Source(), after="3-0")

    assert [block.split(b"\n")[0] for block in blocks[1:]] == [b"id: 4-0", b"id: 5-0"]


def test_a_quiet_stream_says_that_it_lives() -> None:
    """A comment comes at every interval of silence, and events start the interval anew."""
    blocks, paused = _read(Source(silence=1000))

    beats = [block for block in blocks if block.startswith(b": ")]
    assert len(beats) == int(paused // HEARTBEAT_S) > 10
    assert all(block.endswith(b"\n\n") for block in blocks)
