"""Peak of the torch allocations beside the weights while vLLM profiles itself."""

import msgspec

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import EngineVersion
from service.tuning.memory.constants import constant, constants_row, memory_constants
from service.tuning.memory.plan import GIB
from service.tuning.models.spec import (
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    Mixer,
    MixtureOfExperts,
    ModelSpec,
    StateSpace,
    VisionTower,
)

LOGIT_BYTES = 4
_ITEMS_WHEN_UNLIMITED = 999
"""Items of a kind that a prompt may hold unless limited (config/multimodal.py, 0.33.0)."""
_VIDEO_TOWERS = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v", "gemma4"})


class ProfileRun(msgspec.Struct, frozen=True, kw_only=True):
    """What the profiling pass of one rank works on."""

    version: EngineVersion
    is_legacy: bool
    tokens: int
    """`max_num_batched_tokens`."""
    sequences: int
    """Rows of logits: `max_num_seqs`, at most `tokens`."""
    dtype_bytes: int
    tensor_parallel_size: int
    expert_parallel_size: int
    data_parallel_size: int = 1
    uses_v2_runner: bool = False
    uses_flashinfer_sampler: bool | None = None
    """`VLLM_USE_FLASHINFER_SAMPLER`; None when the environment does not say."""
    is_first_stage: bool
    is_last_stage: bool
    profiles_encoder: bool
    most_images: int | None = None
    """Images that all requests together may hold; None when nothing bounds them."""
    has_flash_attention: bool


def activation_bytes(spec: ModelSpec, run: ProfileRun) -> float:
    """Return the activation peak of this rank, bytes.

    The encoder runs first. Then it is the larger of a forward pass over the token budget and the
    sampler over `max_num_seqs` rows of logits, on top of what stays allocated meanwhile.
    """
    workspace = moe_workspace_bytes(spec, run)
    peak, cached = _encoder_bytes(spec, run)
    forward = forward_bytes(spec, run)
    sampler = sampler_bytes(spec, run) if run.is_last_stage else 0.0
    base = constant("activation_base_gib", run.version) * GIB
    if _keeps_workspace(run):
        sampler += workspace
    return base + max(peak, cached + max(forward + workspace, sampler))


def sampler_bytes(spec: ModelSpec, run: ProfileRun) -> float:
    """Return the sampler's peak: copies of the fp32 logits, and the hidden states."""
    logits = run.sequences * spec.vocab_size * LOGIT_BYTES
    hidden = run.tokens * spec.hidden_size * run.dtype_bytes
    return _logits_units(run) * logits + constant("sampler_hidden_units", run.version) * hidden


def _logits_units(run: ProfileRun) -> float:
    """Return the copies of the logits alive at the sampler's peak.

    Before 0.17 it depends on whether FlashInfer is installed, which official images to 0.11 have
    and a plain installation has not; unless the environment says, the larger one is assumed.
    """
    if run.uses_v2_runner:
        return constant("sampler_logits_units_v2", run.version)
    units = constant("sampler_logits_units", run.version)
    if run.uses_flashinfer_sampler and not run.is_legacy:
        return min(units, constant("sampler_logits_units_flashinfer", run.version))
    return units


def _keeps_workspace(run: ProfileRun) -> bool:
    """Whether the experts' buffers stay allocated while the sampler runs."""
    row = constants_row("moe_workspace_persists", run.version)
    return bool(row["data_parallel"] if run.data_parallel_size > 1 else row["value"])


def forward_bytes(spec: ModelSpec, run: ProfileRun) -> float:
    """Return the widest layer's activations over the token budget."""
    width = max(_layer_width(group, spec, run) for group in spec.layers)
    if not (run.is_first_stage and run.is_last_stage):
        width += 2 * spec.hidden_size
    return _legacy_factor(run) * run.tokens * run.dtype_bytes * width


def _legacy_factor(run: ProfileRun) -> float:
    """Return how much more than the formula the V0 engine takes for its forward pass."""
    if not run.is_legacy:
        return 1.0
    factor = constant("legacy_forward_factor", run.version)
    if run.has_flash_attention:
        return factor
    return factor * constant("legacy_forward_without_flash_attention", run.version)


def moe_workspace_bytes(spec: ModelSpec, run: ProfileRun) -> float:
    """Return the two buffers of the fused expert kernel; none on the mxfp4 Triton path."""
    if spec.quantization is not None and spec.quantization.scheme == "mxfp4":
        return 0.0
    experts = [g.feed_forward for g in spec.layers if isinstance(g.feed_forward, MixtureOfExperts)]
    return max((_workspace(part, spec.hidden_size, run) for part in experts), default=0.0)


def _workspace(part: MixtureOfExperts, hidden_size: int, run: ProfileRun) -> float:
    split = 1 if run.expert_parallel_size > 1 else run.tensor_parallel_size
    width = part.expert_intermediate_size / split
    rows = run.tokens * part.experts_per_token * run.dtype_bytes
    return rows * (max(2 * width, hidden_size) + max(width, hidden_size))


def _layer_width(group: LayerGroup, spec: ModelSpec, run: ProfileRun) -> float:
    residual = 3 * spec.hidden_size
    feed_forward = _feed_forward_width(group.feed_forward) / run.tensor_parallel_size
    recurrent = 4 * _projection_width(group.mixer) / run.tensor_parallel_size
    return residual + max(feed_forward, recurrent)


def _feed_forward_width(part: FeedForward | None) -> float:
    match part:
        case DenseFeedForward():
            return (3 if part.gated else 2) * part.intermediate_size
        case MixtureOfExperts():
            shared = part.shared_intermediate_size or part.parallel_dense_intermediate_size
            return 3 * shared
        case None:
            return 0.0


def _projection_width(mixer: Mixer | None) -> float:
    """Return the width of a recurrent layer's input projection; 0 for attention."""
    match mixer:
        case LinearAttention():
            keys = 2 * mixer.num_key_heads * mixer.key_head_dim
            return keys + 2 * mixer.num_value_heads * mixer.value_head_dim
        case StateSpace():
            return 2 * mixer.inner_size + 2 * mixer.num_groups * mixer.state_size
        case GroupedQueryAttention() | LatentAttention() | None:
            return 0.0


def _encoder_bytes(spec: ModelSpec, run: ProfileRun) -> tuple[float, float]:
    """Return the encoder's own peak, and what its outputs and inputs keep meanwhile."""
    tower = spec.vision
    if tower is None or not run.profiles_encoder or run.is_legacy or not run.is_first_stage:
        return 0.0, 0.0
    facts = memory_constants()["encoder"]
    row = facts["kinds"].get(tower.kind, facts["default"])
    tokens = max(row["minimum_budget_tokens"], _whole_image_tokens(tower, run))
    pixels = tokens * row["pixel_values_per_token"] * run.dtype_bytes
    outputs = tokens * spec.hidden_size * run.dtype_bytes
    if row["peak_patches"] == 0:
        return 0.0, pixels + outputs
    patches = row["peak_patches"] * max(1, tokens // max(1, tower.max_image_tokens))
    work = patches * _tower_width(tower, run) * run.dtype_bytes
    return pixels + work, pixels + outputs


def _whole_image_tokens(tower: VisionTower, run: ProfileRun) -> int:
    """Return the tokens of as many maximal images as one pass of the encoder takes, at least one.

    All of them go through the tower at once (v1/worker/gpu_model_runner.py, qwen3_vl.py, 0.33.0).
    """
    if tower.max_image_tokens <= 0:
        return run.tokens
    images = run.tokens // tower.max_image_tokens
    if run.most_images is not None:
        images = min(images, run.most_images)
    return max(1, images) * tower.max_image_tokens


def most_images(tower: VisionTower, config: EngineConfig) -> int | None:
    """Return how many maximal images all requests together may hold (encoder_budget.py, 0.33.0)."""
    if tower.max_image_tokens <= 0 or not config.max_num_seqs:
        return None
    stated = _item_limit((config.limit_mm_per_prompt or {}).get("image"))
    in_prompt = stated if isinstance(stated, int) else _ITEMS_WHEN_UNLIMITED
    if isinstance(config.max_model_len, int):
        in_prompt = min(in_prompt, config.max_model_len // tower.max_image_tokens)
    return config.max_num_seqs * max(1, in_prompt)


def _tower_width(tower: VisionTower, run: ProfileRun) -> float:
    """Return the activations of one patch; only the wide part of the MLP is split."""
    split = run.tensor_parallel_size if tower.sharded else 1
    hidden_units: float = memory_constants()["encoder"]["tower_hidden_units"]
    return tower.intermediate_size / split + hidden_units * tower.hidden_size


def loads_encoder(tower: VisionTower, config: EngineConfig) -> bool:
    """Whether the encoder is loaded: not with `language_model_only` or when all limits are 0."""
    if config.language_model_only:
        return False
    inputs = ("image", "video") if tower.kind in _VIDEO_TOWERS else ("image",)
    limits = config.limit_mm_per_prompt or {}
    return any(_item_limit(limits.get(kind)) != 0 for kind in inputs)


def _item_limit(stated: Json) -> Json:
    """Return the number of items that a limit allows; newer releases take it as an object."""
    return stated.get("count") if isinstance(stated, dict) else stated
