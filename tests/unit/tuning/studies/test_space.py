"""The space of a study: what may vary, and where a configuration lies in it."""

import math

import pytest

from api_schemas.engine import EngineConfig
from api_schemas.study import Choices, Dimension, IntegerRange, NumberRange
from service.tuning.engine.versions import parse_version
from service.tuning.errors import InvalidRequest
from service.tuning.studies.space import (
    check_space,
    configuration,
    largest_layout,
    projected,
    scan,
    size_of,
)

_VERSION = parse_version("0.33.0")


@pytest.mark.parametrize(
    ("name", "dimension", "pointer"),
    [
        ("no_such_setting", Choices(values=[1]), "/space/no_such_setting"),
        ("max_num_seqs", IntegerRange(low=9, high=8), "/space/max_num_seqs/high"),
        ("max_num_seqs", IntegerRange(low=0, high=8, log=True), "/space/max_num_seqs/low"),
        ("max_num_seqs", Choices(values=["many"]), "/space/max_num_seqs/values/0"),
        ("max_num_seqs", Choices(values=[8, 8]), "/space/max_num_seqs/values"),
        ("max_num_seqs", NumberRange(low=8, high=16), "/space/max_num_seqs"),
        ("enforce_eager", IntegerRange(low=0, high=1), "/space/enforce_eager/low"),
    ],
)
def test_a_space_that_makes_no_sense_names_its_place(
    name: str, dimension: Dimension, pointer: str
) -> None:
    """Unknown settings and values that a setting cannot take are refused before any trial."""
    with pytest.raises(InvalidRequest) as refused:
        check_space({name: dimension}, version=_VERSION)

    assert refused.value.pointer == pointer


def test_a_sensible_space_is_taken() -> None:
    """Whole numbers, numbers and choices, of settings that the release has."""
    check_space(
        {
            "max_num_seqs": IntegerRange(low=8, high=512, log=True),
            "gpu_memory_utilization": NumberRange(low=0.85, high=0.95),
            "enable_prefix_caching": Choices(values=[True, False]),
            "kv_cache_dtype": Choices(values=["auto", "fp8"]),
        },
        version=_VERSION,
    )


def test_a_configuration_lies_at_its_nearest_point() -> None:
    """What it states is kept when the space has it; what it leaves out is vLLM's own."""
    space: dict[str, Dimension] = {
        "max_num_seqs": IntegerRange(low=8, high=64, step=8),
        "max_num_batched_tokens": Choices(values=[2048, 8192]),
    }
    effective = EngineConfig(max_num_seqs=256, max_num_batched_tokens=8192)

    point = projected(EngineConfig(max_num_seqs=21), space, otherwise=effective)

    assert point == {"max_num_seqs": 24, "max_num_batched_tokens": 8192}
    assert configuration(EngineConfig(block_size=16), point) == EngineConfig(
        block_size=16, max_num_seqs=24, max_num_batched_tokens=8192
    )


def test_a_number_between_the_choices_lies_at_the_nearest() -> None:
    """The 256 sequences of vLLM lie at the 32 of a smaller space, not at whatever comes first."""
    space: dict[str, Dimension] = {
        "max_num_seqs": Choices(values=[4, 16, 32]),
        "kv_cache_dtype": Choices(values=["fp8", "fp8_e5m2"]),
    }
    effective = EngineConfig(max_num_seqs=256, kv_cache_dtype="auto")

    point = projected(EngineConfig(), space, otherwise=effective)

    assert point == {"max_num_seqs": 32, "kv_cache_dtype": "fp8"}


def test_a_scan_covers_the_space_and_stays_small() -> None:
    """Ends and middle of every dimension are looked at; a huge grid is thinned by the seed."""
    small: dict[str, Dimension] = {
        "max_num_seqs": IntegerRange(low=8, high=512, log=True),
        "enforce_eager": Choices(values=[True, False]),
    }
    names = ("max_num_seqs", "max_num_batched_tokens", "block_size", "max_loras", "max_lora_rank")
    huge: dict[str, Dimension] = {name: IntegerRange(low=1, high=1000) for name in names}

    points = scan(small, seed=0)

    assert {point["max_num_seqs"] for point in points} >= {8, 64, 512}
    assert len(points) == 18
    assert len(scan(huge, seed=0)) <= 4096
    assert scan(huge, seed=3) == scan(huge, seed=3)


def test_sizes_are_counted() -> None:
    """A space of choices is finite, one with a real number is not."""
    choices: dict[str, Dimension] = {
        "enforce_eager": Choices(values=[True, False]),
        "max_num_seqs": IntegerRange(low=1, high=3),
    }

    assert size_of(choices) == 6
    assert size_of({"gpu_memory_utilization": NumberRange(low=0.8, high=0.9)}) == math.inf


@pytest.mark.parametrize(
    ("space", "sizes"),
    [
        ({"max_num_seqs": Choices(values=[8, 16])}, (2, None, None)),
        ({"tensor_parallel_size": Choices(values=[1, 4, 2])}, (4, None, None)),
        ({"tensor_parallel_size": IntegerRange(low=1, high=1)}, (2, None, None)),
        (
            {
                "pipeline_parallel_size": IntegerRange(low=1, high=4, step=3),
                "data_parallel_size": Choices(values=[1, 2]),
            },
            (2, 4, 2),
        ),
    ],
)
def test_the_largest_layout_holds_every_trial(
    space: dict[str, Dimension], sizes: tuple[int | None, ...]
) -> None:
    """Each size is the largest of the space and of the recommendation, which is a trial too."""
    largest = largest_layout(EngineConfig(tensor_parallel_size=2), space)

    assert (
        largest.tensor_parallel_size,
        largest.pipeline_parallel_size,
        largest.data_parallel_size,
    ) == sizes
