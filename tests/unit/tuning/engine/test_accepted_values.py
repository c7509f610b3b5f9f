"""Values that a release takes, and those that it does not."""

from typing import Any

import pytest

from api_schemas.base import Json
from service.tuning.engine.accepted_values import value_obstacle
from service.tuning.engine.grammar import grammar
from service.tuning.engine.package_data import read_facts
from service.tuning.engine.versions import NEWEST, known_releases, parse_version


def obstacle(name: str, value: Json, release: str = NEWEST.text, **beside: Json) -> str | None:
    """Return why the release refuses one setting's value."""
    return value_obstacle(
        name, value, version=parse_version(release), given={name: value, **beside}
    )


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("load_format", "evil", "auto, dummy, fastsafetensors, hf"),
        ("load_format", "safetensor", "takes: safetensors,"),
        ("compilation_config", "x", "an object of settings"),
        ("allowed_origins", "*", "a list of texts"),
        ("port", -5, "at least 0 and at most 65535"),
        ("port", 99999, "at least 0 and at most 65535"),
        ("port", "abc", "a whole number"),
        ("seed", 1.5, "a whole number"),
        ("enable_log_requests", "maybe", "either true or false"),
        ("served_model_name", [{"a": 1}], "a text"),
        ("attention_backend", "EVIL", "FLASHINFER"),
        ("distributed_executor_backend", "evil", "mp, ray, uni, or the path of a class"),
        ("kv_cache_metrics_sample", 0, "at most 1 and above 0"),
        ("optimization_level", 9, "at least 0 and at most 3"),
    ],
)
def test_a_refused_value_is_answered_with_what_is_allowed(
    name: str, value: Json, allowed: str
) -> None:
    """The message names the setting, the value and what vLLM takes."""
    message = obstacle(name, value)

    assert message is not None
    assert message.startswith(f"{name}=")
    assert allowed in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "8000"),
        ("host", "0.0.0.0"),  # a value, nothing listens
        ("allowed_origins", ["*"]),
        ("attention_backend", "flash_attn"),
        ("distributed_executor_backend", "my_package.Executor"),
        ("compilation_config", {"mode": 3}),
        ("hf_overrides", {"rope_scaling": None}),
        ("served_model_name", ["a", "b"]),
        ("reasoning_parser", ""),
    ],
)
def test_what_vllm_takes_is_accepted(name: str, value: Json) -> None:
    """Numbers as text, one case or the other, paths of classes and empty texts are no mistakes."""
    assert obstacle(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "taken", "refused"),
    [
        ("load_format", "gguf", "0.21.0", "0.33.0"),
        ("load_format", "instanttensor", "0.20.0", "0.16.0"),
        ("compilation_config", 3, "0.11.0", "0.12.0"),
        ("tokenizer_mode", "slow", "0.26.0", "0.33.0"),
    ],
)
def test_values_come_and_go_with_releases(name: str, value: Json, taken: str, refused: str) -> None:
    """The same value is right for one release and a mistake for another."""
    assert obstacle(name, value, taken) is None
    assert obstacle(name, value, refused) is not None


def test_between_two_inspected_releases_the_values_of_both_count() -> None:
    """Nobody read 0.23.0: gguf left before 0.26.0 and modelexpress came by then."""
    assert obstacle("load_format", "gguf", "0.23.0") is None
    assert obstacle("load_format", "modelexpress", "0.23.0") is None
    assert obstacle("load_format", "evil", "0.23.0") is not None


def test_a_parser_counts_only_where_vllm_looks_it_up() -> None:
    """Without tool choice it is not read; a plug-in of one's own adds to the list."""
    plugin: dict[str, Any] = {"tool_parser_plugin": "mine.py"}

    assert obstacle("tool_call_parser", "mine") is None
    assert obstacle("tool_call_parser", "mine", enable_auto_tool_choice=True) is not None
    assert obstacle("tool_call_parser", "mine", enable_auto_tool_choice=True, **plugin) is None


@pytest.mark.parametrize("release", [version.text for version in known_releases()])
def test_the_defaults_of_vllm_are_values_that_it_takes(release: str) -> None:
    """No default of the newest release is refused by the lists, bounds and kinds of any."""
    for name, setting in grammar().items():
        if setting.default not in (None, "==SUPPRESS=="):
            assert obstacle(name, setting.default, release) is None, name


def test_lists_and_bounds_are_of_settings_that_exist() -> None:
    """A misspelt name in the data would check nothing."""
    facts = read_facts("values")

    assert {*facts["lists"], *facts["ranges"]} <= set(grammar())
