"""Reads the encoder in front of a language model: images, for two families audio."""

from collections.abc import Callable, Mapping

import msgspec

from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.readers.towers import Tower, towers
from service.tuning.models.spec import VisionTower


def read_tower(fields: ConfigFields, kind: str, *, hidden_size: int) -> tuple[VisionTower, bool]:
    """Return the encoder and whether the config really states its sizes."""
    tower = towers()[kind]
    section = fields.section(tower.section)
    sizes = section or ConfigFields({}, architecture=fields.architecture, pointer=fields.pointer)
    hidden = _hidden(sizes, tower, kind)
    intermediate = _intermediate(sizes, tower, kind, hidden=hidden)
    layers = sizes.integer_or(tower.layers, *_LAYER_KEYS, maximum=1_000)
    block = 4 * hidden * hidden + (3 if tower.gated else 2) * hidden * intermediate
    projector = _PROJECTORS[tower.projector](
        _Projector(
            sizes=sizes,
            hidden=hidden,
            intermediate=intermediate,
            hidden_size=hidden_size,
            feature_layers=_feature_layers(fields),
            scale_factor=fields.integer_or(2, "scale_factor", maximum=64),
        )
    )
    embedding = _embedding(tower, sizes, hidden=hidden)
    read = VisionTower(
        kind=kind,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=sizes.integer_or(tower.heads, *_HEAD_KEYS),
        parameters=layers * block + projector + embedding,
        sharded=tower.sharded,
        gated=tower.gated,
        replicated_parameters=embedding + (projector if kind in _REPLICATED_PROJECTOR else 0),
        max_image_tokens=_image_tokens(fields, tower),
    )
    return read, section is not None


_LAYER_KEYS = ("depth", "num_hidden_layers", "encoder_layers", "layers", "vt_num_hidden_layers")
_HEAD_KEYS = (
    "num_heads",
    "num_attention_heads",
    "encoder_attention_heads",
    "vt_num_attention_heads",
)
_REPLICATED_PROJECTOR = frozenset({"moonvit", "gemma3", "paligemma"})


def _image_tokens(fields: ConfigFields, tower: Tower) -> int:
    if tower.tokens_key is None:
        return tower.max_image_tokens
    return fields.integer_or(tower.max_image_tokens, tower.tokens_key)


def _hidden(sizes: ConfigFields, tower: Tower, kind: str) -> int:
    """Return the tower's width; Qwen2-VL calls it `embed_dim`, its `hidden_size` is the output."""
    if kind == "qwen2_vl":
        return sizes.integer_or(tower.hidden, "embed_dim")
    return sizes.integer_or(tower.hidden, "hidden_size", "d_model", "vt_hidden_size")


def _intermediate(sizes: ConfigFields, tower: Tower, kind: str, *, hidden: int) -> int:
    """Return the width inside a block; Qwen2-VL states it as a multiple of the tower's width."""
    if kind == "qwen2_vl":
        return int(hidden * sizes.number_or(4.0, "mlp_ratio", minimum=0.1, maximum=100.0))
    return sizes.integer_or(
        tower.intermediate, "intermediate_size", "encoder_ffn_dim", "vt_intermediate_size"
    )


def _feature_layers(fields: ConfigFields) -> int:
    """Return how many layers of the tower LLaVA concatenates in front of its projector."""
    chosen = fields.raw("vision_feature_layer")
    return len(chosen) if isinstance(chosen, list) and chosen else 1


def _embedding(tower: Tower, sizes: ConfigFields, *, hidden: int) -> int:
    patch = sizes.integer_or(tower.patch, "patch_size", "spatial_patch_size", maximum=2**12)
    rows = sizes.integer_or(tower.position_rows, "num_position_embeddings", minimum=0)
    image_size = tower.image_size
    if isinstance(sizes.raw("image_size"), int):
        image_size = sizes.integer("image_size", maximum=2**16)
    if tower.projector != "pixtral" and image_size > 0:
        rows = max(rows, (image_size // patch) ** 2)
    return 3 * tower.temporal * patch * patch * hidden + rows * hidden


class _Projector(msgspec.Struct, frozen=True, kw_only=True):
    """What the sizes of a projector depend on."""

    sizes: ConfigFields
    hidden: int
    intermediate: int
    hidden_size: int
    feature_layers: int
    scale_factor: int

    @property
    def merged(self) -> int:
        """Width of the patches that are merged into one token."""
        return self.hidden * self.sizes.integer_or(2, "spatial_merge_size", maximum=64) ** 2


def _merger(made: _Projector) -> int:
    one = made.merged * made.merged + made.merged * made.hidden_size
    return one * (1 + len(made.sizes.integers("deepstack_visual_indexes") or ()))


def _pixtral(made: _Projector) -> int:
    own = made.merged * made.hidden + made.hidden * made.hidden_size
    return own + made.hidden_size * made.hidden_size


def _llama4(made: _Projector) -> int:
    out = made.sizes.integer_or(4096, "vision_output_dim")
    inner = made.sizes.integer_or(4096, "projector_input_dim")
    return made.intermediate * inner + inner * out + out * made.hidden_size


def _glm4v(made: _Projector) -> int:
    out = made.sizes.integer_or(made.hidden_size, "out_hidden_size")
    return 4 * made.hidden * out + out * out + 3 * out * made.intermediate


def _two_layers(made: _Projector) -> int:
    first = made.feature_layers * made.hidden * made.hidden_size
    return first + made.hidden_size * made.hidden_size


def _linear(made: _Projector) -> int:
    return made.hidden * made.hidden_size


def _idefics3(made: _Projector) -> int:
    return made.hidden * made.scale_factor**2 * made.hidden_size


def _shuffle(made: _Projector) -> int:
    """Four patches (or audio frames) joined, then two layers."""
    return 4 * made.hidden * made.hidden_size + made.hidden_size * made.hidden_size


def _gemma3n(made: _Projector) -> int:
    return _GEMMA3N_ENCODERS + 2 * made.hidden * made.hidden_size


_GEMMA3N_ENCODERS = 980_000_000
_PROJECTORS: Mapping[str, Callable[[_Projector], int]] = {
    "merger": _merger,
    "moonvit": _merger,
    "linear": _linear,
    "pixtral": _pixtral,
    "shuffle": _shuffle,
    "idefics3": _idefics3,
    "voxtral": _shuffle,
    "llama4": _llama4,
    "glm4v": _glm4v,
    "gemma3n": _gemma3n,
    "mlp": _two_layers,
}
