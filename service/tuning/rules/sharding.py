"""What stands in the way of splitting a model over tensor-parallel ranks."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import msgspec

from service.tuning.engine.versions import EngineVersion
from service.tuning.models.spec import (
    GroupedQueryAttention,
    LatentAttention,
    LinearAttention,
    ModelSpec,
    Quantization,
    StateSpace,
)
from service.tuning.rules.widths import (
    Split,
    Width,
    published_width,
    quantized_widths,
    widths,
)

_VOCAB_PADDING = 64
"""vLLM pads the vocabulary to a multiple of this: layers/vocab_parallel_embedding.py, 0.33.0."""
_GROUPED_METHODS = frozenset(
    {"gptq", "gptq_marlin", "auto_gptq", "awq", "awq_marlin", "auto_awq", "auto-round", "inc"}
    | {"compressed-tensors", "quark", "moe_wna16"}
)
"""Methods whose scales come in groups along the input: distributed/utils.py, 0.33.0."""
_MOE_PADS_GROUPS = "0.11.0"
"""Before it the 4-bit expert kernel failed on odd shards (vllm issue 17604 at 0.9.1)."""

_FINER_FP8_BLOCKS = "0.29.0"
"""From here on the scales of cut experts are repeated over smaller blocks, where such divide a
rank's share: fused_moe/oracle/fp8.py in 0.29.0, and not yet in 0.28.0."""
_LEAST_FP8_BLOCK = 32
_KEPT = 1024
"""Answers that are remembered: rules and layouts ask for the same few sizes again and again."""

ObstacleKind = Literal[
    "attention_heads",
    "kv_heads",
    "recurrent_heads",
    "vocabulary",
    "feed_forward",
    "fp8_block",
    "quantization_group",
]


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Why a tensor-parallel size is refused, in one sentence."""

    kind: ObstacleKind
    message: str


@lru_cache(maxsize=_KEPT)
def find_obstacle(
    spec: ModelSpec,
    *,
    tensor_parallel_size: int,
    version: EngineVersion,
    enable_expert_parallel: bool = False,
    data_parallel_size: int = 1,
) -> Obstacle | None:
    """Return the first thing that forbids this size, in the order vLLM meets them, or None.

    Sources: vLLM 0.33.0 config/model.py, distributed/utils.py, quantization/utils/fp8_utils.py,
    fused_moe/config.py and mamba_utils.py.
    """
    ranks = tensor_parallel_size * data_parallel_size
    split = Split(
        tensor_parallel_size=tensor_parallel_size,
        expert_ranks=1 if enable_expert_parallel else ranks,
    )
    return next(_obstacles(spec, split=split, version=version), None)


def _obstacles(spec: ModelSpec, *, split: Split, version: EngineVersion) -> Iterator[Obstacle]:
    yield from _attention_heads(spec, ranks=split.tensor_parallel_size)
    yield from _kv_heads(spec, ranks=split.tensor_parallel_size)
    yield from _recurrent_heads(spec, ranks=split.tensor_parallel_size)
    yield from _vocabulary(spec, ranks=split.tensor_parallel_size)
    yield from _feed_forward(spec, split=split)
    if spec.quantization is not None:
        yield from _fp8_blocks(spec, spec.quantization, split=split, version=version)
        yield from _groups(spec, spec.quantization, split=split, version=version)


def _attention_heads(spec: ModelSpec, *, ranks: int) -> Iterator[Obstacle]:
    for group in spec.layers:
        mixer = group.mixer
        if not isinstance(mixer, GroupedQueryAttention | LatentAttention):
            continue
        if mixer.num_heads % ranks:
            yield Obstacle(
                kind="attention_heads",
                message=f"{mixer.num_heads} attention heads cannot be shared evenly by"
                f" {ranks} tensor-parallel ranks.",
            )


def _kv_heads(spec: ModelSpec, *, ranks: int) -> Iterator[Obstacle]:
    for group in spec.layers:
        mixer = group.mixer
        if not isinstance(mixer, GroupedQueryAttention):
            continue
        if mixer.num_kv_heads % ranks and ranks % mixer.num_kv_heads:
            yield Obstacle(
                kind="kv_heads",
                message=f"{mixer.num_kv_heads} KV heads can be neither divided among {ranks}"
                " ranks nor copied the same number of times to each.",
            )


def _recurrent_heads(spec: ModelSpec, *, ranks: int) -> Iterator[Obstacle]:
    for group in spec.layers:
        for heads, name in _recurrent_widths(group.mixer):
            if heads % ranks:
                yield Obstacle(
                    kind="recurrent_heads",
                    message=f"{heads} {name} of the recurrent layers do not divide by {ranks};"
                    " they are never copied.",
                )


def _recurrent_widths(mixer: object) -> tuple[tuple[int, str], ...]:
    if isinstance(mixer, LinearAttention):
        return (
            (mixer.num_key_heads, "key heads"),
            (mixer.num_value_heads, "value heads"),
        )
    if isinstance(mixer, StateSpace):
        if mixer.kind == "mamba1":
            return ((mixer.inner_size, "channels"),)
        return ((mixer.num_heads, "state heads"),)
    return ()


def _vocabulary(spec: ModelSpec, *, ranks: int) -> Iterator[Obstacle]:
    padded = math.ceil(spec.vocab_size / _VOCAB_PADDING) * _VOCAB_PADDING
    if padded % ranks:
        yield Obstacle(
            kind="vocabulary",
            message=f"The vocabulary of {spec.vocab_size}, padded to {padded}, does not divide"
            f" by {ranks}.",
        )


def _feed_forward(spec: ModelSpec, *, split: Split) -> Iterator[Obstacle]:
    # mxfp4 kernels pad the expert width of each rank (gpt-oss): nothing to divide there.
    is_padded = spec.quantization is not None and spec.quantization.scheme == "mxfp4"
    for width in widths(spec, split=split):
        if width.size % width.ranks and not (is_padded and width.name == "expert"):
            yield Obstacle(
                kind="feed_forward",
                message=f"The {width.name} width {width.size} does not divide by"
                f" {width.ranks} ranks.",
            )


def _fp8_blocks(
    spec: ModelSpec, quantization: Quantization, *, split: Split, version: EngineVersion
) -> Iterator[Obstacle]:
    for width in _cut_blocks(spec, quantization, split=split):
        if _finer_block(width, spec, quantization, version=version) is None:
            block, shard = max(_fp8_block(quantization)), width.size // width.ranks
            yield Obstacle(
                kind="fp8_block",
                message=f"The {width.name} width {width.size} over {width.ranks} ranks leaves"
                f" {shard}, which is no multiple of the checkpoint's fp8 block of {block}.",
            )


def _cut_blocks(spec: ModelSpec, quantization: Quantization, *, split: Split) -> Iterator[Width]:
    """Yield the widths of which a rank's share is no whole number of fp8 blocks."""
    if quantization.scheme != "fp8_block":
        return
    block = max(_fp8_block(quantization))
    for width in quantized_widths(spec, quantization, split=split):
        if width.ranks > 1 and width.size // width.ranks % block:
            yield width


def _fp8_block(quantization: Quantization) -> tuple[int, int]:
    return quantization.block_shape or (128, 128)


def _finer_block(
    width: Width, spec: ModelSpec, quantization: Quantization, *, version: EngineVersion
) -> int | None:
    """Return the smaller block that a release spreads an expert's scales over, None for none.

    Linear layers have no such way out, and of the methods only fp8 itself takes it: 0.33.0
    compressed_tensors and quark still refuse.
    """
    can_refine = version.since(_FINER_FP8_BLOCKS) and quantization.method == "fp8"
    if width.name != "expert" or not can_refine:
        return None
    shard = width.size // width.ranks
    finer = math.gcd(*_fp8_block(quantization), shard, spec.hidden_size)
    return finer if finer >= _LEAST_FP8_BLOCK else None


def refined_expert_block(spec: ModelSpec, *, split: Split, version: EngineVersion) -> int | None:
    """Return the smaller block that cut fp8 experts get in this release, None where none do."""
    quantization = spec.quantization
    if quantization is None:
        return None
    found = (
        _finer_block(width, spec, quantization, version=version)
        for width in _cut_blocks(spec, quantization, split=split)
    )
    return next((block for block in found if block is not None), None)


def _groups(
    spec: ModelSpec, quantization: Quantization, *, split: Split, version: EngineVersion
) -> Iterator[Obstacle]:
    group = quantization.group_size or 0
    if quantization.method not in _GROUPED_METHODS or group <= 1:
        return
    if quantization.scheme not in {"int4", "int8_w8a16"}:
        return
    for width in quantized_widths(spec, quantization, split=split):
        is_padded_expert = width.name == "expert" and version.since(_MOE_PADS_GROUPS)
        # Dense layers and shared experts of a mixture are often left in 16 bit without the config
        # saying so: GLM-4.5-Air runs in 4 bit over 8 ranks, which its 10944 and 1408 forbid.
        is_beside_experts = spec.is_moe and width.name in {"MLP", "shared expert"}
        shard = published_width(spec, width) // width.ranks
        if is_padded_expert or is_beside_experts:
            continue
        if width.ranks > 1 and shard % group:
            yield Obstacle(
                kind="quantization_group",
                message=f"The {width.name} width {width.size} over {width.ranks} ranks leaves"
                f" {shard}, which is no whole number of quantisation groups of {group}.",
            )


def unpadded_width(spec: ModelSpec) -> int | None:
    """Return the MLP width that only an unpadded quantised checkpoint has, if this is one."""
    if spec.quantization is None or spec.quantization.method not in _GROUPED_METHODS:
        return None
    split = Split(tensor_parallel_size=1, expert_ranks=1)
    found = (w.size for w in widths(spec, split=split) if published_width(spec, w) != w.size)
    return next(found, None)


def misaligned_expert_shard(spec: ModelSpec, *, split: Split) -> Width | None:
    """Return the expert width whose 4-bit shard is no whole number of groups, if any."""
    quantization = spec.quantization
    if quantization is None or quantization.scheme != "int4" or not quantization.group_size:
        return None
    if quantization.method not in _GROUPED_METHODS:
        return None
    for width in quantized_widths(spec, quantization, split=split):
        shard = width.size // width.ranks
        if width.name == "expert" and width.ranks > 1 and shard % quantization.group_size:
            return width
    return None
