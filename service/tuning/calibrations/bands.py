"""How sure a calibrated prediction is, by how many points it rests on."""

import json
from functools import cache
from importlib import resources

import msgspec


class WidthTable(msgspec.Struct, frozen=True):
    """Half widths of the 80 % band on the log scale, by number of points and metric."""

    log_widths: dict[int, dict[str, float]]


@cache
def width_table() -> WidthTable:
    """Return the table that ships with this release."""
    file = resources.files("service.tuning.calibrations").joinpath("data/bands.json")
    return msgspec.convert(json.loads(file.read_text("utf-8")), WidthTable, strict=False)


def log_widths(points: int) -> dict[str, float]:
    """Return the half widths by metric; none when the points are too few to say."""
    table = width_table().log_widths
    known = [count for count in sorted(table) if count <= points]
    return dict(table[known[-1]]) if known else {}
