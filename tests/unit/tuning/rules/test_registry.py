"""The rules as a whole: ids, order, and that no value whatsoever makes them fail."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import EngineVersion
from service.tuning.memory.budget import plan_memory
from service.tuning.rules import all_rules, check_rules, find_rule
from service.tuning.rules.base import RuleContext, number, positive_int
from tests.unit.tuning.rules.builders import (
    DEEPSEEK,
    GEMMA_4,
    LLAMA_8B,
    QWEN_HYBRID,
    node_of,
    situation,
    spec_of,
    version,
)

_ODD_VALUES = st.sampled_from(
    [
        *(0, -1, 1, 3, 7, 1.5, 10**15, float("nan"), float("inf"), "auto", "", "x" * 300, "fp8"),
        *(True, False, [], {}, [None], {"image": "many"}, {"method": 3}, {"a": {"b": None}}),
    ]
)
_TYPED = {
    "kv_cache_dtype": st.sampled_from(["auto", "fp8", "fp8_e5m2", "", "bf16", "AUTO"]),
    "quantization": st.sampled_from(["awq", "", "GPTQ", "auto_round", "fp8", "nope"]),
    "dtype": st.sampled_from(["auto", "bf16", "", "half"]),
    "scheduling_policy": st.sampled_from(["fcfs", "", "lifo"]),
    "performance_mode": st.sampled_from(["", "throughput", "x"]),
    "speculative_config": st.sampled_from(
        [{}, {"method": 3}, {"method": "ngram", "num_speculative_tokens": "two"}]
    ),
    "limit_mm_per_prompt": st.sampled_from([{}, {"image": "x"}, {"image": {"count": -1}}]),
    "cudagraph_capture_sizes": st.sampled_from([[], [0], [1, 2]]),
    "mamba_ssm_cache_dtype": st.just("float32"),
}
_NAMES = st.sampled_from(EngineConfig.__struct_fields__)


@st.composite
def odd_configs(draw: st.DrawFn) -> EngineConfig:
    """Draw settings with values that make no sense."""
    names = draw(st.lists(_NAMES, unique=True, max_size=12))
    return EngineConfig(**{name: draw(_TYPED.get(name, _ODD_VALUES)) for name in names})


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    config=odd_configs(),
    model=st.sampled_from([None, LLAMA_8B, DEEPSEEK, QWEN_HYBRID, GEMMA_4]),
    gpu=st.sampled_from([None, "H100-SXM5-80GB", "T4", "MI300X", "CPU", "GB10"]),
    release=st.sampled_from(["0.5.0", "0.8.0", "0.11.0", "0.19.0", "0.33.0"]),
    text=st.sampled_from(["", "1", "a,b", "1,2"]),
)
def test_no_value_makes_the_rules_fail(
    config: EngineConfig, model: str | None, gpu: str | None, release: str, text: str
) -> None:
    """Nonsense is answered with findings, never with an exception."""
    context = RuleContext(
        version=version(release),
        given=config,
        effective=config,
        spec=spec_of(model) if model else None,
        node=node_of(gpu) if gpu else None,
        env={"VLLM_PP_LAYER_PARTITION": text, "VLLM_ATTENTION_BACKEND": text},
    )

    found = check_rules(context)

    assert all(finding.message for finding in found)


def test_findings_come_errors_first_and_always_in_the_same_order() -> None:
    """The order does not depend on the settings' order, and errors lead."""
    context = situation(
        gpus=4,
        tensor_parallel_size=4,
        block_size=8,
        enforce_eager=True,
        swap_space=4.0,
        enable_prefix_caching=True,
    )

    found = check_rules(context)

    ranks = [("error", "warning", "note").index(finding.severity) for finding in found]
    assert ranks == sorted(ranks)
    assert found == check_rules(context)


def test_ids_are_unique_well_formed_and_sorted() -> None:
    """An id is a letter group with three digits, and means one rule."""
    ids = [rule.id for rule in all_rules()]

    assert ids == sorted(set(ids))
    assert all(re.fullmatch(r"[A-Z]{2,3}\d{3}", rule_id) for rule_id in ids)


def test_every_rule_explains_itself() -> None:
    """Title, help and a source with a place are there for every rule."""
    for rule in all_rules():
        assert rule.title
        assert rule.help.endswith(".")
        assert rule.source
        assert all(source.title and source.where for source in rule.source)


def test_a_rule_holds_from_since_up_to_but_without_until() -> None:
    """Since is the first release it is true of, until the first it is not."""
    rule = find_rule("SCH011")

    assert rule is not None
    assert [rule.holds_for(version(text)) for text in ("0.7.3", "0.8.0", "0.26.0", "0.27.0")] == [
        False,
        True,
        True,
        False,
    ]


def test_lifetimes_are_releases_in_order() -> None:
    """Every since is older than its until, and both are releases."""
    for rule in all_rules():
        if rule.since is not None and rule.until is not None:
            assert EngineVersion.of(rule.since).release < EngineVersion.of(rule.until).release


def test_an_unknown_id_is_no_rule() -> None:
    """There is no rule where none was written."""
    assert find_rule("XYZ999") is None


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None, float("nan")])
def test_only_whole_numbers_from_one_are_counts(value: object) -> None:
    """Everything else is treated as not said."""
    assert positive_int(value) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "0.9", None])
def test_only_finite_numbers_are_numbers(value: object) -> None:
    """Infinities, booleans and text are treated as not said."""
    assert number(value) is None


def test_defaults_of_a_plain_server_raise_no_error() -> None:
    """A model that fits, with nothing set, is nothing to complain about."""
    found = check_rules(situation())

    assert [finding.rule for finding in found if finding.severity != "note"] == []


def test_one_impossible_size_is_one_error() -> None:
    """Five ranks break heads, vocabulary and widths at once; one finding names the first."""
    context = situation(gpus=8, tensor_parallel_size=5, planned=False)

    errors = [finding for finding in check_rules(context) if finding.severity == "error"]

    assert [finding.rule for finding in errors] == ["PAR001"]
    assert "1, 2, 4, 8" in (errors[0].suggestion or "")


def test_a_plan_is_not_needed() -> None:
    """Rules that need a memory plan wait for one; the others speak without it."""
    context = situation(planned=False, enforce_eager=True)
    planned = plan_memory(
        spec=spec_of(LLAMA_8B), node=node_of(), config=context.effective, version=version()
    )

    assert context.plan is None
    assert planned.fits
    assert [finding.rule for finding in check_rules(context)][:1] == ["GRF001"]
