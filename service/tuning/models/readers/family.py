"""What tells one family of models from the common layout."""

from collections.abc import Callable
from typing import Literal

import msgspec

from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import FeedForward, Mixer

Layer = tuple[Mixer | None, FeedForward | None]
"""One layer of the stack."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Traits that a config leaves to the model's code; the defaults are Llama's."""

    layers: Callable[[ConfigFields, "Family"], tuple[Layer, ...]] | None = None
    """Reader of the whole stack; None is the common layout."""
    gated: bool = True
    """Three matrices in the MLP instead of two."""
    tied: bool = False
    """`tie_word_embeddings` when the config does not say (the default of its config class)."""
    qkv_bias: bool = False
    qk_norm: bool = False
    output_gate: bool = False
    has_sinks: bool = False
    norms_per_layer: int = 2
    window_used: bool = True
    """Whether `sliding_window` counts when `use_sliding_window` is absent."""
    full_every: int | None = None
    """Every how many layers one attends to everything; None is no such pattern."""
    other_kind: Literal["sliding", "chunked", "linear"] = "sliding"
    """What the layers between those do."""
    kv_heads: Callable[[ConfigFields, int], int] | None = None
    intermediate: Callable[[ConfigFields, int], int] | None = None
    """Width of the MLP when the config does not state it, from the hidden size."""
    expert_width: str = "moe_intermediate_size"
    """Key with the width of one routed expert."""
    dense_width: str = "intermediate_size"
    shared_experts: Literal["stated", "required", "one"] = "stated"
    """Shared experts: as stated, a width that must be stated, or one as wide as an expert."""
    rotary: bool = True
    position_embeddings: Literal["none", "learned", "offset"] = "none"
    """A learned table of positions (GPT-2), with two more rows in OPT's."""
    rotary_factor: float = 1.0
    unstated_rope_factor: float = 1.0
    """Linear scaling of published long models when an excerpt leaves the scaling out."""
    has_local_rope: bool = False
    """Sliding layers rotate with unscaled parameters of their own."""
    multimodal_rope_factor: int = 4
    """How many times longer vLLM makes a multimodal rotary table (mrope.py, 0.33.0)."""
    vision: str | None = None
    """Kind of the tower in front; its own section is `vision_config` unless the tower says."""
    supports_pp: bool = True
    mtp_layers: int = 0
    """Prediction layers of published checkpoints when the config does not count them."""
    state_bytes: int = 2
    """Bytes of an element of recurrent state when nothing says: the model's dtype, or fp32.

    `auto` keeps the state in the model's dtype but for Kimi's delta attention and Nemotron-H
    (layers/mamba/mamba_utils.py and models/config.py, 0.33.0).
    """
    joined_hidden_states: int = 0
    """EAGLE heads: the target's hidden states that its projection joins."""
