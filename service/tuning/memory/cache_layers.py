"""What one layer keeps per token or per request on one GPU."""

import math
from typing import Literal

import msgspec

from service.tuning.models.spec import (
    GroupedQueryAttention,
    LatentAttention,
    LinearAttention,
    Mixer,
    StateSpace,
)

CacheKind = Literal["full", "sliding", "chunked", "recurrent"]

_SPARSE_MLA_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes per token and layer of the packed sparse-latent formats (v1/kv_cache_interface.py)."""
_INDEXER_SCALE_BLOCK = 128
_SCALE_BYTES = 4
_CONV_BYTES = 2
_TURBOQUANT_BITS = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
TURBOQUANT_PLAIN_LAYERS = 2
"""Attention layers at each end of a dense model that turboquant leaves in 16 bit."""


class CacheLayer(msgspec.Struct, frozen=True, kw_only=True):
    """The cache of one layer on one GPU: bytes per token, or a state per request."""

    kind: CacheKind
    bytes_per_token: float = 0.0
    reach_tokens: int = 0
    """Window or chunk; 0 for full attention."""
    state_bytes: int = 0
    is_latent: bool = False


def element_bytes(kv_cache_dtype: str) -> float:
    """Return the nominal bytes of one cached value, scales left out.

    From vLLM's `kv_cache_interface.py`, 0.33.0; unknown formats count as 16 bit.
    """
    if kv_cache_dtype == "float32":
        return 4.0
    if kv_cache_dtype.startswith(("fp8", "int8")):
        return 1.0
    if kv_cache_dtype.startswith(("nvfp4", "int4")):
        return 0.5
    if kv_cache_dtype in _TURBOQUANT_BITS:
        return sum(_TURBOQUANT_BITS[kv_cache_dtype]) / 16
    return 2.0


def head_bytes(kv_cache_dtype: str, *, key_dim: int, value_dim: int) -> float:
    """Return the bytes one token of one KV head takes, scales included."""
    both = key_dim + value_dim
    if kv_cache_dtype.endswith("_per_token_head"):
        return both * element_bytes(kv_cache_dtype) + 2 * _SCALE_BYTES
    if kv_cache_dtype in ("nvfp4", "nvfp4_4over6"):
        return both / 2 + both / 16
    if kv_cache_dtype in _TURBOQUANT_BITS:
        return _turboquant_head_bytes(kv_cache_dtype, key_dim=key_dim, value_dim=value_dim)
    return both * element_bytes(kv_cache_dtype)


def cache_layer(
    mixer: Mixer,
    *,
    kv_cache_dtype: str,
    tensor_parallel_size: int,
    speculative_tokens: int,
    state_element_bytes: int,
) -> CacheLayer | None:
    """Return what this mixer keeps on one GPU; None when it reuses another layer's cache."""
    match mixer:
        case GroupedQueryAttention(shares_kv=True):
            return None
        case GroupedQueryAttention():
            return _grouped_query(mixer, kv_cache_dtype, tensor_parallel_size)
        case LatentAttention():
            return CacheLayer(
                kind="full", bytes_per_token=_latent_bytes(mixer, kv_cache_dtype), is_latent=True
            )
        case LinearAttention():
            state = _linear_state(
                mixer, tensor_parallel_size, speculative_tokens, state_element_bytes
            )
            return CacheLayer(kind="recurrent", state_bytes=state)
        case StateSpace():
            state = _ssm_state(mixer, tensor_parallel_size, speculative_tokens, state_element_bytes)
            return CacheLayer(kind="recurrent", state_bytes=state)


def local_kv_heads(num_kv_heads: int, tensor_parallel_size: int) -> int:
    """Return the KV heads on one GPU; vLLM replicates them once TP exceeds their number."""
    return max(1, num_kv_heads // tensor_parallel_size)


def _grouped_query(mixer: GroupedQueryAttention, dtype: str, tp: int) -> CacheLayer:
    per_head = head_bytes(dtype, key_dim=mixer.head_dim, value_dim=mixer.v_head_dim)
    per_token = local_kv_heads(mixer.num_kv_heads, tp) * per_head
    if mixer.window is not None:
        return CacheLayer(kind="sliding", bytes_per_token=per_token, reach_tokens=mixer.window)
    if mixer.chunk is not None:
        return CacheLayer(kind="chunked", bytes_per_token=per_token, reach_tokens=mixer.chunk)
    return CacheLayer(kind="full", bytes_per_token=per_token)


def _latent_bytes(mixer: LatentAttention, dtype: str) -> float:
    plain = (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * element_bytes(dtype)
    if mixer.index_topk is None:
        return plain
    packed = _SPARSE_MLA_BYTES.get(dtype)
    if packed is None and dtype.startswith("fp8"):
        packed = _SPARSE_MLA_BYTES["fp8_ds_mla"]
    return (packed or plain) + _indexer_bytes(mixer)


def _indexer_bytes(mixer: LatentAttention) -> float:
    """Return the 8-bit key of the indexer with one fp32 scale per 128 values."""
    scales = math.ceil(mixer.index_head_dim / _INDEXER_SCALE_BLOCK)
    return mixer.index_head_dim + scales * _SCALE_BYTES


def _turboquant_head_bytes(dtype: str, *, key_dim: int, value_dim: int) -> float:
    key_bits, value_bits = _TURBOQUANT_BITS[dtype]
    key = key_dim if key_bits == 8 else math.ceil(key_dim * key_bits / 8) + 2  # noqa: PLR2004
    both = key + math.ceil(value_dim * value_bits / 8) + 4
    return both + both % 2


def _linear_state(mixer: LinearAttention, tp: int, speculative: int, state_bytes: int) -> int:
    state = mixer.num_value_heads * mixer.value_head_dim * mixer.key_head_dim * state_bytes
    width = (
        2 * mixer.num_key_heads * mixer.key_head_dim + mixer.num_value_heads * mixer.value_head_dim
    )
    rows = max(0, mixer.conv_kernel - 1) + (speculative if mixer.conv_kernel > 1 else 0)
    return (state + rows * width * _CONV_BYTES) // tp


def _ssm_state(mixer: StateSpace, tp: int, speculative: int, state_bytes: int) -> int:
    rows = max(0, mixer.conv_kernel - 1) + speculative
    if mixer.kind == "mamba1":
        width = mixer.inner_size
        state = mixer.inner_size * mixer.state_size * state_bytes
    else:
        groups = mixer.num_groups if mixer.num_groups % tp == 0 else tp
        width = mixer.inner_size + 2 * groups * mixer.state_size
        state = mixer.num_heads * mixer.head_dim * mixer.state_size * state_bytes
    return (state + rows * width * _CONV_BYTES) // tp
