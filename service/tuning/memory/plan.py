"""What the memory model hands on: the budget and the KV plan."""

import math
from typing import Literal

import msgspec

GIB = 1024**3

Refusal = Literal["free_memory", "weights", "no_memory", "one_request", "state_blocks"]
"""Why vLLM would not start: other processes hold too much; the weights do not load; nothing is
left for the cache; one request does not fit; fewer state blocks than sequences (hybrids)."""


class KvGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One KV-cache group: layers that draw the same number of blocks per request."""

    kind: Literal["full", "sliding", "chunked", "recurrent"]
    block_tokens: int
    """Tokens one block of this group holds (times DCP)."""
    cap_tokens: int | None = None
    """A request never holds more than this many tokens here (window and in-flight tokens)."""
    extra_blocks: int = 0
    """Blocks added per request (sliding: 1; recurrent: all it needs)."""
    reach_tokens: int | None = None
    """Tokens that a token attends (window or chunk); older ones are let go step by step."""

    def request_blocks(self, tokens: int) -> int:
        """Blocks that a request of this many tokens holds in this group."""
        if self.kind == "recurrent":
            return self.extra_blocks
        held = tokens if self.cap_tokens is None else min(tokens, self.cap_tokens)
        return math.ceil(held / self.block_tokens) + self.extra_blocks

    def decoding_blocks(self, tokens: int) -> int:
        """Blocks that a request of this many tokens holds in this group while it decodes.

        vLLM frees what the window has passed before each step, so that only a prompt in flight
        holds as much as `request_blocks` says.
        """
        reach = self.reach_tokens
        return self.request_blocks(tokens if reach is None else min(tokens, reach))


class KvPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The KV cache of one rank as that vLLM version lays it out."""

    num_blocks: int
    groups: tuple[KvGroup, ...]
    block_bytes: int
    """Bytes of one block id over all layers of the widest group."""
    kv_cache_bytes: int
    tokens: int
    """The figure that version prints as KV cache size."""
    max_concurrency: float
    """Requests of `max_model_len` that fit at once, as printed."""
    largest_max_model_len: int
    bytes_per_token: float
    """Bytes one more token of context costs (full-attention layers)."""
    element_bytes: float

    def request_blocks(self, tokens: int) -> int:
        """Block ids that a request of this many tokens holds over all groups."""
        return sum(group.request_blocks(tokens) for group in self.groups)

    def decoding_blocks(self, tokens: int) -> int:
        """Block ids that a decoding request of this many tokens holds over all groups."""
        return sum(group.decoding_blocks(tokens) for group in self.groups)


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The memory budget of the rank that limits, bytes."""

    total_bytes: int
    requested_bytes: int
    weights_bytes: float
    activation_bytes: float
    non_torch_bytes: float
    cuda_graphs_bytes: float
    """Real size of the captured graphs."""
    charged_graphs_bytes: float
    """What that version subtracts from the pool for them."""
    slack_bytes: float
    available_bytes: float
    """Left for the KV cache; negative when nothing is."""
    band_bytes: float
    """Half width of the 80 % band of `available_bytes`."""
    limiting_rank: str
    kv: KvPlan | None
    """None when nothing is left or the layout is unknown."""
    max_model_len: int
    fits: bool
    borderline: bool
    """Predicted concurrency so near 1 that the verdict is not sure."""
    refusals: tuple[Refusal, ...] = ()
    """Why it does not fit, in the order in which vLLM notices; empty when it does."""
    kv_bytes_per_token: float = 0.0
    """Bytes one more token of context costs on the limiting rank, also when nothing fits."""
