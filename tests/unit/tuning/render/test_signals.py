"""What to watch on each release."""

import pytest

from api_schemas.engine import EngineConfig
from api_schemas.recommendation import Watch
from api_schemas.slo import LatencyTarget, Percentile, Slo
from service.tuning.engine.versions import parse_version
from service.tuning.render.signals import watch_list


def watched(version: str = "0.33.0", **slo: float) -> list[Watch]:
    """Return what to watch with a TPOT and an ITL target."""
    targets = [
        LatencyTarget(metric="tpot", percentile=95, limit_ms=30),
        LatencyTarget(metric="itl", percentile=95, limit_ms=5),
    ]
    return watch_list(parse_version(version), slo=Slo(targets=targets, **slo), model_name="m")


def test_queue_cache_and_preemptions_are_always_watched() -> None:
    """Even without targets the three signs of overload are there."""
    metrics = " ".join(watch.metric for watch in watch_list(parse_version("0.33.0")))

    assert "vllm:num_preemptions_total" in metrics
    assert "vllm:kv_cache_usage_perc" in metrics
    assert "vllm:num_requests_waiting" in metrics
    assert "{" not in metrics


def test_the_limit_on_preemptions_is_the_one_that_was_given() -> None:
    """`max_preemptions_per_request` of the targets becomes the threshold."""
    assert "> 0.002 per request" in watched(max_preemptions_per_request=0.002)[0].threshold
    assert "> 0.01 per request" in watched()[0].threshold


@pytest.mark.parametrize(
    ("percentile", "part"),
    [(95, "histogram_quantile(0.95,"), (50, "histogram_quantile(0.5,"), ("mean", "_sum{")],
)
def test_a_target_becomes_its_statistic(percentile: Percentile, part: str) -> None:
    """Percentiles come from the histogram, means from sum and count."""
    slo = Slo(targets=[LatencyTarget(metric="ttft", percentile=percentile, limit_ms=500)])

    last = watch_list(parse_version("0.33.0"), slo=slo, model_name="m")[-1]

    assert part in last.metric
    assert last.threshold == "> 0.5 s for 10 min"


def test_before_0_11_gaps_stand_in_for_time_per_token() -> None:
    """The per-request histogram came with 0.11.0; older releases say what they use instead."""
    old = next(watch for watch in watched("0.10.2") if "TPOT" in watch.meaning)
    new = next(watch for watch in watched("0.11.0") if "TPOT" in watch.meaning)

    assert "vllm:inter_token_latency_seconds" in old.metric
    assert "gaps stand in" in old.meaning
    assert "vllm:request_time_per_output_token_seconds" in new.metric


def test_limits_below_the_finest_bucket_are_owned_up_to() -> None:
    """A gap limit of 5 ms cannot be seen in buckets that start at 10 ms."""
    assert "not resolved" in watched()[-1].meaning


def test_the_admission_cap_is_watched_where_it_is_known() -> None:
    """With max_num_seqs known, running at the cap is a sign of its own."""
    config = EngineConfig(max_num_seqs=64)

    found = watch_list(parse_version("0.33.0"), config=config)

    assert any(watch.threshold.startswith("> 63 requests") for watch in found)


def test_quotes_in_a_model_name_stay_inside_the_label() -> None:
    """A served name is a string in PromQL, whatever it holds."""
    found = watch_list(parse_version("0.33.0"), model_name='a"b\\c')

    assert 'model_name="a\\"b\\\\c"' in found[0].metric
