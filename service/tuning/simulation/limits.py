"""What bounds vLLM's scheduler: token budget, sequences, blocks."""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import EngineVersion
from service.tuning.memory.plan import KvGroup, KvPlan

_WHOLE_GATE_SINCE = "0.19.0"
"""A request is admitted only when its whole sequence fits (vLLM PR 37307)."""
_WATERMARK_SINCE = "0.24.0"
_UNBOUNDED_BLOCKS = 1 << 40

Ints = NDArray[np.int64]


class SchedulerLimits(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The settings that the scheduler's loop works with, for one engine."""

    token_budget: int
    max_num_seqs: int
    num_blocks: int
    groups: tuple[KvGroup, ...]
    admits_whole: bool
    watermark_blocks: int
    shared_prefix_tokens: int
    chunked_prefill: bool
    longest_chunk: int = 0
    caches_prefixes: bool = False
    """A preempted request finds those of its blocks that were not handed out again."""

    def as_array(self, *, concurrency: int) -> Ints:
        """Return the numbers in the kernel's order."""
        return np.array(
            [
                self.token_budget,
                self.max_num_seqs,
                self.num_blocks,
                concurrency,
                int(self.admits_whole),
                self.watermark_blocks,
                self.shared_prefix_tokens,
                int(self.chunked_prefill),
                self.longest_chunk,
                int(self.caches_prefixes),
                self._hit_tokens(),
            ],
            dtype=np.int64,
        )

    def _hit_tokens(self) -> int:
        return math.lcm(*(g.block_tokens for g in self.groups if g.kind == "full"), 1)

    def group_array(self) -> Ints:
        """Return the KV groups as rows of block, cap, extra, reach; equal rows stay apart."""
        rows = [_group_row(group) for group in self.groups] or [(0, 0, 0, 0)]
        return np.array(rows, dtype=np.int64)

    def blocks_of(self, tokens: int) -> int:
        """Return the most block ids a sequence of `tokens` ever holds, its prompt in flight."""
        return sum(group.request_blocks(tokens) for group in self.groups)

    def decoding_blocks_of(self, tokens: int) -> int:
        """Return the block ids a decoding sequence of `tokens` holds."""
        return sum(group.decoding_blocks(tokens) for group in self.groups)

    def sequences_that_fit(self, tokens: float) -> float:
        """Return how many decoding sequences of `tokens` the blocks hold at once."""
        return self.num_blocks / max(self.decoding_blocks_of(math.ceil(tokens)), 1e-9)


def scheduler_limits(
    *, config: EngineConfig, kv: KvPlan | None, version: EngineVersion, shared_prefix_tokens: int
) -> SchedulerLimits:
    """Return the limits of one engine with this effective configuration.

    Without a KV plan (a model without cache) blocks do not limit.
    """
    groups = kv.groups if kv is not None else ()
    num_blocks = max(kv.num_blocks - 1, 1) if kv is not None else _UNBOUNDED_BLOCKS
    watermark = (config.watermark or 0.0) if version.since(_WATERMARK_SINCE) else 0.0
    stages = max(config.pipeline_parallel_size or 1, 1)
    budget = max(config.max_num_batched_tokens or 2048, 1)
    return SchedulerLimits(
        token_budget=budget * stages,
        max_num_seqs=max(config.max_num_seqs or 256, 1) * stages,
        num_blocks=num_blocks,
        groups=groups,
        admits_whole=version.since(_WHOLE_GATE_SINCE),
        watermark_blocks=int(watermark * num_blocks) if watermark > 0 else 0,
        shared_prefix_tokens=_usable_prefix(
            shared_prefix_tokens, groups=groups, is_cached=config.enable_prefix_caching is not False
        ),
        chunked_prefill=config.enable_chunked_prefill is not False,
        caches_prefixes=config.enable_prefix_caching is not False and not version.is_legacy,
        longest_chunk=max(config.long_prefill_token_threshold or 0, 0),
    )


def _usable_prefix(tokens: int, *, groups: tuple[KvGroup, ...], is_cached: bool) -> int:
    """Return the tokens of a shared prefix that are found in the cache: whole blocks of all."""
    blocks = [group.block_tokens for group in groups if group.kind == "full"]
    if not is_cached or tokens <= 0 or not blocks:
        return 0
    widest = math.lcm(*blocks)
    return tokens // widest * widest


def _group_row(group: KvGroup) -> tuple[int, int, int, int]:
    if group.kind == "recurrent":
        return 0, 0, group.extra_blocks, 0
    return group.block_tokens, group.cap_tokens or 0, group.extra_blocks, group.reach_tokens or 0
