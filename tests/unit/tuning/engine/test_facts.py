"""Which settings, values and metrics each release knows."""

import pytest

from api_schemas.engine import EngineConfig
from service.tuning.engine.facts import (
    all_settings,
    choices,
    is_known,
    known_settings,
    metric_labels,
    metric_name,
    metric_roles,
    metrics,
    refusal,
    setting_history,
)
from service.tuning.engine.grammar import NOT_CONFIGURATION, grammar
from service.tuning.engine.versions import NEWEST, SUPPORTED, parse_version


@pytest.mark.parametrize(
    ("setting", "version", "known"),
    [
        ("swap_space", "0.17.1", True),
        ("swap_space", "0.18.0", False),
        ("--max-num-seqs", "0.8.0", True),
        ("performance_mode", "0.16.0", False),
        ("performance_mode", "0.17.0", True),
        ("kv_cache_memory_bytes", "0.10.1", False),
        ("kv_cache_memory_bytes", "0.10.2", True),
        ("enable_microbatching", "0.33.0", False),
        ("no_such_setting", "0.33.0", False),
    ],
)
def test_a_setting_lives_from_its_first_release_to_its_last(
    setting: str, version: str, *, known: bool
) -> None:
    """Settings are known from the release that introduced them until the one that removed them."""
    assert is_known(setting, parse_version(version)) is known


def test_a_refusal_says_when_and_what_instead() -> None:
    """A removed setting names the release and what does its work today."""
    reason = refusal("swap_space", NEWEST)

    assert reason is not None
    assert "removed in 0.18.0" in reason
    assert "kv_offloading_size" in reason
    assert refusal("swap_space", parse_version("0.10.2")) is None


def test_a_setting_that_is_too_new_names_its_release() -> None:
    """Asking an old release for a new setting names the release that brought it."""
    assert "0.17.0" in (refusal("performance_mode", parse_version("0.11.0")) or "")


def test_a_misspelt_setting_names_its_neighbours() -> None:
    """Unknown names are answered with near ones of that release."""
    assert "max_num_seqs" in (refusal("max_num_seq", NEWEST) or "")


def test_what_replaces_a_setting_exists() -> None:
    """Every named replacement is a setting of some release."""
    named = {
        name
        for setting in all_settings()
        if (history := setting_history(setting)) is not None
        for name in history.replaced_by
    }

    assert named <= set(all_settings())


def test_the_wire_type_holds_exactly_the_settings_of_all_releases() -> None:
    """`EngineConfig` has a field for each setting, except model, files and secrets."""
    assert set(EngineConfig.__struct_fields__) == set(all_settings()) - NOT_CONFIGURATION


def test_every_known_setting_has_a_grammar() -> None:
    """What a release knows can be written and read on its command line."""
    aliases = {
        alias.lstrip("-").replace("-", "_")
        for setting in grammar().values()
        for alias in setting.aliases
    }
    for version in SUPPORTED:
        assert set(known_settings(version)) - NOT_CONFIGURATION <= set(grammar()) | aliases


@pytest.mark.parametrize(
    ("setting", "version", "value", "accepted"),
    [
        ("kv_cache_dtype", "0.10.2", "fp8", True),
        ("kv_cache_dtype", "0.19.0", "nvfp4", False),
        ("kv_cache_dtype", "0.20.0", "nvfp4", True),
        ("quantization", "0.27.0", "bitsandbytes", True),
        ("quantization", "0.28.0", "bitsandbytes", False),
        ("quantization", "0.24.0", "gguf", False),
        ("block_size", "0.17.1", 48, False),
        ("performance_mode", "0.33.0", "throughput", True),
    ],
)
def test_closed_lists_change_with_the_release(
    setting: str, version: str, value: str | int, *, accepted: bool
) -> None:
    """Formats and methods come and go; the list is that of the release."""
    listed = choices(setting, parse_version(version))

    assert listed is not None
    assert (value in listed) is accepted


def test_open_values_have_no_list() -> None:
    """Block sizes are free from 0.18.0 on; older releases' other lists are not known."""
    assert choices("block_size", NEWEST) is None
    assert choices("dtype", parse_version("0.20.0")) is None
    assert choices("max_num_seqs", NEWEST) is None


@pytest.mark.parametrize(
    ("role", "version", "name"),
    [
        ("kv_cache_usage", "0.9.1", "vllm:gpu_cache_usage_perc"),
        ("kv_cache_usage", "0.9.2", "vllm:kv_cache_usage_perc"),
        ("itl", "0.10.1", "vllm:time_per_output_token_seconds"),
        ("itl", "0.10.2", "vllm:inter_token_latency_seconds"),
        ("preemptions", "0.33.0", "vllm:num_preemptions_total"),
        ("prefix_cache_hits", "0.9.1", "vllm:gpu_prefix_cache_hits_total"),
        ("prefix_cache_hits", "0.33.0", "vllm:prefix_cache_hits_total"),
        ("tpot", "0.10.2", None),
        ("swapped", "0.33.0", None),
    ],
)
def test_metrics_carry_the_name_of_the_release(role: str, version: str, name: str | None) -> None:
    """Metric names changed; each release has one name per figure, or none."""
    assert metric_name(role, parse_version(version)) == name


def test_every_supported_release_exposes_the_vital_figures() -> None:
    """Queue, KV usage, preemptions and latencies can be watched on every supported release."""
    vital = {"running", "waiting", "kv_cache_usage", "preemptions", "ttft", "itl", "e2el"}
    for version in SUPPORTED:
        assert vital <= {metric.role for metric in metrics(version)}
    assert vital <= set(metric_roles())


def test_counters_end_in_total() -> None:
    """The Prometheus client adds _total to every counter."""
    counters = [metric.name for metric in metrics(NEWEST) if metric.type == "counter"]

    assert counters
    assert all(name.endswith("_total") for name in counters)


def test_the_engine_label_came_with_0_8_3() -> None:
    """Before, metrics were labelled by model alone."""
    assert metric_labels(parse_version("0.8.2")) == ("model_name",)
    assert metric_labels(NEWEST) == ("model_name", "engine")
