"""Days as numbers agree with the calendar."""

from datetime import UTC, date, datetime, timedelta

import pytest

from service.identifiers import time_ordered_id
from service.tuning.days import day_number, day_number_of_id

_EPOCH = date(1970, 1, 1)


@pytest.mark.parametrize("offset", range(0, 60_000, 211))
def test_days_are_counted_as_the_calendar_does(offset: int) -> None:
    """Every sampled day from 1970 to 2134 has the number of days since the first."""
    day = _EPOCH + timedelta(days=offset)

    assert day_number(day.isoformat()) == offset


def test_an_identifier_carries_its_day() -> None:
    """The day of a time-ordered identifier is the day on which it was made."""
    made = datetime(2026, 2, 28, 23, 59, tzinfo=UTC)

    assert day_number_of_id(time_ordered_id(made, entropy=bytes(10))) == day_number("2026-02-28")
