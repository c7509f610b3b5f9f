"""Lists the weights before and after the layers: embeddings, head, tables and the encoder."""

from collections.abc import Iterator

import msgspec

from service.tuning.models.spec import GroupedQueryAttention, ModelSpec
from service.tuning.models.tensors import LayerWeights, Sharding, WeightTensor, layer_groups

_VOCABULARY_PADDING = 64
"""vLLM pads the vocabulary to this multiple (vocab_parallel_embedding.py, 0.33.0)."""


def end_tensors(spec: ModelSpec) -> Iterator[WeightTensor]:
    """Yield what lies before and after the layers."""
    first = LayerWeights(spec, layer=None, prefix="model", place="first")
    last = LayerWeights(spec, layer=None, prefix="model", place="last")
    if spec.joined_hidden_states:
        yield from _eagle_ends(spec, last)
        return
    width = spec.embedding_size or spec.hidden_size
    rows = _padded_vocabulary(spec.vocab_size)
    yield first.plain("embed_tokens", "embedding", rows * width, sharding="vocabulary")
    yield _head(spec, rows * width)
    if width != spec.hidden_size:
        for make, name in ((first, "project_in"), (last, "project_out")):
            yield make.plain(name, "embedding", width * spec.hidden_size, sharding="replicated")
    if spec.learned_positions:
        size = spec.learned_positions * spec.hidden_size
        yield first.plain("embed_positions", "positions", size, sharding="replicated")
    yield from _per_layer_embeddings(spec, first)
    yield from _rotary_caches(spec)
    yield from _vision(spec, first)


_OWN_HEAD_FROM = 3
"""EAGLE-3 heads bring an output head of their own, earlier ones use the target's."""


def _eagle_ends(spec: ModelSpec, last: LayerWeights) -> Iterator[WeightTensor]:
    """Yield what an EAGLE head has beside its layers; the embedding is its target's."""
    square = spec.hidden_size * spec.hidden_size
    joined = spec.joined_hidden_states * square
    yield last.plain("fc", "draft", joined, sharding="replicated")
    if spec.joined_hidden_states >= _OWN_HEAD_FROM:
        yield last.plain("qkv_proj.hidden", "draft", _second_input(spec))
        yield _head(
            msgspec.structs.replace(spec, tie_word_embeddings=False),
            _padded_vocabulary(spec.vocab_size) * spec.hidden_size,
        )
    yield from _rotary_caches(spec)


def _second_input(spec: ModelSpec) -> int:
    """Return the part of an EAGLE-3 head's QKV that reads the hidden state of its target."""
    mixer = layer_groups(spec)[0].mixer
    if not isinstance(mixer, GroupedQueryAttention):
        return 0
    keys = mixer.num_kv_heads * (mixer.head_dim + mixer.v_head_dim)
    return spec.hidden_size * (mixer.num_heads * mixer.head_dim + keys)


def _head(spec: ModelSpec, parameters: int) -> WeightTensor:
    """Return the output head; a tied one is the embedding again on the last stage."""
    make = LayerWeights(spec, layer=None, prefix="", place="last")
    head = make.linear("lm_head", "head", parameters, sharding="vocabulary")
    if not spec.tie_word_embeddings:
        return head
    return make.plain("lm_head", "head", parameters, sharding="vocabulary")


def _per_layer_embeddings(spec: ModelSpec, first: LayerWeights) -> Iterator[WeightTensor]:
    width = spec.per_layer_input_size * spec.num_layers
    if width == 0:
        return
    rows = _padded_vocabulary(spec.per_layer_vocab_size or spec.vocab_size)
    yield first.plain("embed_tokens_per_layer", "embedding", rows * width, sharding="vocabulary")
    yield first.plain("per_layer_model_projection", "embedding", spec.hidden_size * width)


def _rotary_caches(spec: ModelSpec) -> Iterator[WeightTensor]:
    make = LayerWeights(spec, layer=None, prefix="rotary", place="every")
    for index, cache in enumerate(spec.rope_caches):
        yield make.plain(
            str(index), "rotary_cache", cache.positions * cache.dim, sharding="replicated"
        )


def _vision(spec: ModelSpec, first: LayerWeights) -> Iterator[WeightTensor]:
    tower = spec.vision
    if tower is None:
        return
    sharding: Sharding = "tensor" if tower.sharded else "replicated"
    square = tower.hidden_size * tower.hidden_size
    wide = tower.hidden_size * tower.intermediate_size
    parts = {
        "qkv": 3 * square,
        "proj": square,
        "up": wide * (2 if tower.gated else 1),
        "down": wide,
    }
    for layer in range(tower.num_layers):
        for name, parameters in parts.items():
            yield first.plain(f"visual.{layer}.{name}", "vision", parameters, sharding=sharding)
    rest = tower.parameters - tower.num_layers * sum(parts.values())
    whole = min(rest, tower.replicated_parameters)
    yield first.plain("visual.projector", "vision", rest - whole, sharding=sharding)
    yield first.plain("visual.embedding", "vision", whole, sharding="replicated")


def _padded_vocabulary(rows: int) -> int:
    return -(-rows // _VOCABULARY_PADDING) * _VOCABULARY_PADDING
