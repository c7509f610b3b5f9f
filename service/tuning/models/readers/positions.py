"""Reads how far a model reaches and which rotary tables vLLM keeps for it."""

import msgspec

from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import RopeCache

_LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_LENGTH_WITHOUT_KEY = 2048
"""What vLLM assumes when a config states no length (config/model.py, 0.33.0)."""
_LONGEST = 2**31
_LONGEST_WITHOUT_POSITIONS = 2**20
_ALREADY_SCALED = frozenset({"su", "longrope", "llama3"})
_MULTIMODAL_TIMES = 4
_YARN = frozenset({"yarn", "deepseek_yarn", "deepseek_llama_scaling"})


class Rope(msgspec.Struct, frozen=True, kw_only=True):
    """One rotary embedding of a config."""

    layer_type: str | None
    kind: str
    factor: float
    original_positions: int | None
    partial: float | None
    multimodal: bool


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The positions that a model was made for."""

    stated: int
    """Positions the config states, before any scaling."""
    longest: int
    """The longest `max_model_len` vLLM derives."""
    default: int | None
    """The one it takes unasked, when that is another."""
    is_stated: bool


def read_reach(fields: ConfigFields, *, model_type: str) -> Reach:
    """Return the positions of the model as vLLM derives them.

    Releases up to 0.32 scale YaRN models from their original length; the two agree whenever the
    config states the scaled length, as published ones do.
    """
    lengths = [
        length
        for key in _LENGTH_KEYS
        if (length := fields.maybe_integer(key, maximum=_LONGEST)) is not None
    ]
    stated = min(lengths) if lengths else _LENGTH_WITHOUT_KEY
    longest = fields.integer_or(stated, "model_max_length", maximum=_LONGEST)
    longest = longest if lengths else stated
    ropes = read_ropes(fields)
    if "gemma3" not in model_type:
        longest = _scaled(longest, ropes)
    default = None
    if any(rope.kind in {"longrope", "su"} for rope in ropes):
        default = fields.maybe_integer("original_max_position_embeddings", maximum=_LONGEST)
    return Reach(stated=stated, longest=longest, default=default, is_stated=bool(lengths))


def without_positions(reach: Reach) -> Reach:
    """Return the reach of a model without attention: nothing in it counts positions.

    Where the config states no length vLLM takes 2048 unasked, and any length that it is given
    (config/model.py, 0.33.0); `longest` is then a round number far above any use.
    """
    if reach.is_stated:
        return reach
    return msgspec.structs.replace(
        reach, longest=_LONGEST_WITHOUT_POSITIONS, default=_LENGTH_WITHOUT_KEY
    )


def _scaled(length: int, ropes: tuple[Rope, ...]) -> int:
    for rope in ropes:
        if rope.kind in _YARN and rope.original_positions is not None:
            return int(rope.original_positions * rope.factor)
        if rope.kind not in _ALREADY_SCALED and rope.kind not in _YARN and rope.factor != 1.0:
            return int(length * rope.factor)
    return length


def read_ropes(fields: ConfigFields) -> tuple[Rope, ...]:
    """Return the rotary embeddings that `rope_parameters` or `rope_scaling` name."""
    section = fields.section("rope_parameters") or fields.section("rope_scaling")
    if section is None:
        return ()
    nested = section.sections_within()
    if not nested:
        return (_rope(section, layer_type=None),)
    return tuple(
        _rope(inner, layer_type=key)
        for key in nested
        if (inner := section.section(key)) is not None
    )


def _rope(section: ConfigFields, *, layer_type: str | None) -> Rope:
    return Rope(
        layer_type=layer_type,
        kind=section.text("rope_type") or section.text("type") or "default",
        factor=section.number_or(1.0, "factor", minimum=1e-6, maximum=1e6),
        original_positions=section.maybe_integer(
            "original_max_position_embeddings", maximum=_LONGEST
        ),
        partial=_partial(section),
        multimodal="mrope_section" in section,
    )


def _partial(section: ConfigFields) -> float | None:
    if "partial_rotary_factor" not in section:
        return None
    return section.number_or(1.0, "partial_rotary_factor", maximum=1.0)


def rope_caches(
    fields: ConfigFields,
    rotated: tuple[tuple[str, int], ...],
    *,
    positions: int,
    partial: float,
    has_local_rope: bool,
    multimodal_factor: int,
    unstated_factor: float = 1.0,
) -> tuple[RopeCache, ...]:
    """Return the rotary tables: layers that rotate alike share one.

    `rotated` pairs the layer type of every kind of attention with the width that may rotate;
    `has_local_rope` says that sliding layers rotate without the scaling of the others.
    """
    by_type = {rope.layer_type: rope for rope in read_ropes(fields)}
    if not by_type and unstated_factor > 1 and positions >= _LONG_POSITIONS:
        by_type = {None: _linear_rope(unstated_factor)}
    found: dict[tuple[Rope | None, bool, int], RopeCache] = {}
    for layer_type, width in rotated:
        is_local = has_local_rope and layer_type == "sliding_attention"
        rope = by_type.get(layer_type) or (None if is_local else by_type.get(None))
        cache = _rope_cache(rope, positions=positions, width=width, partial=partial)
        if rope is not None and rope.multimodal:
            cache = _multimodal_cache(cache, times=multimodal_factor)
        found[rope, is_local, width] = cache
    return tuple(found.values())


def _multimodal_cache(cache: RopeCache, *, times: int) -> RopeCache:
    """Return the table of a model that counts positions of pictures, longer than its text reach.

    All of them held four times the positions (mrope.py of releases to 0.29); Qwen3-VL and what
    followed it need them once since 0.32 (qwen3_vl.py).
    """
    return RopeCache(
        positions=cache.positions * times,
        dim=cache.dim,
        older_positions=cache.positions * _MULTIMODAL_TIMES,
    )


def _linear_rope(factor: float) -> Rope:
    return Rope(
        layer_type=None,
        kind="linear",
        factor=factor,
        original_positions=None,
        partial=None,
        multimodal=False,
    )


_LONG_POSITIONS = 131_072
"""Gemma 3 reaches this by scaling its global layers; its 1B model stops at 32,768 without."""


def _rope_cache(rope: Rope | None, *, positions: int, width: int, partial: float) -> RopeCache:
    if rope is None:
        return RopeCache(positions=positions, dim=int(width * partial))
    share = partial if rope.partial is None else rope.partial
    # Proportional rotary embeddings (Gemma 4) keep a row as wide as the head (gemma4_rope.py).
    dim = width if rope.kind == "proportional" else int(width * share)
    return RopeCache(positions=_cache_positions(rope, positions=positions), dim=dim)


def _cache_positions(rope: Rope, *, positions: int) -> int:
    if rope.kind in _YARN:
        return int((rope.original_positions or positions) * rope.factor)
    if rope.kind == "linear":
        return int(positions * rope.factor)
    if rope.kind in {"longrope", "su"}:
        return positions + (rope.original_positions or 0)
    return positions
