"""Length, memory share and admission cap, against the guides' worked figures."""

import math

import msgspec
import pytest

from api_schemas.recommendation import Posture
from api_schemas.workload import LognormalLength, PoissonArrivals, UniformLength, Workload
from service.tuning.engine.versions import parse_version
from service.tuning.hardware.catalogue import find_gpu
from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import KvGroup, KvPlan
from service.tuning.search.admission_rule import (
    choose_admission,
    least_for_load,
    round_down,
    theoretical_limit,
)
from service.tuning.search.demand import Demand, demand_of
from service.tuning.search.lengths_rule import choose_length
from service.tuning.search.utilization_rule import choose_utilization


def workload(**changes: object) -> Workload:
    """Return a filled chat-like workload with some fields changed."""
    fields: dict[str, object] = {
        "prompt_tokens": UniformLength(low=500, high=1500),
        "output_tokens": UniformLength(low=50, high=350),
        "arrivals": PoissonArrivals(requests_per_s=1),
    }
    return Workload(**(fields | changes))  # type: ignore[arg-type]


def demand(**changes: object) -> Demand:
    """Return the demand of such a workload."""
    return demand_of(workload(**changes))


def node(gpu: str = "H100-SXM5-80GB", **changes: object) -> Node:
    """Return a node of one such GPU."""
    part = find_gpu(gpu)
    fields: dict[str, object] = {
        "gpu": part,
        "gpus_per_node": 1,
        "nodes": 1,
        "interconnect": "none",
        "total_memory_gib": part.memory_gib,
        "used_memory_gib": 0.0,
        "host_memory_gib": None,
        "price_per_gpu_hour": None,
    }
    return Node(**(fields | changes))  # type: ignore[arg-type]


def pool(*, blocks: int, block_tokens: int = 16) -> KvPlan:
    """Return the KV plan of a dense model with this many blocks."""
    return KvPlan(
        num_blocks=blocks,
        groups=(KvGroup(kind="full", block_tokens=block_tokens),),
        block_bytes=2 * 2**20,
        kv_cache_bytes=blocks * 2 * 2**20,
        tokens=blocks * block_tokens,
        max_concurrency=1.0,
        largest_max_model_len=blocks * block_tokens,
        bytes_per_token=131_072,
        element_bytes=2,
    )


def test_a_stated_peak_gets_a_fifth_on_top() -> None:
    """A business peak of 8000 tokens gives 9600 (guide 3: x 1.2)."""
    choice = choose_length(demand(max_request_tokens=8000), model_limit_tokens=131_072)

    assert choice.wanted_tokens == 9600
    assert choice.needed_tokens == 8000


def test_length_follows_the_tail_of_the_prompts_not_their_mean() -> None:
    """Prompts of mean 2k with a 99th percentile of 12k need at least 14k (guide 3)."""
    prompts = LognormalLength(mean=2000, p99=12_000)

    choice = choose_length(demand(prompt_tokens=prompts), model_limit_tokens=131_072)

    assert 14_000 <= choice.wanted_tokens <= 16_000


def test_length_never_exceeds_the_model() -> None:
    """A model of 4096 tokens caps the length and says so."""
    choice = choose_length(demand(max_request_tokens=8000), model_limit_tokens=4096)

    assert choice.wanted_tokens == choice.needed_tokens == 4096
    assert choice.capped_by_model


def test_theoretical_limit_of_the_worked_example() -> None:
    """30 GB pool, 0.12 MB per token, 2000 tokens a request: 125 requests (guide 3)."""
    assert theoretical_limit(pool_tokens=30_000 / 0.12, live_tokens=2000) == pytest.approx(125)


@pytest.mark.parametrize("posture", ["production", "aggressive"])
def test_the_cap_keeps_below_the_worked_limit(posture: Posture) -> None:
    """With 250,000 tokens and 2000 per request the cap stays under 125; 256 would preempt."""
    fixed = demand(prompt_tokens=1800, output_tokens=200)

    choice = choose_admission(
        pool(blocks=250_000 // 16), fixed, posture=posture, prefix_caching=True
    )

    assert choice.theoretical == pytest.approx(125, rel=0.01)
    assert {"production": 80, "aggressive": 96}[posture] <= choice.value <= 112


def test_a_shared_prefix_is_counted_once() -> None:
    """Requests that share most of their prompt leave room for more of them."""
    plain = demand(prompt_tokens=4000, output_tokens=200)
    shared = demand(prompt_tokens=4000, output_tokens=200, shared_prefix_tokens=3200)

    alone = choose_admission(pool(blocks=4000), plain, posture="production", prefix_caching=True)
    together = choose_admission(
        pool(blocks=4000), shared, posture="production", prefix_caching=True
    )

    assert together.value > 2 * alone.value


def test_few_long_requests_need_a_wider_margin_than_many_short_ones() -> None:
    """The share of the limit that is used shrinks as requests get fewer and more uneven."""
    uneven = demand(prompt_tokens=LognormalLength(mean=12_000, p99=80_000))

    choice = choose_admission(pool(blocks=6000), uneven, posture="production", prefix_caching=True)

    assert choice.value < 0.5 * choice.theoretical


def test_a_long_tail_is_no_reason_to_run_one_at_a_time() -> None:
    """Two requests run at once wherever two typical ones fit the pool."""
    uneven = demand(prompt_tokens=LognormalLength(mean=12_000, p99=85_000))

    choice = choose_admission(pool(blocks=3600), uneven, posture="production", prefix_caching=True)
    full = choose_admission(pool(blocks=900), uneven, posture="production", prefix_caching=True)

    assert choice.value >= 2
    assert full.value == 1


def test_the_cap_that_a_load_needs_covers_its_swings() -> None:
    """Five requests in the mean are eleven at times; eight clients are never more than eight."""
    assert least_for_load(5, is_open_loop=True) == 11
    assert least_for_load(8, is_open_loop=False) == 8


@pytest.mark.parametrize(("requests", "cap"), [(0.4, 1), (3.9, 3), (9, 8), (15, 12), (125.2, 120)])
def test_caps_sit_on_the_graph_grid(requests: float, cap: int) -> None:
    """Caps are whole requests, from 8 on multiples of 4, from 32 on of 8, never none."""
    assert round_down(requests) == cap


@pytest.mark.parametrize(
    ("version", "posture", "value"),
    [
        ("0.33.0", "production", 0.92),
        ("0.33.0", "aggressive", 0.95),
        ("0.19.0", "production", 0.90),
    ],
)
def test_a_dedicated_gpu_gets_the_posture_s_share(
    version: str, posture: Posture, value: float
) -> None:
    """Graphs are inside the fraction from 0.20.0, so more may be given since then."""
    choice = choose_utilization(node(), version=parse_version(version), posture=posture)

    assert choice.value == value


def test_others_on_the_gpu_lower_the_share() -> None:
    """With 59.32 of 79.15 GiB free the share is at most 0.74."""
    busy = node(total_memory_gib=79.15, used_memory_gib=19.83)

    choice = choose_utilization(busy, version=parse_version("0.33.0"), posture="production")

    assert 0.70 <= choice.value <= 0.74
    assert choice.limited_by == "other_users"


def test_old_releases_count_others_inside_the_share() -> None:
    """Before 0.9.1 the fraction covers other processes too, so it is not lowered for them."""
    busy = node(used_memory_gib=19.83)

    choice = choose_utilization(busy, version=parse_version("0.8.5"), posture="production")

    assert choice.value == 0.90


def test_unified_memory_leaves_room_for_the_system() -> None:
    """A GB10 gets at most 0.83, a 16 GB Jetson at most 0.6."""
    newest = parse_version(None)

    spark = choose_utilization(node("GB10"), version=newest, posture="aggressive")
    jetson = choose_utilization(node("Jetson-Orin-NX-16GB"), version=newest, posture="aggressive")

    assert spark.value <= 0.83
    assert jetson.value <= 0.60


def test_blocks_that_a_window_lets_go_carry_other_requests() -> None:
    """Decoding holds a window of 128 tokens, a prompt in flight 2176: one of those at a time."""
    full = KvGroup(kind="full", block_tokens=16)
    window = KvGroup(
        kind="sliding", block_tokens=16, cap_tokens=2176, extra_blocks=1, reach_tokens=128
    )
    windowed = msgspec.structs.replace(pool(blocks=10_000), groups=(full, window))
    plain = msgspec.structs.replace(pool(blocks=10_000), groups=(full, full))

    choice, other = (
        choose_admission(kv, demand(), posture="production", prefix_caching=True)
        for kv in (windowed, plain)
    )

    live = math.ceil(demand().live_mean_tokens)
    in_flight = windowed.request_blocks(live) - windowed.decoding_blocks(live)
    assert in_flight > 0
    assert choice.theoretical == pytest.approx(
        (10_000 - 1 - in_flight) / windowed.decoding_blocks(live)
    )
    assert choice.value > other.value
