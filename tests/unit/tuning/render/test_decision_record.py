"""DECISION.md: what people read before they merge."""

import pytest

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate, MemoryBreakdown, Percentiles, Performance, Provenance
from api_schemas.explanation import Decision, Finding, Source
from api_schemas.slo import TargetOutcome
from service.tuning.render.decision_record import decision_record, escape
from service.tuning.render.rendering import Rendering
from tests.unit.tuning.render.examples import rendering

DECISION = Decision(
    setting="max_num_seqs",
    value=128,
    rule="SEQ001",
    reason="as many as the KV cache | holds",
    formula="floor(tokens / mean length)",
    inputs={"kv_cache_tokens": 240_000, "mean_tokens": 1500.0},
    source=[Source(title="guide G3", where="section 2")],
    if_higher="preemptions",
    if_lower="queueing",
    confidence="high",
)
FINDING = Finding(
    rule="CAP003",
    severity="warning",
    message="little room <b>left</b>",
    setting="gpu_memory_utilization",
    suggestion="0.9",
)
PERCENTILES = Percentiles(mean=100.0, p50=90.0, p90=150.0, p95=180.5, p99=300.0)
ESTIMATE = Estimate(
    fits=True,
    memory=MemoryBreakdown(
        total_gib=79.19,
        requested_gib=71.27,
        weights_gib=14.99,
        activation_gib=2.0,
        non_torch_gib=0.25,
        cuda_graphs_gib=0.8,
        kv_cache_gib=53.2,
        kv_cache_tokens=435_000,
        kv_cache_blocks=27_187,
        block_size=16,
        kv_bytes_per_token=131_072.0,
        max_concurrency=53.1,
        max_model_len=8192,
        largest_max_model_len=131_072,
        band={},
    ),
    performance=Performance(
        ttft_ms=PERCENTILES,
        tpot_ms=PERCENTILES,
        itl_ms=PERCENTILES,
        e2el_ms=PERCENTILES,
        requests_per_s=4.0,
        output_tokens_per_s=1200.0,
        total_tokens_per_s=5000.0,
        goodput_requests_per_s=4.0,
        preemptions_per_request=0.0,
        kv_cache_usage=0.42,
        running_requests=30.0,
        waiting_requests=0.1,
        saturated=False,
        band={},
    ),
    slo=[
        TargetOutcome(
            target={"metric": "ttft", "percentile": 95, "limit_ms": 500},
            predicted_ms=180.5,
            predicted=None,
            margin=0.64,
            verdict="met",
        )
    ],
    basis="calibrated",
    defaults_applied=EngineConfig(),
    findings=[],
    provenance=Provenance(
        setpoint_version="0.1.0",
        engine_version="0.33.0",
        catalogue_version="c1",
        coefficients_version="k1",
        seed=7,
    ),
)


def full(**changes: Json) -> Rendering:
    """Return a rendering with everything known."""
    values: dict[str, Json] = {
        "headline": "128 requests at once, 64 % below the limit",
        "decisions": (DECISION,),
        "findings": (FINDING,),
        "assumptions": ("output lengths of the chat preset",),
        "estimate": ESTIMATE,
        **changes,
    }
    return rendering(EngineConfig(max_num_seqs=128), **values)


@pytest.mark.parametrize(
    "part",
    [
        "# 128 requests at once",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 128",
        "floor(tokens / mean length)",
        "kv\\_cache\\_tokens = 240000, mean\\_tokens = 1500.0",
        "guide G3 (section 2)",
        "preemptions",
        "queueing",
        "high",
        "output lengths of the chat preset",
        "| KV cache | 53.20 GiB |",
        "435,000",
        "| TTFT | 100.0 | 90.0 | 150.0 | 180.5 | 300.0 |",
        "basis: calibrated",
        "| metric ttft, percentile 95, limit\\_ms 500 | 180.5 ms | +64% | met |",
        "CAP003",
        "vllm:num\\_preemptions\\_total",
        "catalogue c1",
    ],
)
def test_the_record_says_what_was_decided_and_why(part: str) -> None:
    """Settings with reasons, memory, prediction, targets, findings and what to watch are there."""
    assert part in decision_record(full()).content


def test_no_cell_breaks_the_table() -> None:
    """Pipes, line breaks and markup of a reason stay inside their cell."""
    lines = decision_record(full()).content.splitlines()
    rows = [line for line in lines if line.startswith("| max\\_num\\_seqs |")]

    assert len(rows) == 1
    assert "as many as the KV cache \\| holds" in rows[0]
    assert "\\<b\\>left\\</b\\>" in decision_record(full()).content


def test_unknown_parts_are_left_out() -> None:
    """Without an estimate there is no memory, no prediction, and no empty heading."""
    content = decision_record(rendering()).content

    assert "## Memory" not in content
    assert "## Prediction" not in content
    assert "## Settings" not in content
    assert content.startswith("# meta-llama/Llama-3.1-8B-Instruct")


@pytest.mark.parametrize("text", ["a\nb", "a | b", "`x`", "[x](y)", "<script>", "# x"])
def test_escaped_text_is_one_harmless_line(text: str) -> None:
    """Nothing in a text can start markup or a new line."""
    escaped = escape(text)

    assert "\n" not in escaped
    assert not any(f" {c}" in f" {escaped}" for c in "|`<#[")
