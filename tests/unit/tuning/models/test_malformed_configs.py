"""Configs that nobody should send, and that still get a proper refusal."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.tuning.errors import InvalidRequest, TuningError, UnsupportedArchitecture
from service.tuning.models.hf_config import read_config
from service.tuning.models.inventory import ParallelLayout, parameter_count, rank_weight_bytes
from tests.unit.tuning.models.published_models import PUBLISHED, UNUSUAL

CONFIGS = [config for config, _, _ in PUBLISHED.values()] + list(UNUSUAL.values())
ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-3, max_value=3),
    st.integers(min_value=-(10**30), max_value=10**30),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["full_attention", "re:(a+)+$", "*", ".*", "M*-E", "auto", "float8"]),
    st.lists(
        st.one_of(
            st.integers(-2, 9),
            st.text(max_size=3),
            st.none(),
            st.dictionaries(st.text(max_size=3), st.integers(), max_size=1),
        ),
        max_size=4,
    ),
    st.dictionaries(st.text(max_size=6), st.integers(-5, 5), max_size=2),
)


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value inside a config."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from places(inner, (*path, key))


def changed(config: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """Return a copy with one value replaced."""
    copied = copy.deepcopy(config)
    inner: Any = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copied


def refusal_of(config: dict[str, Any]) -> TuningError | None:
    """Return how a config is refused, None when its weights can be listed."""
    try:
        spec = read_config(config, model_id="example/model")
    except (InvalidRequest, UnsupportedArchitecture) as refusal:
        return refusal
    parameter_count(spec)
    rank_weight_bytes(spec, ParallelLayout(tensor_parallel_size=2), stage=0)
    return None


@settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_a_changed_config_is_read_or_properly_refused(data: st.DataObject) -> None:
    """No value in a config, however odd, escapes as anything but a refusal."""
    config = data.draw(st.sampled_from(CONFIGS))
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(sorted(places(config), key=str)))
        config = changed(config, path, data.draw(ODD_VALUES))

    refusal = refusal_of(config)

    assert refusal is None or refusal.pointer.startswith("/model/config")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["architectures"][0])
def test_leaving_any_key_out_is_read_or_properly_refused(config: dict[str, Any]) -> None:
    """A missing key is a default or a refusal, never a KeyError."""
    for path in places(config):
        refusal = refusal_of(changed(config, path, None))

        assert refusal is None or refusal.message
