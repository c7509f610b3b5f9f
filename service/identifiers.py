"""Identifiers that sort by the time they were made."""

import uuid
from datetime import UTC, datetime

ENTROPY_BYTES = 10


def time_ordered_id(at: datetime, *, entropy: bytes) -> str:
    """Return a version 7 UUID (RFC 9562): 48 bits of milliseconds, then 74 bits of entropy.

    Text order is time order, so an index by id is an index by (created_at, id).
    """
    milliseconds = int(at.timestamp() * 1000)
    number = (milliseconds << 80) | int.from_bytes(entropy[:ENTROPY_BYTES], "big")
    number &= ~(0xF << 76) & ~(0x3 << 62)
    return str(uuid.UUID(int=number | (0x7 << 76) | (0x2 << 62)))


def earliest_id(at: datetime) -> str:
    """Return an id that sorts before every id made at this time or later."""
    return str(uuid.UUID(int=int(at.timestamp() * 1000) << 80))


def is_identifier(text: str) -> bool:
    """Tell whether this text is an id as `time_ordered_id` writes it."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def timestamp(at: datetime) -> str:
    """Return the time as RFC 3339 in UTC with milliseconds."""
    text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
