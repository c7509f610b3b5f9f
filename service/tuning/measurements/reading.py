"""What a benchmark report says, and how its fields are taken out of it."""

import math
from collections.abc import Mapping

import msgspec

from api_schemas.base import Json
from api_schemas.measurement import MeasurementTool, Observed, Statistics
from api_schemas.workload import Workload
from service.tuning.errors import InvalidRequest

PERCENTILES = ("p50", "p90", "p95", "p99")


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One load point of a report: the load as far as it is told, and what was observed."""

    tool: MeasurementTool
    workload: Workload
    observed: Observed
    pointer: str
    """Where in the request it stands."""
    names: Mapping[str, str] = {}
    """What the report calls our figures, where it has other names."""
    notes: tuple[str, ...] = ()

    def place(self, name: str) -> str:
        """Return the pointer of the field that stated one of our figures; "" is the whole."""
        named = self.names.get(name, name)
        return f"{self.pointer}/{named}" if named else self.pointer


class Fields(msgspec.Struct, frozen=True):
    """One JSON object of a report with its place, read field by field."""

    values: Mapping[str, Json]
    pointer: str

    def at(self, name: str) -> str:
        """Return the pointer of a field."""
        return f"{self.pointer}/{name}"

    def number(self, name: str) -> float | None:
        """Return a finite number of zero or more; None when the field is absent or null.

        Raises:
            InvalidRequest: It is something else.
        """
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidRequest(f"{name} must be a number", pointer=self.at(name))
        if not math.isfinite(value) or value < 0:
            raise InvalidRequest(f"{name} must be zero or more, not {value}", pointer=self.at(name))
        return float(value)

    def needed(self, name: str) -> float:
        """Return a number that must be there.

        Raises:
            InvalidRequest: It is absent or no number.
        """
        value = self.number(name)
        if value is None:
            raise InvalidRequest(f"the report lacks {name}", pointer=self.at(name))
        return value

    def positive(self, name: str) -> float | None:
        """Return a number above zero; None when it is absent, or zero as tools write for none."""
        return self.number(name) or None

    def inside(self, name: str) -> "Fields":
        """Return the object under a name; an empty one when it is absent.

        Raises:
            InvalidRequest: It is no object.
        """
        value = self.values.get(name)
        if value is None:
            return Fields({}, self.at(name))
        if not isinstance(value, dict):
            raise InvalidRequest(f"{name} must be an object", pointer=self.at(name))
        return Fields(value, self.at(name))


def completed_requests(fields: Fields, *, completed: str, failed: str) -> int:
    """Return how many requests were answered, by the report's names of both counts.

    Raises:
        InvalidRequest: Some failed, or none was answered.
    """
    failures = fields.number(failed) or 0
    if failures > 0:
        raise InvalidRequest(
            f"{failures:.0f} requests failed: the latencies are those of the others only; measure "
            "again without failures",
            pointer=fields.at(failed),
        )
    answered = int(fields.needed(completed))
    if answered < 1:
        raise InvalidRequest("no request completed", pointer=fields.at(completed))
    return answered


def statistics(values: Mapping[str, float | None], *, scale: float = 1.0) -> Statistics | None:
    """Return the statistics that are above zero, times the scale to milliseconds."""
    kept = {name: value * scale for name, value in values.items() if value}
    return Statistics(**kept) if kept else None
