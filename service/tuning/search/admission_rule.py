"""How many requests may run at once: `max_num_seqs` as an admission cap."""

import math
from typing import Literal

import msgspec

from api_schemas.recommendation import Posture
from service.tuning.memory.plan import KvPlan
from service.tuning.search.demand import Demand

SHARE = {"production": 0.75, "aggressive": 0.9}
"""Of the theoretical limit: tuning guide 3 takes 0.7 to 0.8 in production."""
_SIGMAS = {"production": 2.33, "aggressive": 1.28}
"""One moment in a hundred (in ten) may need more than the pool."""
LARGEST = 1024
"""vLLM's largest default; above it only the sampler's memory grows."""
_GRID = 8
"""Spacing of vLLM's CUDA-graph sizes up to 256."""
_FINE = 4
_FINE_UP_TO = 32
"""Below this a whole step of the grid is too much of the cap; padding costs less than a queue."""
_PAIR = 2.0

AdmissionLimit = Literal["kv_pool", "slo", "load", "graphs", "ceiling"]


class AdmissionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The cap, and the figures behind it."""

    value: int
    limited_by: AdmissionLimit
    pool_tokens: float
    """Tokens of the pool that requests share, after a shared prefix."""
    live_tokens: float
    """Mean tokens that a running request holds, without the shared prefix."""
    theoretical: float
    """Pool / live tokens."""
    share: float


def theoretical_limit(*, pool_tokens: float, live_tokens: float) -> float:
    """Return the requests that fill the pool: pool / tokens of one request."""
    return pool_tokens / max(1.0, live_tokens)


def choose_admission(
    kv: KvPlan, demand: Demand, *, posture: Posture, prefix_caching: bool
) -> AdmissionChoice:
    """Return the largest `max_num_seqs` that the KV pool carries without preemptions.

    min(share x theoretical limit, the largest n whose live tokens stay inside the pool with
    2.33 standard deviations to spare), at most 1024.
    """
    live = math.ceil(demand.live_mean_tokens)
    shared = _shared_blocks(kv, demand) if prefix_caching else 0
    # Where a window lets blocks go, a prompt in flight holds more than those that decode.
    in_flight = kv.request_blocks(live) - kv.decoding_blocks(live)
    blocks = max(1, kv.num_blocks - 1 - shared - in_flight)
    each = max(1, kv.decoding_blocks(live) - shared)
    limit = blocks / each
    tokens_per_block = demand.live_mean_tokens / max(1, kv.decoding_blocks(live))
    steady = _steady_limit(limit, demand, sigmas=_SIGMAS[posture])
    # One at a time only where one request fills the pool: a long tail is no reason to queue.
    wanted = max(min(SHARE[posture] * limit, steady), min(_PAIR, limit))
    return AdmissionChoice(
        value=round_down(min(wanted, LARGEST)),
        limited_by="ceiling" if wanted > LARGEST else "kv_pool",
        pool_tokens=blocks * tokens_per_block,
        live_tokens=each * tokens_per_block,
        theoretical=limit,
        share=SHARE[posture],
    )


def round_down(requests: float) -> int:
    """Return the next lower cap: whole numbers below 8, multiples of 4 below 32, then of 8."""
    if requests >= _GRID:
        step = _FINE if requests < _FINE_UP_TO else _GRID
        return math.floor(requests / step) * step
    return max(1, math.floor(requests))


def least_for_load(requests_at_once: float, *, is_open_loop: bool) -> int:
    """Return the cap with which a load hardly ever queues.

    An open loop swings around its mean as independent requests do, so 2.33 standard deviations
    are added; clients that wait for answers are never more than there are.
    """
    swing = _SIGMAS["production"] * math.sqrt(requests_at_once) if is_open_loop else 0.0
    wanted = math.ceil(requests_at_once + swing - 1e-9)
    return wanted if wanted <= _FINE_UP_TO else math.ceil(wanted / _GRID) * _GRID


def _steady_limit(limit: float, demand: Demand, *, sigmas: float) -> float:
    """Return the largest n with n + z x cv x sqrt(n) <= limit (requests seen as independent)."""
    variation = sigmas * demand.live_sd_tokens / max(1.0, demand.live_mean_tokens)
    root = (-variation + math.sqrt(variation**2 + 4 * limit)) / 2
    return root**2


def _shared_blocks(kv: KvPlan, demand: Demand) -> int:
    """Return the blocks of the shared prefix, held once by all requests."""
    if any(group.kind != "full" for group in kv.groups):
        return 0
    return sum(demand.shared_prefix_tokens // group.block_tokens for group in kv.groups)
