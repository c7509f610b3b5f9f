"""The encoders in front of language models, with the sizes of published ones."""

from collections.abc import Mapping

import msgspec


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
    # LLaVA-OneVision-7B (SigLIP so400m at 384 pixels): nine tiles and one for the whole.
    "llava_onevision": Tower(
        layers=27,
        hidden=1152,
        intermediate=4304,
        heads=16,
        image_size=384,
        max_image_tokens=7290,
    ),
    # Idefics3-8B, SmolVLM2 (SigLIP so400m at 364 or 384 pixels)
    "idefics3": Tower(
        layers=27,
        hidden=1152,
        intermediate=4304,
        heads=16,
        image_size=364,
        projector="idefics3",
        max_image_tokens=2873,
    ),
    # Voxtral-Mini-3B (Whisper large encoder, four frames joined)
    "voxtral": Tower(
        section="audio_config",
        layers=32,
        hidden=1280,
        intermediate=5120,
        heads=20,
        position_rows=1500,
        projector="voxtral",
        max_image_tokens=375,
    ),
}
