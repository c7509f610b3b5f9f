"""Cursors are opaque and checked."""

from datetime import UTC, datetime

import pytest

from service.identifiers import time_ordered_id
from service.store.cursor import InvalidCursor, decode_cursor, encode_cursor


def test_a_cursor_leads_back_to_its_place() -> None:
    """What was encoded comes back, and the text is safe in a URL."""
    identifier = time_ordered_id(datetime(2026, 1, 1, tzinfo=UTC), entropy=b"0123456789")

    cursor = encode_cursor(identifier)

    assert decode_cursor(cursor) == identifier
    assert cursor.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("cursor", ["", "x", "....", "%00", "MTp4", "é", "=" * 8, "MjphYmM"])
def test_anything_else_is_refused(cursor: str) -> None:
    """Text that no page handed out is no cursor."""
    with pytest.raises(InvalidCursor):
        decode_cursor(cursor)
