"""What attention and recurrent layers read and compute in a step, beyond their projections."""

from collections.abc import Iterator

import msgspec

from service.tuning.latency import price
from service.tuning.latency.term import Term
from service.tuning.memory.cache_layers import cache_layer
from service.tuning.models.spec import (
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    StateSpace,
)

_SINK_KERNELS = frozenset({"hopper", "blackwell_hbm", "cdna3", "cdna4"})
"""Generations with a kernel of their own for attention with sinks (FlashAttention 3, TRT-LLM's of
FlashInfer, AITER); on others Triton's runs (vLLM v1/attention/backends, `supports_sink`). On A100
it takes five times as long per pair of tokens: 32,000-token prompts of gpt-oss (gpustack's lab)."""
_FLASH_MLA_HEADS = 64
"""Query heads that FlashMLA's sparse kernels of Hopper work on at least; a GPU with fewer pads them
(vLLM v1/attention/backends/mla/flashmla_sparse.py). Data-centre Blackwell has kernels without."""
_SCAN_CHUNK = 64
"""Tokens of one chunk of the linear-attention prefill kernels (flash-linear-attention)."""


class AttentionPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where attention runs: one GPU's rates, and how heads and cache are split."""

    bandwidth: float
    """Bytes per second."""
    flops_16bit: float
    """Operations per second."""
    tensor_parallel_size: int
    decode_context_parallel_size: int
    kv_cache_dtype: str
    state_element_bytes: int
    generation: str
    reads_per_head: bool = False
    """Every query head reads the cache for itself, also where several share it."""


def attention_terms(group: LayerGroup, *, count: float, place: AttentionPlace) -> Iterator[Term]:
    """Yield the terms of `count` layers of this group on one GPU."""
    match group.mixer:
        case GroupedQueryAttention():
            yield from _grouped_query(group.mixer, count=count, place=place)
        case LatentAttention():
            yield from _latent(group.mixer, count=count, place=place)
        case LinearAttention() | StateSpace():
            yield from _recurrent(group.mixer, count=count, place=place)
        case None:
            return


def reach_of(group: LayerGroup) -> int | None:
    """Return the tokens that a query of this group attends at most; None without limit."""
    match group.mixer:
        case GroupedQueryAttention(window=int() as window):
            return window
        case GroupedQueryAttention(chunk=int() as chunk):
            return chunk
        case LatentAttention(index_topk=int() as topk):
            return topk
        case _:
            return None


def _token_bytes(mixer: GroupedQueryAttention | LatentAttention, place: AttentionPlace) -> float:
    """Return the cached bytes of one token and layer that one GPU reads."""
    layer = cache_layer(
        mixer,
        kv_cache_dtype=place.kv_cache_dtype,
        tensor_parallel_size=place.tensor_parallel_size,
        speculative_tokens=0,
        state_element_bytes=place.state_element_bytes,
    )
    return layer.bytes_per_token / place.decode_context_parallel_size if layer else 0.0


def _grouped_query(
    mixer: GroupedQueryAttention, *, count: float, place: AttentionPlace
) -> Iterator[Term]:
    own = msgspec.structs.replace(mixer, shares_kv=False)
    is_local = mixer.window is not None or mixer.chunk is not None
    heads = max(mixer.num_heads / place.tensor_parallel_size, 1.0)
    flops = 2 * heads * (mixer.head_dim + mixer.v_head_dim)
    at = f"@{place.generation}"
    read = count * _token_bytes(own, place) / place.bandwidth
    factors: tuple[str, ...] = ("context", "context.gqa", f"context{at}")
    if place.kv_cache_dtype.startswith("fp8"):
        factors = (*factors, "context.fp8")
    if place.reads_per_head:
        read *= max(mixer.num_heads / mixer.num_kv_heads, 1.0)
        factors = (*factors, "context.per_head", f"context.per_head{at}")
    pair: tuple[str, ...] = ("pair", "pair.gqa", f"pair{at}")
    if mixer.has_sinks and place.generation not in _SINK_KERNELS:
        factors, pair = (*factors, "context.sinks"), (*pair, "pair.sinks")
    yield Term(price.WINDOW_CONTEXT if is_local else price.CONTEXT, read, factors)
    yield Term(
        price.WINDOW_PAIR if is_local else price.PAIR, count * flops / place.flops_16bit, pair
    )


def _latent(mixer: LatentAttention, *, count: float, place: AttentionPlace) -> Iterator[Term]:
    """Decoding absorbs the up-projections: all heads share one latent, read once per token."""
    heads = max(mixer.num_heads / place.tensor_parallel_size, 1.0)
    width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
    plain = msgspec.structs.replace(mixer, index_topk=None)
    read = _token_bytes(plain, place) / place.bandwidth
    expanded = 2 * heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim)
    is_sparse = mixer.index_topk is not None
    is_padded = is_sparse and place.generation == "hopper"
    absorbing = max(heads, _FLASH_MLA_HEADS) if is_padded else heads
    absorbed = 2 * absorbing * (width + mixer.kv_lora_rank) / place.flops_16bit
    decode = max(read, absorbed / place.decode_context_parallel_size)
    kind = "sparse" if is_sparse else "mla"
    at = f"@{place.generation}"
    pair_flops = absorbed if is_sparse else expanded / place.flops_16bit
    yield Term(
        price.WINDOW_CONTEXT if is_sparse else price.CONTEXT,
        count * decode,
        ("context", f"context.{kind}", f"context{at}"),
    )
    yield Term(
        price.WINDOW_PAIR if is_sparse else price.PAIR,
        count * pair_flops,
        ("pair", f"pair.{kind}", f"pair{at}"),
    )
    if is_sparse:
        yield from _indexer(mixer, count=count, place=place)


def _indexer(mixer: LatentAttention, *, count: float, place: AttentionPlace) -> Iterator[Term]:
    """The indexer scores every token of the context, in 8 bit, on every GPU."""
    flops = 2 * mixer.index_num_heads * mixer.index_head_dim / (2 * place.flops_16bit)
    read = (mixer.index_head_dim + 4) / place.bandwidth
    yield Term(price.CONTEXT, count * max(read, flops), ("context", "context.indexer"))
    yield Term(price.PAIR, count * flops, ("pair", "pair.indexer"))


def _recurrent(
    mixer: LinearAttention | StateSpace, *, count: float, place: AttentionPlace
) -> Iterator[Term]:
    """A decoding sequence reads and writes its state; a prompt is scanned in chunks."""
    layer = cache_layer(
        mixer,
        kv_cache_dtype=place.kv_cache_dtype,
        tensor_parallel_size=place.tensor_parallel_size,
        speculative_tokens=0,
        state_element_bytes=place.state_element_bytes,
    )
    state = layer.state_bytes if layer else 0
    at = f"@{place.generation}"
    yield Term(price.STATE, count * 2 * state / place.bandwidth, ("state", f"context{at}"))
    flops = _scan_flops(mixer) / place.tensor_parallel_size
    yield Term(price.SCAN, count * flops / place.flops_16bit, ("scan", f"scan.{_kind(mixer)}"))


def _kind(mixer: LinearAttention | StateSpace) -> str:
    return mixer.kind


def _scan_flops(mixer: LinearAttention | StateSpace) -> float:
    """Return operations per prompt token and layer: state update, read-out, and the chunk."""
    if isinstance(mixer, LinearAttention):
        heads, keys, values = mixer.num_value_heads, mixer.key_head_dim, mixer.value_head_dim
    else:
        heads, keys, values = mixer.num_heads, mixer.state_size, mixer.head_dim
    return 2.0 * heads * (2 * keys * values + _SCAN_CHUNK * (keys + values))


def longest_reach(layers: tuple[LayerGroup, ...]) -> int:
    """Return the window that stands for all local layers: the one most of them have."""
    reaches: dict[int, int] = {}
    for group in layers:
        reach = reach_of(group)
        if reach is not None:
            reaches[reach] = reaches.get(reach, 0) + group.count
    if not reaches:
        return _NO_WINDOW
    return max(reaches, key=lambda reach: (reaches[reach], reach))


_NO_WINDOW = 1 << 30
