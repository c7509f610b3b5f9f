"""The KV cache as each vLLM release lays it out over layers of several kinds.

Follows `v1/core/kv_cache_utils.py` of 0.8.0 to 0.33.0; V0 is one pool over all layers.
"""

import math
from collections import Counter
from collections.abc import Mapping

import msgspec

from service.tuning.engine.versions import EngineVersion
from service.tuning.memory.cache_layers import CacheLayer
from service.tuning.memory.plan import KvGroup, KvPlan

_ALIGN_TOKENS = 16
_LATENT_HYBRID_ALIGN_TOKENS = 128
_TOKENS_BY_CONCURRENCY_SINCE = "0.20.2"
"""A log of 0.20.2 prints requests at once times their length, one of 0.20.0 whole groups."""
_SIMILAR_COUNTS = 1.5
"""Kinds whose layer counts differ by less than this share one group size."""


class KvLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How a block id maps to memory on one stage, before the pool's size is known."""

    groups: tuple[KvGroup, ...]
    block_bytes: int
    bytes_per_token: float
    min_block_tokens: int
    recurrent_blocks: int
    """Blocks of recurrent state that one request needs over all groups."""

    def request_blocks(self, tokens: int) -> int:
        """Block ids that a request of this many tokens holds over all groups."""
        return sum(group.request_blocks(tokens) for group in self.groups)


class KvRules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and release facts that shape the plan."""

    version: EngineVersion
    is_legacy: bool
    block_size: int
    decode_context_parallel_size: int
    in_flight_tokens: int
    """Scheduled tokens that sliding layers keep beyond their window."""
    speculative_tokens: int
    checkpoints_state: bool
    """Prefix caching keeps one more recurrent state per request."""
    has_group_manager: bool
    """Whether layers of different kinds get groups of their own (0.9.1 and later)."""


def kv_layout(layers: Mapping[CacheLayer, int], rules: KvRules) -> KvLayout | None:
    """Return how layers share blocks, given how many are alike; None when none keeps anything."""
    counts: Counter[CacheLayer] = Counter()
    for layer, count in layers.items():
        counts[_as_managed(layer, rules)] += count
    if not counts:
        return None
    block = _attention_block(counts, rules.block_size)
    kinds = _merge_same_kind(counts, block)
    if len(kinds) == 1:
        return _one_kind(kinds[0], rules)
    return _several_kinds(kinds, rules)


class _Kind(msgspec.Struct, frozen=True):
    """Layers that share a page size and a retention rule."""

    layer: CacheLayer
    count: int
    page_bytes: float
    block_tokens: int
    total_page_bytes: float


def _as_managed(layer: CacheLayer, rules: KvRules) -> CacheLayer:
    """Return the layer as that release manages it: without groups all attention is full."""
    if layer.kind == "recurrent" or rules.has_group_manager:
        return layer
    return msgspec.structs.replace(layer, kind="full", reach_tokens=0)


def _attention_block(counts: Counter[CacheLayer], block_size: int) -> int:
    """Return the block in tokens, raised until its page holds one recurrent state."""
    states = [layer.state_bytes for layer in counts if layer.kind == "recurrent"]
    pages = [layer.bytes_per_token for layer in counts if layer.kind != "recurrent"]
    if not states or not pages:
        return block_size
    is_latent = any(layer.is_latent for layer in counts)
    align = max(block_size, _LATENT_HYBRID_ALIGN_TOKENS if is_latent else _ALIGN_TOKENS)
    return align * max(1, math.ceil(max(states) / (align * max(pages))))


def _merge_same_kind(counts: Counter[CacheLayer], block: int) -> list[_Kind]:
    """Group layers by retention rule and page; full layers of several widths stay one kind."""
    if all(layer.kind == "full" for layer in counts):
        return [_uniform_kind(counts, block)]
    return [
        _Kind(layer, count, _page(layer, block), block, count * _page(layer, block))
        for layer, count in counts.items()
    ]


def _uniform_kind(counts: Counter[CacheLayer], block: int) -> _Kind:
    widest = max(counts, key=lambda layer: layer.bytes_per_token)
    total = sum(count * _page(layer, block) for layer, count in counts.items())
    return _Kind(widest, sum(counts.values()), _page(widest, block), block, total)


def _page(layer: CacheLayer, block: int) -> float:
    if layer.kind == "recurrent":
        return float(layer.state_bytes)
    return layer.bytes_per_token * block


def _one_kind(kind: _Kind, rules: KvRules) -> KvLayout:
    group = _group(kind.layer, kind.block_tokens, rules)
    is_recurrent = kind.layer.kind == "recurrent"
    return KvLayout(
        groups=(group,),
        block_bytes=max(1, round(kind.total_page_bytes)),
        bytes_per_token=0.0 if is_recurrent else kind.total_page_bytes / kind.block_tokens,
        min_block_tokens=group.block_tokens,
        recurrent_blocks=group.extra_blocks if is_recurrent else 0,
    )


def _several_kinds(kinds: list[_Kind], rules: KvRules) -> KvLayout:
    page = max(kind.page_bytes for kind in kinds)
    size = _group_size([kind.count for kind in kinds])
    groups: list[KvGroup] = []
    for kind in kinds:
        group = _group(kind.layer, _raised_block(kind, page), rules)
        groups.extend([group] * math.ceil(kind.count / size))
    grows = [kind for kind in kinds if kind.layer.kind == "full"]
    return KvLayout(
        groups=tuple(groups),
        block_bytes=max(1, round(size * page)),
        bytes_per_token=sum(kind.count * kind.layer.bytes_per_token for kind in grows),
        min_block_tokens=min(g.block_tokens for g in groups if g.kind != "recurrent"),
        recurrent_blocks=sum(g.extra_blocks for g in groups if g.kind == "recurrent"),
    )


def _raised_block(kind: _Kind, page_bytes: float) -> int:
    """Return the block whose page is as large as the largest one (else the page is padded)."""
    if kind.layer.kind == "recurrent":
        return kind.block_tokens
    return kind.block_tokens * max(1, int(page_bytes // kind.page_bytes))


def _group_size(counts: list[int]) -> int:
    """Return the layers per group: the fewest of a kind, or the most when counts are close."""
    fewest, most = min(counts), max(counts)
    return most if most < fewest * _SIMILAR_COUNTS else fewest


def _group(layer: CacheLayer, block: int, rules: KvRules) -> KvGroup:
    block_tokens = block * rules.decode_context_parallel_size
    in_flight = rules.in_flight_tokens
    match layer.kind:
        case "recurrent":
            states = 1 + rules.speculative_tokens + (1 if rules.checkpoints_state else 0)
            return KvGroup(kind="recurrent", block_tokens=block, extra_blocks=states)
        case "sliding":
            cap = layer.reach_tokens - 1 + in_flight
            return KvGroup(
                kind="sliding",
                block_tokens=block_tokens,
                cap_tokens=cap,
                extra_blocks=1,
                reach_tokens=layer.reach_tokens,
            )
        case "chunked":
            cap = layer.reach_tokens + in_flight
            return KvGroup(
                kind="chunked",
                block_tokens=block_tokens,
                cap_tokens=cap,
                reach_tokens=layer.reach_tokens,
            )
        case "full":
            return KvGroup(kind="full", block_tokens=block_tokens)


def fill_pool(
    layout: KvLayout,
    *,
    num_blocks: int,
    kv_cache_bytes: float,
    max_model_len: int,
    longest_model_len: int,
    rules: KvRules,
    element_bytes: float,
) -> KvPlan:
    """Return the plan of a pool of this many blocks, its figures as that release prints them."""
    concurrency = printed_concurrency(layout, num_blocks, max_model_len, rules)
    return KvPlan(
        num_blocks=num_blocks,
        groups=layout.groups,
        block_bytes=layout.block_bytes,
        kv_cache_bytes=max(0, int(kv_cache_bytes)),
        tokens=printed_tokens(layout, num_blocks, max_model_len, rules),
        max_concurrency=concurrency,
        largest_max_model_len=largest_length(layout, num_blocks, longest_model_len, rules),
        bytes_per_token=layout.bytes_per_token,
        element_bytes=element_bytes,
    )


def printed_concurrency(
    layout: KvLayout, num_blocks: int, max_model_len: int, rules: KvRules
) -> float:
    """Return how many requests of `max_model_len` the release says fit at once."""
    if not rules.version.since("0.9.1") or rules.is_legacy:
        return num_blocks * layout.min_block_tokens / max_model_len
    return num_blocks / max(1, layout.request_blocks(max_model_len))


def printed_tokens(layout: KvLayout, num_blocks: int, max_model_len: int, rules: KvRules) -> int:
    """Return the KV cache size in tokens as the release prints it."""
    if rules.is_legacy or not rules.version.since(_TOKENS_BY_CONCURRENCY_SINCE):
        return num_blocks // len(layout.groups) * _smallest_block(layout, max_model_len, rules)
    return int(num_blocks / max(1, layout.request_blocks(max_model_len)) * max_model_len)


def _smallest_block(layout: KvLayout, max_model_len: int, rules: KvRules) -> int:
    """Return the tokens of the smallest block; a state that is kept once counts as a request."""
    is_kept_once = layout.recurrent_blocks > 0 and not rules.checkpoints_state
    if is_kept_once and rules.has_group_manager:
        return min(layout.min_block_tokens, max_model_len)
    return layout.min_block_tokens


def usable_blocks(num_blocks: int, rules: KvRules) -> int:
    """Return the blocks that the start-up check counts; 0.29 leaves the null block out."""
    return num_blocks - 1 if rules.version.since("0.29.0") else num_blocks


def largest_length(
    layout: KvLayout, num_blocks: int, longest_model_len: int, rules: KvRules
) -> int:
    """Return the longest request that the pool holds, at most `longest_model_len`; 0 for none."""
    blocks = usable_blocks(num_blocks, rules)
    if layout.request_blocks(longest_model_len) <= blocks:
        return longest_model_len
    low, high = 0, longest_model_len
    while high - low > 1:
        middle = (low + high) // 2
        if layout.request_blocks(middle) <= blocks:
            low = middle
        else:
            high = middle
    return low
