"""Rules of vLLM's scheduler that the simulation follows, each by one small load."""

import numpy as np
import pytest
from msgspec.structs import replace

from api_schemas.engine import EngineConfig
from api_schemas.slo import LatencyTarget, Slo
from service.tuning.engine.versions import parse_version
from service.tuning.latency import price as fields
from service.tuning.latency.closed_form import LoadShape, in_step_ttft_s
from service.tuning.memory.plan import KvGroup, KvPlan
from service.tuning.simulation.bounds import LimitMissed
from service.tuning.simulation.limits import SchedulerLimits, scheduler_limits
from service.tuning.simulation.metrics import request_latencies, summarize
from service.tuning.simulation.run import FrontEnd, Run, run_scheduler
from service.tuning.simulation.traffic import Traffic

LIMITS = SchedulerLimits(
    token_budget=64,
    max_num_seqs=8,
    num_blocks=100,
    groups=(KvGroup(kind="full", block_tokens=16),),
    admits_whole=True,
    watermark_blocks=0,
    shared_prefix_tokens=0,
    chunked_prefill=True,
)


def prices() -> np.ndarray:
    """One second per step and a millisecond per prompt token."""
    values = np.zeros(fields.PRICE_SIZE)
    values[fields.STEP] = 1.0
    values[fields.SCAN] = 1e-3
    values[fields.VERIFY] = values[fields.STAGES] = values[fields.EXPERT_RANKS] = 1.0
    values[fields.WINDOW] = 1 << 20
    return values


def run(
    prompts: list[int],
    outputs: list[int],
    *,
    limits: SchedulerLimits = LIMITS,
    concurrency: int = 0,
    arrivals: list[float] | None = None,
    front: FrontEnd | None = None,
    growth: float = 1.0,
) -> Run:
    number = len(prompts)
    load = Traffic(
        prompts=np.array(prompts, dtype=np.int64),
        outputs=np.array(outputs, dtype=np.int64),
        arrivals=np.array(arrivals or [0.0] * number),
        concurrency=concurrency,
        weights=np.full(number, 1 / number),
        waves=0.0,
        offered_requests_per_s=None,
    )
    done = run_scheduler(
        prices(), traffic=load, limits=limits, front_end=front or FrontEnd(), growth=growth
    )
    assert done is not None
    return done


def test_prompts_share_the_token_budget() -> None:
    """A prompt of 100 tokens takes two steps of a budget of 64; the next one waits for the rest."""
    done = run([100, 28], [1, 1])

    assert done.times[0, 3] == pytest.approx(2 + 0.064 + 0.064)
    assert done.times[1, 3] == pytest.approx(done.times[0, 3])


def test_max_num_seqs_caps_what_runs() -> None:
    """With one slot the second request starts when the first has ended."""
    done = run([10, 10], [5, 5], limits=replace(LIMITS, max_num_seqs=1))

    assert done.times[1, 2] == pytest.approx(done.times[0, 4])


def test_a_full_cache_preempts_the_last_admitted() -> None:
    """When blocks run out the newest request is sent back and computes its tokens again."""
    done = run([30, 30], [40, 40], limits=replace(LIMITS, num_blocks=6))

    assert done.marks[:, 3].tolist() == [0, 1]
    assert done.times[1, 4] > done.times[0, 4]
    assert done.recomputed_tokens > 0


def test_a_watermark_keeps_blocks_free_for_those_that_run() -> None:
    """Blocks kept free at admission avoid the preemption."""
    done = run([30, 30], [40, 40], limits=replace(LIMITS, num_blocks=6, watermark_blocks=3))

    assert done.preemptions == 0


def test_whole_admission_waits_where_the_first_chunk_alone_would_fit() -> None:
    """Since 0.19 a prompt is admitted only when all of it fits."""
    tight = replace(LIMITS, num_blocks=10, token_budget=32)
    load = [100, 150], [20, 1]

    gated = run(*load, limits=tight)
    early = run(*load, limits=replace(tight, admits_whole=False))

    assert early.times[1, 2] < gated.times[1, 2]


def test_preempted_blocks_are_found_again_when_prefixes_are_cached() -> None:
    """With prefix caching part of a preempted request need not be computed again."""
    tight = replace(LIMITS, num_blocks=13, admits_whole=False)
    load = [60, 60, 60], [40, 40, 40]

    anew = run(*load, limits=tight)
    cached = run(*load, limits=replace(tight, caches_prefixes=True))

    assert anew.preemptions > 0
    assert cached.recomputed_tokens < anew.recomputed_tokens


def test_a_shared_prefix_is_computed_once() -> None:
    """Later requests skip the tokens of the prefix and share its blocks."""
    limits = replace(LIMITS, shared_prefix_tokens=48)

    done = run([60, 60], [1, 1], limits=limits, concurrency=1)

    first, second = (done.times[:, 3] - done.times[:, 2]).tolist()
    assert second == pytest.approx(first - 0.048)


def test_a_new_client_misses_the_step_that_is_under_way() -> None:
    """What arrives when a step ends waits for the step that follows it."""
    done = run([10, 10, 10], [1, 3, 1], concurrency=2)

    assert done.times[2, 0] == pytest.approx(done.times[0, 4])
    assert done.times[2, 2] > done.times[2, 0]


def test_the_front_end_takes_requests_in_one_after_the_other() -> None:
    """Requests sent together reach the engine apart, and TTFT counts from sending."""
    front = FrontEnd(latency_s=0.5, service_s=0.25)

    done = run([10, 10], [1, 1], front=front)

    assert done.times[:, 1].tolist() == pytest.approx([0.75, 1.0])
    assert request_latencies(done).ttft[0] == pytest.approx(0.75 + 1.01)


def test_later_requests_of_a_loop_are_taken_in_faster() -> None:
    """Only the first request of a client opens its connection."""
    front = FrontEnd(service_s=0.25, again_share=0.2)

    done = run([10, 10], [1, 1], concurrency=1, front=front)

    assert (done.times[:, 1] - done.times[:, 0]).tolist() == pytest.approx([0.25, 0.05])


def test_speculation_takes_fewer_steps_for_the_same_tokens() -> None:
    """Two tokens per step nearly halve the steps."""
    plain = run([10], [41])
    drafted = run([10], [41], growth=2.0)

    assert plain.steps == 41
    assert drafted.steps == 21


def test_a_request_that_can_never_fit_is_told() -> None:
    """A run that is stuck has no figures."""
    load = Traffic(
        prompts=np.array([1000]),
        outputs=np.array([1]),
        arrivals=np.zeros(1),
        concurrency=0,
        weights=np.ones(1),
        waves=0.0,
        offered_requests_per_s=None,
    )

    assert run_scheduler(prices(), traffic=load, limits=replace(LIMITS, num_blocks=3)) is None


def test_percentiles_take_weights_into_account() -> None:
    """A value of nine tenths of the weight is the median."""
    summary = summarize(np.array([1.0, 100.0, np.nan]), np.array([0.9, 0.1, 5.0]))

    assert summary.p50 < 50
    assert summary.mean == pytest.approx(10.9)


@pytest.mark.parametrize(
    ("version", "whole", "watermark"),
    [("0.18.0", False, 0), ("0.20.0", True, 0), ("0.33.0", True, 10)],
)
def test_limits_follow_the_release(version: str, whole: object, watermark: int) -> None:
    """Whole-sequence admission came with 0.19, the watermark with 0.24."""
    kv = KvPlan(
        num_blocks=101,
        groups=LIMITS.groups,
        block_bytes=1,
        kv_cache_bytes=101,
        tokens=1600,
        max_concurrency=1.0,
        largest_max_model_len=1600,
        bytes_per_token=1.0,
        element_bytes=2.0,
    )
    config = EngineConfig(max_num_batched_tokens=2048, max_num_seqs=4, watermark=0.1)

    limits = scheduler_limits(
        config=config, kv=kv, version=parse_version(version), shared_prefix_tokens=0
    )

    assert (limits.admits_whole, limits.watermark_blocks) == (whole, watermark)
    assert limits.num_blocks == 100


def test_a_run_stops_when_too_many_answers_are_late_for_a_limit() -> None:
    """One slot and a queue of forty: half of them cannot start within five seconds."""
    number = 40
    load = Traffic(
        prompts=np.full(number, 10),
        outputs=np.full(number, 2),
        arrivals=np.zeros(number),
        concurrency=0,
        weights=np.full(number, 1 / number),
        waves=0.0,
        offered_requests_per_s=None,
    )
    limits = replace(LIMITS, max_num_seqs=1)
    tight = Slo(targets=[LatencyTarget(metric="ttft", percentile=50, limit_ms=5000)])
    loose = Slo(targets=[LatencyTarget(metric="ttft", percentile=50, limit_ms=50_000)])

    with pytest.raises(LimitMissed):
        run_scheduler(prices(), traffic=load, limits=limits, limited_by=tight)
    stopped = run_scheduler(prices(), traffic=load, limits=limits, limited_by=loose)
    whole = run_scheduler(prices(), traffic=load, limits=limits)
    assert stopped is not None
    assert whole is not None
    assert (stopped.times == whole.times).all()


def test_clients_in_step_wait_for_half_of_all_prompts() -> None:
    """Eight prompts of 40 tokens take ten steps of 32, and the median one waits for five."""
    limits = replace(LIMITS, token_budget=32)
    load = LoadShape(prompt_tokens=40, output_tokens=10, has_spread=False, concurrency=8.0)

    assert in_step_ttft_s(prices(), load=load, limits=limits) == pytest.approx(5 * 1.032)
