"""Identifiers sort by time."""

import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from service.identifiers import earliest_id, is_identifier, time_ordered_id, timestamp

_TIMES = st.datetimes(
    min_value=datetime(2020, 1, 1),  # noqa: DTZ001  # Hypothesis adds the zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
_ENTROPY = st.binary(min_size=10, max_size=10)


@given(earlier=_TIMES, later=_TIMES, first=_ENTROPY, second=_ENTROPY)
def test_text_order_is_time_order(
    earlier: datetime, later: datetime, first: bytes, second: bytes
) -> None:
    """Ids made in different milliseconds sort as text the way they were made."""
    ids = [time_ordered_id(earlier, entropy=first), time_ordered_id(later, entropy=second)]

    if later - earlier >= timedelta(milliseconds=1):
        assert ids[0] < ids[1]


@given(at=_TIMES, entropy=_ENTROPY)
def test_ids_are_version_7_uuids(at: datetime, entropy: bytes) -> None:
    """An id is an RFC 9562 UUID, recognised as one of ours, and never before its time's first."""
    identifier = time_ordered_id(at, entropy=entropy)

    assert (uuid.UUID(identifier).version, uuid.UUID(identifier).variant) == (7, uuid.RFC_4122)
    assert is_identifier(identifier)
    assert earliest_id(at) <= identifier


def test_other_text_is_no_identifier() -> None:
    """Upper case, braces and junk are not ids: a record has one address."""
    identifier = time_ordered_id(datetime(2026, 1, 1, tzinfo=UTC), entropy=b"\xff" * 10)

    assert not any(is_identifier(text) for text in (identifier.upper(), f"{{{identifier}}}", "x"))


def test_timestamps_are_rfc_3339_in_utc() -> None:
    """Times go over the wire in UTC with milliseconds."""
    assert (
        timestamp(datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)) == "2026-01-02T03:04:05.678Z"
    )
