"""The error tables that come with the program."""

from functools import cache
from importlib import resources

import msgspec

from api_schemas.accuracy import AccuracyReport
from api_schemas.base import Json


@cache
def accuracy_report() -> AccuracyReport:
    """Return the tables that `make accuracy` wrote from the project's copy of measurements."""
    return AccuracyReport(memory=_table("memory"), latency=_table("latency"))


def _table(room: str) -> dict[str, Json]:
    source = resources.files(f"service.tuning.{room}") / "data" / "accuracy.json"
    return msgspec.json.decode(source.read_bytes(), type=dict[str, Json])
