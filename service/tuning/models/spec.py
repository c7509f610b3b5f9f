"""A model as the core sees it: layer groups of a sequence mixer and a feed-forward part."""

from typing import Literal

import msgspec


class _Part(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Base of the value types here: looked up by content all the time, so hashed once."""


class GroupedQueryAttention(_Part, frozen=True, kw_only=True, tag="gqa"):
    """Softmax attention with `num_kv_heads` shared key/value heads (MHA when equal)."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    """Sliding window in tokens; None is full attention."""
    chunk: int | None = None
    """Chunked local attention (Llama 4) in tokens."""
    output_gate: bool = False
    """A gate as wide as the query projection (Qwen3-Next)."""
    k_eq_v: bool = False
    """No separate value projection (Gemma 4 full layers)."""
    shares_kv: bool = False
    """Reuses the KV cache of an earlier layer, so adds none."""
    qkv_bias: bool = False
    has_sinks: bool = False
    qk_norm: bool = False
    projects_kv: bool = True
    """Whether the layer has key and value projections (Gemma 4 drops them where it shares KV)."""


class LatentAttention(_Part, frozen=True, kw_only=True, tag="mla"):
    """Multi-head latent attention (DeepSeek V2/V3, Kimi); the cache holds one latent per token."""

    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    index_topk: int | None = None
    """Sparse MLA (DeepSeek V3.2, GLM DSA): tokens attended; None is dense."""
    index_num_heads: int = 0
    index_head_dim: int = 0


class LinearAttention(_Part, frozen=True, kw_only=True, tag="linear"):
    """Gated DeltaNet, KDA and kin: a recurrent state per request instead of a cache per token."""

    kind: Literal["gdn", "kda", "lightning"]
    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int


class StateSpace(_Part, frozen=True, kw_only=True, tag="ssm"):
    """Mamba 1 or 2: a convolution state and an SSM state per request."""

    kind: Literal["mamba1", "mamba2"]
    inner_size: int
    num_heads: int
    head_dim: int
    state_size: int
    num_groups: int
    conv_kernel: int
    time_step_rank: int = 0
    """Rank of the step-size projection (Mamba 1); 0 is none."""


Mixer = GroupedQueryAttention | LatentAttention | LinearAttention | StateSpace


class DenseFeedForward(_Part, frozen=True, kw_only=True, tag="dense"):
    """A plain MLP; gated ones have three matrices, others two."""

    intermediate_size: int
    gated: bool = True


class MixtureOfExperts(_Part, frozen=True, kw_only=True, tag="moe"):
    """Routed experts plus shared ones that every token passes."""

    num_experts: int
    experts_per_token: int
    expert_intermediate_size: int
    shared_intermediate_size: int = 0
    gated: bool = True
    parallel_dense_intermediate_size: int = 0
    """A dense MLP beside the experts in the same layer (Gemma 4, Arctic); 0 is none."""
    latent_size: int = 0
    """Width the experts work in when it is narrower than the model (Nemotron 3); 0 is none."""


FeedForward = DenseFeedForward | MixtureOfExperts


class LayerGroup(_Part, frozen=True, kw_only=True):
    """`count` layers of the same make (mixer or feed-forward may be absent in hybrids)."""

    count: int
    mixer: Mixer | None
    feed_forward: FeedForward | None


QuantizationScheme = Literal[
    "fp8",
    "fp8_block",
    "int8_w8a8",
    "int8_w8a16",
    "int4",
    "nvfp4",
    "mxfp4",
    "mxfp8",
    "nf4",
    "mixed",
    "unknown",
]


class WeightFormat(_Part, frozen=True, kw_only=True):
    """How the weights of the named modules are stored."""

    targets: tuple[str, ...] = ()
    """Module patterns (as in `Quantization.ignore`); empty means every linear layer."""
    scheme: QuantizationScheme
    bits: float
    group_size: int | None = None
    has_zero_points: bool = False
    activation_bits: int | None = None
    """Bits of the activations in the GEMM: 8 for W8A8, 4 for NVFP4, None for weight-only."""


class Quantization(_Part, frozen=True, kw_only=True):
    """How a checkpoint stores its linear weights."""

    method: str
    """vLLM's name: fp8, awq, gptq, compressed-tensors, modelopt, mxfp4, bitsandbytes, ..."""
    scheme: QuantizationScheme
    """The scheme of most weights; `mixed` when `formats` holds several."""
    bits: float
    group_size: int | None = None
    block_shape: tuple[int, int] | None = None
    has_zero_points: bool = False
    activation_bits: int | None = None
    """Bits of the activations in the GEMM: 8 for W8A8, 4 for NVFP4, None for weight-only."""
    ignore: tuple[str, ...] = ()
    """Module patterns that stay in the model's dtype: plain substrings, globs or `re:`."""
    quantizes_head: bool = False
    experts_only: bool = False
    kv_cache_bits: int | None = None
    """A `kv_cache_scheme` of the checkpoint: 8 turns `auto` into fp8."""
    layout_known: bool = True
    formats: tuple[WeightFormat, ...] = ()
    """One per config group, in the order in which they are tried; never empty when known."""


class RopeCache(_Part, frozen=True, kw_only=True):
    """A table of rotary cosines and sines that vLLM keeps on every GPU."""

    positions: int
    dim: int
    older_positions: int | None = None
    """Positions of the table in older releases, where those were more."""


class VisionTower(_Part, frozen=True, kw_only=True):
    """The image (or audio) encoder in front of the language model."""

    kind: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    parameters: int
    """Parameters of tower and projector together."""
    sharded: bool
    """Split by tensor parallelism (Qwen-VL, SigLIP), or replicated (Pixtral)."""
    replicated_parameters: int = 0
    """Parameters that every rank holds whole although the tower is split."""
    gated: bool = False
    max_image_tokens: int = 0
    """Tokens of one image of maximal size in the language model."""


class ModelSpec(_Part, frozen=True, kw_only=True):
    """Everything the core knows of a model."""

    id: str
    architecture: str
    """The `architectures[0]` of the config."""
    model_type: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    """The longest sequence vLLM derives for it (after YaRN and kin)."""
    dtype: Literal["bfloat16", "float16", "float32"]
    layers: tuple[LayerGroup, ...]
    """In order of the stack; a group is a run of equal layers or all layers of one kind."""
    layer_order: tuple[int, ...] = ()
    """For each layer in stack order the index of its group."""
    tie_word_embeddings: bool = False
    quantization: Quantization | None = None
    vision: VisionTower | None = None
    mtp_layers: int = 0
    """Multi-token-prediction layers in the checkpoint (loaded only with speculation)."""
    mtp_layer: LayerGroup | None = None
    """What one such layer is made of (`count` layers of it)."""
    mtp_prefix: str = ""
    """Module name of such a layer in the checkpoint; empty numbers it after the last layer."""
    joined_hidden_states: int = 0
    """An EAGLE head joins this many hidden states and shares its target's embedding; 0 is none."""
    rope_caches: tuple[RopeCache, ...] = ()
    embedding_size: int | None = None
    """Width of the token embedding when it is not `hidden_size` (OPT-350m)."""
    per_layer_input_size: int = 0
    """Width of the extra embedding of every layer (Gemma 3n, Gemma 4 E models); 0 is none."""
    per_layer_vocab_size: int = 0
    default_max_model_len: int | None = None
    """What vLLM takes when no `max_model_len` is given; None is `max_position_embeddings`."""
    norms_per_layer: int = 2
    learned_positions: int = 0
    """Rows of a learned position table (GPT-2, OPT)."""
    ssm_state_bytes: int = 4
    supports_pp: bool = True
    is_multimodal: bool = False
    layout_confidence: Literal["high", "medium", "low"] = "high"
    weights_bytes: int | None = None
    """Total of the checkpoint's files when the caller stated it."""

    @property
    def num_layers(self) -> int:
        """Layers of the language model."""
        return sum(group.count for group in self.layers)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes to experts."""
        return any(isinstance(g.feed_forward, MixtureOfExperts) for g in self.layers)

    @property
    def is_hybrid(self) -> bool:
        """Whether any layer keeps a recurrent state."""
        return any(isinstance(g.mixer, LinearAttention | StateSpace) for g in self.layers)
