"""Recommendations proven by real vLLM on the CPU: what it says and does is what was predicted."""

from typing import Any

import pytest

from tests.vllm_cpu.conftest import Prover

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

_TTFT = {"targets": [{"metric": "ttft", "percentile": 95, "limit_ms": 20_000}]}
_CLOSED = {
    "prompt_tokens": 64,
    "output_tokens": 64,
    "arrivals": {"kind": "closed_loop", "max_concurrency": 8},
}
_LONG_TAILED = {
    "prompt_tokens": {"kind": "lognormal", "mean": 100, "p99": 300},
    "output_tokens": {"kind": "histogram", "upper": [16, 32, 64], "weight": [1, 1, 2]},
    "shared_prefix_tokens": 64,
    "arrivals": {"kind": "gamma", "requests_per_s": 10, "burstiness": 0.7},
}
_SMALL_POOL = {
    "kv_cache_memory_bytes": 512 * 1024,
    "block_size": 32,
    "max_num_seqs": 16,
    "max_model_len": 512,
    "max_num_batched_tokens": 512,
}


def _pinned(**settings: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"pin": {"kv_cache_memory_bytes": 64 * 2**20, "max_num_seqs": 32} | settings}


def test_a_booted_recommendation_has_the_predicted_capacity(prover: Prover) -> None:
    """The KV tokens that vLLM reports are those that were predicted, within 2 %."""
    record = prover.prove("boot", minutes=15, workload=_CLOSED, slo=_TTFT)

    startup = record["startup"]
    predicted = startup["predicted"]["kv_cache_tokens"]
    assert startup["kv_cache_tokens"] == pytest.approx(predicted, rel=0.02)
    assert startup["max_concurrency"] == pytest.approx(
        startup["predicted"]["max_concurrency"], rel=0.02
    )
    assert record["verdict"] == "pass"
    assert record["environment"]["cpu"] is True
    assert record["command"][1] == "serve"


def test_a_quick_load_is_measured_beside_its_prediction(prover: Prover) -> None:
    """Long-tailed lengths at a bursty rate with a shared prefix are played as they were asked."""
    record = prover.prove(
        "quick",
        minutes=15,
        workload=_LONG_TAILED,
        slo=_TTFT,
        constraints=_pinned(block_size=32, max_model_len=1024),
    )

    assert record["startup"]["error_percent"]["kv_cache_tokens"] == pytest.approx(0, abs=2)
    assert len(record["load_points"]) == 2
    for point in record["load_points"]:
        assert point["completed"] == point["num_requests"]
        assert point["preemptions"] == 0
        assert 0 < point["prefix_cache_hit_ratio"] < 1
        assert 0 < point["ttft_ms"]["p50"] <= point["e2el_ms"]["p99"]
        assert point["predicted"]["output_tokens_per_s"] > 0
    assert record["slo"][0]["verdict"] == "met"
    assert record["verdict"] == "pass"


def test_the_knee_of_a_small_pool_is_found_and_confirmed(prover: Prover) -> None:
    """More requests than the pool holds are preempted; the cap that is found holds afresh."""
    record = prover.prove(
        "knee",
        minutes=15,
        workload=_CLOSED
        | {"output_tokens": 192, "arrivals": {"kind": "closed_loop", "max_concurrency": 16}},
        slo=_TTFT | {"max_preemptions_per_request": 0.01},
        constraints={"pin": _SMALL_POOL},
    )

    points = {point["label"]: point for point in record["load_points"]}
    as_asked = next(point for label, point in points.items() if "as-asked" in label)
    confirmed = [point for label, point in points.items() if "confirm" in label][-1]
    assert as_asked["preemptions"] > 0
    assert as_asked["predicted"]["preemptions_per_request"] > 0
    assert record["verdict"] == "fail"
    assert record["knee"]["confirmed"] is True
    assert confirmed["preemptions"] == 0
    assert confirmed["config"]["max_num_seqs"] == record["knee"]["max_num_seqs"] < 16
    assert record["suggested_config"]["max_num_seqs"] == record["knee"]["max_num_seqs"]


def test_defaults_and_recommendation_are_compared_honestly(prover: Prover) -> None:
    """Both start alternately; no difference is claimed whose interval holds 1."""
    record = prover.prove(
        "compare", minutes=3, workload=_CLOSED, slo=_TTFT, constraints=_pinned(max_model_len=512)
    )

    comparison = record["comparison"]
    sides = [point["label"].split("-")[1] for point in record["load_points"]]
    assert sides[:2] == ["defaults", "recommended"]
    assert comparison["starts_each"] >= 1
    for figure in comparison["figures"]:
        assert figure["defaults"] > 0
        assert (figure["interval"] is None) == (comparison["starts_each"] == 1)
        low, high = figure["interval"] or (0.0, float("inf"))
        assert (figure["outcome"] == "no_difference_shown") == (low <= 1 <= high)
