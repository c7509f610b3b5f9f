"""Days as whole numbers, so that spans can be counted without a clock."""

_MILLISECONDS_PER_DAY = 86_400_000


def day_number(day: str) -> int:
    """Return the days from 1970-01-01 to a day written as YYYY-MM-DD.

    Counts in years that begin in March, so that the leap day comes last (Howard Hinnant,
    chrono-Compatible Low-Level Date Algorithms, days_from_civil).
    """
    year, month, day_of_month = (int(part) for part in day.split("-"))
    if month <= 2:  # noqa: PLR2004  # January and February belong to the year before
        year, month = year - 1, month + 12
    era_year = year % 400
    day_of_year = (153 * (month - 3) + 2) // 5 + day_of_month - 1
    day_of_era = era_year * 365 + era_year // 4 - era_year // 100 + day_of_year
    return (year // 400) * 146_097 + day_of_era - 719_468


def day_number_of_id(identifier: str) -> int:
    """Return the day on which a time-ordered identifier (UUID version 7) was made."""
    milliseconds = int(identifier.replace("-", "")[:12], 16)
    return milliseconds // _MILLISECONDS_PER_DAY
