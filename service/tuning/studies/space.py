"""The space of a study: which settings may vary, and how a configuration lies in it."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.study import Choices, Dimension, IntegerRange, NumberRange
from service.tuning.engine.facts import is_known
from service.tuning.engine.versions import EngineVersion
from service.tuning.errors import InvalidRequest

Parameters = dict[str, Json]
PARALLEL_SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "prefill_context_parallel_size",
)
"""Settings whose product is the number of devices (vLLM 0.33.0, config/parallel.py)."""
_GRID = 9
"""Values of a range that a scan looks at."""
_MOST = 4096
_BROKEN = 0.381966
"""A share that makes no whole number of any."""


def check_space(space: Mapping[str, Dimension], *, version: EngineVersion) -> None:
    """Return when every dimension is a setting of the release with a value it may take.

    Raises:
        InvalidRequest: One is not.
    """
    for name, dimension in space.items():
        pointer = f"/space/{name}"
        if not is_known(name, version):
            raise InvalidRequest(f"vLLM {version.text} has no setting {name}", pointer=pointer)
        if isinstance(dimension, Choices):
            _check_choices(name, dimension, pointer=pointer)
            continue
        if dimension.high < dimension.low:
            raise InvalidRequest("high is below low", pointer=f"{pointer}/high")
        if isinstance(dimension, IntegerRange) and dimension.log and dimension.low < 1:
            raise InvalidRequest("a range by ratio starts at 1 or more", pointer=f"{pointer}/low")
        _check_value(name, _first(dimension), pointer=f"{pointer}/low")
        _check_value(name, _last(dimension), pointer=f"{pointer}/high")
        if isinstance(dimension, NumberRange):
            _check_value(name, _between(dimension), pointer=pointer)


def largest_layout(config: EngineConfig, space: Mapping[str, Dimension]) -> EngineConfig:
    """Return a configuration with each parallel size as large as it has it, or the space.

    No trial takes more devices than this one: dimensions vary on their own.
    """
    largest = {
        name: max(int(_largest(space[name])), getattr(config, name) or 1)
        for name in PARALLEL_SIZES
        if name in space
    }
    return msgspec.structs.replace(config, **largest) if largest else config


def _largest(dimension: Dimension) -> float:
    values = dimension.values if isinstance(dimension, Choices) else [_last(dimension)]
    return max(float(value) for value in values if isinstance(value, int | float))


def configuration(base: EngineConfig, parameters: Parameters) -> EngineConfig:
    """Return the settings with the parameters of a trial."""
    fields = msgspec.to_builtins(base) | parameters
    return msgspec.convert(fields, EngineConfig)


def projected(
    config: EngineConfig, space: Mapping[str, Dimension], *, otherwise: EngineConfig
) -> Parameters:
    """Return the point of the space that is nearest to a configuration.

    What it leaves to vLLM is taken from `otherwise` (its effective settings), else the middle.
    """
    return {name: _nearest(dim, _value(config, otherwise, name)) for name, dim in space.items()}


def scan(space: Mapping[str, Dimension], *, seed: int) -> list[Parameters]:
    """Return points all over the space: a grid, thinned with the seed when it is too large."""
    axes = [_axis(dimension) for dimension in space.values()]
    size = math.prod(len(axis) for axis in axes)
    if size <= _MOST:
        return [dict(zip(space, point, strict=True)) for point in itertools.product(*axes)]
    generator = np.random.default_rng(seed)
    drawn = ([axis[int(generator.integers(len(axis)))] for axis in axes] for _ in range(_MOST))
    return list(_distinct(dict(zip(space, point, strict=True)) for point in drawn))


def size_of(space: Mapping[str, Dimension]) -> float:
    """Return how many points the space has; infinite when a dimension is continuous."""
    return math.prod(_count(dimension) for dimension in space.values())


def _distinct(points: Iterator[Parameters]) -> Iterator[Parameters]:
    seen = set()
    for point in points:
        mark = msgspec.json.encode(point)
        if mark not in seen:
            seen.add(mark)
            yield point


def _check_choices(name: str, dimension: Choices, *, pointer: str) -> None:
    marks = [msgspec.json.encode(value) for value in dimension.values]
    if len(set(marks)) != len(marks):
        raise InvalidRequest("a value is there twice", pointer=f"{pointer}/values")
    for index, value in enumerate(dimension.values):
        _check_value(name, value, pointer=f"{pointer}/values/{index}")


def _between(dimension: NumberRange) -> float:
    """Return a broken number of a range: a setting of whole numbers takes its ends alone."""
    return dimension.low + _BROKEN * (dimension.high - dimension.low)


def _check_value(name: str, value: Json, *, pointer: str) -> None:
    try:
        msgspec.convert({name: value}, EngineConfig)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{name} cannot be {value!r}: {error}", pointer=pointer) from None


def _value(config: EngineConfig, otherwise: EngineConfig, name: str) -> Json:
    value = getattr(config, name, None)
    return value if value is not None else getattr(otherwise, name, None)


def _nearest(dimension: Dimension, value: Json) -> Json:
    axis = _whole_axis(dimension)
    if value is None:
        return axis[len(axis) // 2]
    if isinstance(dimension, Choices) and (value in axis or not _are_numbers([value, *axis])):
        return value if value in axis else axis[0]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return axis[len(axis) // 2]
    if isinstance(dimension, NumberRange):
        return min(max(float(value), dimension.low), dimension.high)
    return min(axis, key=lambda point: abs(point - value))


def _are_numbers(values: Sequence[Json]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _axis(dimension: Dimension) -> Sequence[Json]:
    """Return at most a few values of a dimension, spread over it."""
    axis = _whole_axis(dimension)
    if isinstance(dimension, Choices) or len(axis) <= _GRID:
        return axis
    places = np.linspace(0, len(axis) - 1, _GRID)
    if isinstance(dimension, IntegerRange) and dimension.log:
        places = _places_by_ratio(len(axis), dimension)
    return [axis[place] for place in dict.fromkeys(round(float(at)) for at in places)]


def _places_by_ratio(number: int, dimension: IntegerRange) -> NDArray[np.float64]:
    wanted = np.geomspace(max(dimension.low, 1), dimension.high, _GRID)
    places: NDArray[np.float64] = np.clip((wanted - dimension.low) / dimension.step, 0, number - 1)
    return places


def _whole_axis(dimension: Dimension) -> Sequence[Json]:
    match dimension:
        case Choices():
            return dimension.values
        case IntegerRange():
            return range(dimension.low, dimension.high + 1, dimension.step)
        case NumberRange():
            return [float(value) for value in np.linspace(dimension.low, dimension.high, 101)]


def _count(dimension: Dimension) -> float:
    if isinstance(dimension, NumberRange):
        return math.inf if dimension.high > dimension.low else 1.0
    return float(len(_whole_axis(dimension)))


def _first(dimension: IntegerRange | NumberRange) -> Json:
    return dimension.low


def _last(dimension: IntegerRange | NumberRange) -> Json:
    return dimension.high
