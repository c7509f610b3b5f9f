"""Reads the encoder in front of a language model: images, for two families audio."""

from collections.abc import Mapping

import msgspec

from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import VisionTower


class Tower(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one kind of encoder from another; sizes are those of the published models.

    The sizes stand in when an excerpt of a config leaves the encoder's section out. They are read
    from the config.json files of the models named beside each entry.
    """

    section: str = "vision_config"
    layers: int
    hidden: int
    intermediate: int
    heads: int
    patch: int = 14
    gated: bool = False
    sharded: bool = True
    projector: str = "mlp"
    temporal: int = 1
    image_size: int = 0
    position_rows: int = 0
    max_image_tokens: int
    tokens_key: str | None = None


TOWERS: Mapping[str, Tower] = {
    # Qwen2-VL-7B: 16,384 tokens is the limit of its image processor.
    "qwen2_vl": Tower(
        layers=32,
        hidden=1280,
        intermediate=5120,
        heads=16,
        temporal=2,
        projector="merger",
        max_image_tokens=16_384,
    ),
    # Qwen2.5-VL-7B
    "qwen2_5_vl": Tower(
        layers=32,
        hidden=1280,
        intermediate=3420,
        heads=16,
        temporal=2,
        gated=True,
        projector="merger",
        max_image_tokens=16_384,
    ),
    # Qwen3-VL-8B, Qwen3.5-27B
    "qwen3_vl": Tower(
        layers=27,
        hidden=1152,
        intermediate=4304,
        heads=16,
        patch=16,
        temporal=2,
        projector="merger",
        position_rows=2304,
        max_image_tokens=16_384,
    ),
    # Gemma 3 (SigLIP so400m at 896 pixels)
    "gemma3": Tower(
        layers=27,
        hidden=1152,
        intermediate=4304,
        heads=16,
        image_size=896,
        projector="linear",
        max_image_tokens=256,
        tokens_key="mm_tokens_per_image",
    ),
    # Gemma 4
    "gemma4": Tower(
        layers=27,
        hidden=1152,
        intermediate=4304,
        heads=16,
        patch=16,
        gated=True,
        sharded=False,
        projector="linear",
        position_rows=20_480,
        max_image_tokens=280,
        tokens_key="vision_soft_tokens_per_image",
    ),
    # Gemma 3n: MobileNet-v5 300M and a 680M audio encoder, as its model card counts them.
    "gemma3n": Tower(
        layers=1,
        hidden=2048,
        intermediate=1,
        heads=8,
        sharded=False,
        projector="gemma3n",
        max_image_tokens=256,
    ),
    # LLaVA-1.5 (CLIP ViT-L/14 at 336 pixels)
    "llava": Tower(
        layers=24,
        hidden=1024,
        intermediate=4096,
        heads=16,
        image_size=336,
        projector="mlp",
        max_image_tokens=576,
    ),
    # LLaVA-1.6: five tiles of 576 tokens.
    "llava_next": Tower(
        layers=24,
        hidden=1024,
        intermediate=4096,
        heads=16,
        image_size=336,
        projector="mlp",
        max_image_tokens=2880,
    ),
    # PaliGemma (SigLIP so400m at 224 pixels)
    "paligemma": Tower(
        layers=27,
        hidden=1152,
        intermediate=4304,
        heads=16,
        image_size=224,
        projector="linear",
        max_image_tokens=256,
    ),
    # Mistral Small 3.1, Ministral 3
    "pixtral": Tower(
        layers=24,
        hidden=1024,
        intermediate=4096,
        heads=16,
        gated=True,
        sharded=False,
        projector="pixtral",
        image_size=1540,
        max_image_tokens=3025,
    ),
    # Llama 4 Scout and Maverick: 16 tiles of 144 tokens and one for the whole.
    "llama4": Tower(
        layers=34,
        hidden=1408,
        intermediate=5632,
        heads=16,
        image_size=336,
        projector="llama4",
        max_image_tokens=2448,
    ),
    # InternVL 2.5/3 (InternViT-300M at 448 pixels): 12 tiles of 256 tokens and a thumbnail.
    "internvl": Tower(
        layers=24,
        hidden=1024,
        intermediate=4096,
        heads=16,
        image_size=448,
        projector="shuffle",
        max_image_tokens=3328,
    ),
    # Kimi-VL, Kimi K2.5 (MoonViT)
    "moonvit": Tower(
        layers=27,
        hidden=1152,
        intermediate=4304,
        heads=16,
        position_rows=4096,
        projector="moonvit",
        max_image_tokens=4096,
    ),
    # GLM-4.1V, GLM-4.5V
    "glm4v": Tower(
        layers=24,
        hidden=1536,
        intermediate=13_696,
        heads=12,
        gated=True,
        temporal=2,
        projector="glm4v",
        position_rows=576,
        max_image_tokens=6144,
    ),
    # Qwen2-Audio-7B (Whisper large encoder)
    "qwen2_audio": Tower(
        section="audio_config",
        layers=32,
        hidden=1280,
        intermediate=5120,
        heads=20,
        projector="linear",
        position_rows=1500,
        max_image_tokens=750,
    ),
}


def read_tower(fields: ConfigFields, kind: str, *, hidden_size: int) -> tuple[VisionTower, bool]:
    """Return the encoder and whether the config really states its sizes."""
    tower = TOWERS[kind]
    section = fields.section(tower.section)
    stated = section is not None
    sizes = section or ConfigFields({}, architecture=fields.architecture, pointer=fields.pointer)
    layers = sizes.integer_or(
        tower.layers,
        "depth",
        "num_hidden_layers",
        "encoder_layers",
        "layers",
        "vt_num_hidden_layers",
        maximum=2_000,
    )
    hidden = _hidden(sizes, tower, kind)
    intermediate = sizes.integer_or(
        tower.intermediate, "intermediate_size", "encoder_ffn_dim", "vt_intermediate_size"
    )
    if kind == "qwen2_vl":
        intermediate = int(hidden * sizes.number_or(4.0, "mlp_ratio", minimum=0.1, maximum=100.0))
    block = 4 * hidden * hidden + (3 if tower.gated else 2) * hidden * intermediate
    projector = _projector(
        tower,
        sizes,
        hidden=hidden,
        intermediate=intermediate,
        hidden_size=hidden_size,
        feature_layers=_feature_layers(fields),
    )
    embedding = _embedding(tower, sizes, hidden=hidden)
    return (
        VisionTower(
            kind=kind,
            num_layers=layers,
            hidden_size=hidden,
            intermediate_size=intermediate,
            num_heads=sizes.integer_or(
                tower.heads,
                "num_heads",
                "num_attention_heads",
                "encoder_attention_heads",
                "vt_num_attention_heads",
            ),
            parameters=layers * block + projector + embedding,
            sharded=tower.sharded,
            replicated_parameters=embedding + (projector if kind in _REPLICATED_PROJECTOR else 0),
            max_image_tokens=_image_tokens(fields, tower),
        ),
        stated,
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


def _feature_layers(fields: ConfigFields) -> int:
    """Return how many layers of the tower LLaVA concatenates in front of its projector."""
    chosen = fields.raw("vision_feature_layer")
    return len(chosen) if isinstance(chosen, list) and chosen else 1


def _embedding(tower: Tower, sizes: ConfigFields, *, hidden: int) -> int:
    patch = sizes.integer_or(tower.patch, "patch_size", "spatial_patch_size", maximum=2**12)
    rows = sizes.integer_or(tower.position_rows, "num_position_embeddings", minimum=0)
    image_size = sizes.raw("image_size")
    if not isinstance(image_size, int) or isinstance(image_size, bool):
        image_size = tower.image_size
    if tower.projector != "pixtral" and image_size > 0:
        rows = max(rows, (image_size // patch) ** 2)
    return 3 * tower.temporal * patch * patch * hidden + rows * hidden


def _projector(
    tower: Tower,
    sizes: ConfigFields,
    *,
    hidden: int,
    intermediate: int,
    hidden_size: int,
    feature_layers: int,
) -> int:
    merged = hidden * sizes.integer_or(2, "spatial_merge_size", maximum=64) ** 2
    match tower.projector:
        case "merger":
            deep = len(sizes.integers("deepstack_visual_indexes") or ())
            return (1 + deep) * (merged * merged + merged * hidden_size)
        case "moonvit":
            return merged * merged + merged * hidden_size
        case "linear":
            return hidden * hidden_size
        case "pixtral":
            return merged * hidden + hidden * hidden_size + hidden_size * hidden_size
        case "shuffle":
            return 4 * hidden * hidden_size + hidden_size * hidden_size
        case "llama4":
            out = sizes.integer_or(4096, "vision_output_dim")
            inner = sizes.integer_or(4096, "projector_input_dim")
            return intermediate * inner + inner * out + out * hidden_size
        case "glm4v":
            out = sizes.integer_or(hidden_size, "out_hidden_size")
            return 4 * hidden * out + out * out + 3 * out * intermediate
        case "gemma3n":
            return _GEMMA3N_ENCODERS + 2 * hidden * hidden_size
        case _:
            return feature_layers * hidden * hidden_size + hidden_size * hidden_size


_GEMMA3N_ENCODERS = 980_000_000
