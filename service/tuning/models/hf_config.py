"""Reads a Hugging Face config.json into a ModelSpec."""

import difflib
from collections.abc import Mapping
from typing import Literal

from api_schemas.base import Json
from service.tuning.errors import InvalidRequest, UnsupportedArchitecture
from service.tuning.models.quantization import read_quantization
from service.tuning.models.readers import mixed
from service.tuning.models.readers.architectures import FAMILIES, REFUSED, TEXT_MODEL_TYPES
from service.tuning.models.readers.attention import head_dim
from service.tuning.models.readers.family import Family, Layer
from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.readers.hybrid import hidden_size
from service.tuning.models.readers.positions import (
    Reach,
    read_reach,
    rope_caches,
    without_positions,
)
from service.tuning.models.readers.text_defaults import with_text_defaults
from service.tuning.models.readers.vision import read_tower
from service.tuning.models.spec import (
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    MixtureOfExperts,
    ModelSpec,
    Quantization,
    RopeCache,
    VisionTower,
)

_TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
_DTYPES: Mapping[str, Literal["bfloat16", "float16", "float32"]] = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
    # vLLM serves float32 checkpoints in 16 bit unless told otherwise (dtype auto).
    "float32": "bfloat16",
    "float": "bfloat16",
}
_MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
Confidence = Literal["high", "medium", "low"]


def read_config(
    config: Mapping[str, Json], *, model_id: str, weights_bytes: int | None = None
) -> ModelSpec:
    """Return the model that this config.json describes.

    Raises UnsupportedArchitecture when the layout is not known or a needed key is absent, and
    InvalidRequest when a key holds a value that makes no sense; both name the key.
    """
    architecture = _architecture(config)
    top = ConfigFields(config, architecture=architecture)
    text, text_stated = _text_section(top)
    family = _family(text, architecture)
    layers = (family.layers or mixed.common)(text, family)
    groups, order = _grouped(layers)
    reach = _reach(top, text, groups)
    width = hidden_size(text)
    vision, vision_stated = _vision(top, architecture, hidden_size=width)
    quantization = read_quantization(top, text)
    mtp_layers = _mtp_layers(text, family)
    is_stated = text_stated and vision_stated and reach.is_stated
    return ModelSpec(
        id=model_id,
        architecture=architecture,
        model_type=top.text("model_type") or "",
        hidden_size=width,
        vocab_size=_vocabulary(text),
        max_position_embeddings=reach.longest,
        default_max_model_len=reach.default,
        dtype=_dtype(top, text),
        layers=groups,
        layer_order=order,
        tie_word_embeddings=_tied(top, text, family),
        quantization=quantization,
        vision=vision,
        mtp_layers=mtp_layers,
        mtp_layer=_mtp_layer(layers, count=mtp_layers),
        mtp_prefix="mtp.layers.0" if family.mtp_layers else "",
        joined_hidden_states=family.joined_hidden_states,
        rope_caches=_rope_caches(text, family, groups, reach),
        embedding_size=_embedding_size(text, width),
        per_layer_input_size=text.integer_or(0, "hidden_size_per_layer_input", minimum=0),
        per_layer_vocab_size=text.integer_or(0, "vocab_size_per_layer_input", minimum=0),
        norms_per_layer=family.norms_per_layer,
        learned_positions=_learned_positions(family, reach),
        ssm_state_bytes=_state_bytes(text, family),
        supports_pp=family.supports_pp,
        is_multimodal=vision is not None,
        layout_confidence=_confidence(quantization, is_stated=is_stated),
        weights_bytes=weights_bytes,
    )


def _architecture(config: Mapping[str, Json]) -> str:
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return named[0]
    if named is not None and named != []:
        raise InvalidRequest(
            "architectures must be a list of names", pointer="/model/config/architectures"
        )
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in TEXT_MODEL_TYPES:
        return TEXT_MODEL_TYPES[model_type]
    raise UnsupportedArchitecture("the config names no architecture", missing=("architectures",))


def _text_section(top: ConfigFields) -> tuple[ConfigFields, bool]:
    """Return the language model's part, the whole when it is not nested, and if it is complete."""
    for key in _TEXT_SECTIONS:
        section = top.section(key)
        if section is not None:
            nested, was_short = with_text_defaults(section.section("text_config") or section)
            return nested, not was_short
    return top, True


def _family(text: ConfigFields, architecture: str) -> Family:
    if architecture in REFUSED:
        raise UnsupportedArchitecture(
            f"{architecture}: unsupported layout, {REFUSED[architecture]}",
            missing=(REFUSED[architecture],),
        )
    if architecture not in FAMILIES:
        near = difflib.get_close_matches(architecture, FAMILIES, n=3, cutoff=0.8)
        hint = f"; near names: {', '.join(near)}" if near else ""
        raise UnsupportedArchitecture(
            f"{architecture} is not a known architecture{hint}",
            missing=("a layout for this architecture",),
            pointer="/model/config/architectures",
        )
    outer = FAMILIES[architecture]
    inner = _nested_architecture(text)
    if outer.vision is None or inner not in FAMILIES or inner == architecture:
        return outer
    return FAMILIES[inner]


def _nested_architecture(text: ConfigFields) -> str:
    named = text.raw("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return named[0]
    return TEXT_MODEL_TYPES.get(text.text("model_type") or "", "")


def _grouped(layers: tuple[Layer, ...]) -> tuple[tuple[LayerGroup, ...], tuple[int, ...]]:
    """Return the distinct kinds of layer with their counts, and each layer's kind."""
    kinds = list(dict.fromkeys(layers))
    index_of = {layer: index for index, layer in enumerate(kinds)}
    order = tuple(index_of[layer] for layer in layers)
    groups = tuple(
        LayerGroup(count=order.count(index), mixer=mixer, feed_forward=part)
        for index, (mixer, part) in enumerate(kinds)
    )
    return groups, order


def _reach(top: ConfigFields, text: ConfigFields, groups: tuple[LayerGroup, ...]) -> Reach:
    model_type = text.text("model_type") or top.text("model_type") or ""
    reach = read_reach(text, model_type=model_type)
    attends = any(isinstance(g.mixer, GroupedQueryAttention | LatentAttention) for g in groups)
    return reach if attends else without_positions(reach)


def _vision(
    top: ConfigFields, architecture: str, *, hidden_size: int
) -> tuple[VisionTower | None, bool]:
    kind = FAMILIES[architecture].vision
    if kind is None:
        return None, True
    return read_tower(top, kind, hidden_size=hidden_size)


def _dtype(top: ConfigFields, text: ConfigFields) -> Literal["bfloat16", "float16", "float32"]:
    """Return the dtype vLLM loads in, bfloat16 where the config states none.

    A silent config leaves no doubt about sizes: vLLM reads the dtype from the weight files, or
    takes 32 bit, and casts that to 16 (config/model.py of 0.33.0, config.py of 0.8.2).
    """
    for fields in (top, text):
        for key in ("torch_dtype", "dtype"):
            named = fields.text(key)
            if named is None or named == "auto":
                continue
            short = named.removeprefix("torch.")
            if short not in _DTYPES:
                fields.reject(key, f"must be one of {', '.join(_DTYPES)}, got {named!r}")
            return _DTYPES[short]
    return "bfloat16"


def _tied(top: ConfigFields, text: ConfigFields, family: Family) -> bool:
    if text.raw("tie_word_embeddings") is not None:
        return text.flag("tie_word_embeddings")
    return top.flag("tie_word_embeddings", default=family.tied)


def _mtp_layers(text: ConfigFields, family: Family) -> int:
    return text.integer_or(family.mtp_layers, *_MTP_KEYS, minimum=0, maximum=64)


def _mtp_layer(layers: tuple[Layer, ...], *, count: int) -> LayerGroup | None:
    """Return the make of a prediction layer: full attention with the last feed-forward part."""
    if count == 0:
        return None
    mixers = [
        mixer for mixer, _ in layers if isinstance(mixer, GroupedQueryAttention | LatentAttention)
    ]
    if not mixers:
        return None
    full = [m for m in mixers if isinstance(m, LatentAttention) or m.window is None]
    parts = [part for _, part in layers if part is not None]
    sparse = [part for part in parts if isinstance(part, MixtureOfExperts)]
    part = sparse[-1] if sparse else parts[-1] if parts else None
    return LayerGroup(count=count, mixer=(full or mixers)[-1], feed_forward=part)


def _rope_caches(
    text: ConfigFields, family: Family, groups: tuple[LayerGroup, ...], reach: Reach
) -> tuple[RopeCache, ...]:
    if not family.rotary or text.raw("position_embedding_type") in _UNROTATED:
        return ()
    rotated = tuple(pair for group in groups if (pair := _rotated(group)) is not None)
    return rope_caches(
        text,
        tuple(dict.fromkeys(rotated)),
        positions=reach.stated,
        partial=1.0 if "kv_lora_rank" in text else _partial(text, family),
        has_local_rope=family.has_local_rope,
        multimodal_factor=family.multimodal_rope_factor,
        unstated_factor=family.unstated_rope_factor,
    )


_UNROTATED = ("nope", "alibi", "none")


def _rotated(group: LayerGroup) -> tuple[str, int] | None:
    """Return the layer type and the width of a head that may rotate."""
    match group.mixer:
        case LatentAttention(qk_rope_head_dim=width):
            return "full_attention", width
        case GroupedQueryAttention(head_dim=width, window=None):
            return "full_attention", width
        case GroupedQueryAttention(head_dim=width):
            return "sliding_attention", width
        case _:
            return None


def _partial(text: ConfigFields, family: Family) -> float:
    """Return the share of a head that rotates."""
    share = text.number_or(
        family.rotary_factor, "partial_rotary_factor", "rotary_pct", "rope_pct", maximum=1.0
    )
    explicit = text.maybe_integer("rotary_dim")
    if explicit is None:
        return share
    return min(1.0, explicit / head_dim(text, hidden_size=hidden_size(text)))


def _vocabulary(text: ConfigFields) -> int:
    """Return the rows of the output head; an EAGLE-3 head may know fewer tokens."""
    drafted = text.maybe_integer("draft_vocab_size", maximum=2**24)
    return drafted or text.integer("vocab_size", "padded_vocab_size", maximum=2**24)


def _embedding_size(text: ConfigFields, width: int) -> int | None:
    size = text.maybe_integer("word_embed_proj_dim")
    return None if size in {None, width} else size


_OPT_OFFSET = 2
"""OPT's table of positions has two rows more than positions (opt.py)."""


def _learned_positions(family: Family, reach: Reach) -> int:
    match family.position_embeddings:
        case "learned":
            return reach.stated
        case "offset":
            return reach.stated + _OPT_OFFSET
        case _:
            return 0


def _state_bytes(text: ConfigFields, family: Family) -> int:
    named = text.text("mamba_ssm_dtype") or text.text("mamba_ssm_cache_dtype")
    if named is None:
        return family.state_bytes
    return 4 if "32" in named else 2


def _confidence(quantization: Quantization | None, *, is_stated: bool) -> Confidence:
    if quantization is not None and not quantization.layout_known:
        return "low"
    return "high" if is_stated else "medium"
