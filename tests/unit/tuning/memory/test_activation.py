"""The activation peak: the larger of a forward pass and the sampler, and what stays beside it."""

import pytest
from msgspec.structs import replace

from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import parse_version
from service.tuning.memory.activation import (
    ProfileRun,
    activation_bytes,
    forward_bytes,
    loads_encoder,
    moe_workspace_bytes,
    sampler_bytes,
)
from service.tuning.memory.plan import GIB
from service.tuning.models.spec import VisionTower
from tests.unit.tuning.memory.builders import hybrid_model, mixture_model, model

TOWER = VisionTower(
    kind="pixtral",
    num_layers=24,
    hidden_size=1024,
    intermediate_size=4096,
    num_heads=16,
    parameters=400_000_000,
    sharded=False,
    max_image_tokens=3025,
)


def profile(version: str = "0.19.0", **changes: object) -> ProfileRun:
    run = ProfileRun(
        version=parse_version(version),
        is_legacy=False,
        tokens=8192,
        sequences=1024,
        dtype_bytes=2,
        tensor_parallel_size=1,
        expert_parallel_size=1,
        is_first_stage=True,
        is_last_stage=True,
        profiles_encoder=True,
        has_flash_attention=True,
    )
    return replace(run, **changes)


@pytest.mark.parametrize(
    ("version", "observed_gib"), [("0.16.0", 5.64), ("0.17.0", 2.23), ("0.18.0", 2.23)]
)
def test_qwen3_14b_on_h100_as_logged(version: str, observed_gib: float) -> None:
    """The sampler's cost fell in 0.17.0 (llm-d-planner pull request 205)."""
    qwen3_14b = model(hidden_size=5120, vocab_size=151_936)

    predicted = activation_bytes(qwen3_14b, profile(version)) / GIB

    assert predicted == pytest.approx(observed_gib, abs=0.03)


def test_few_sequences_leave_the_forward_pass_as_the_peak() -> None:
    """With two sequences the logits are small and the MLP sets the peak."""
    run = profile(sequences=2)

    assert sampler_bytes(model(), run) < forward_bytes(model(), run)
    assert activation_bytes(model(), run) == pytest.approx(forward_bytes(model(), run) + 0.07 * GIB)


def test_only_the_last_stage_samples() -> None:
    """Earlier pipeline stages never see logits."""
    first = activation_bytes(model(), profile(is_last_stage=False))
    last = activation_bytes(model(), profile(is_first_stage=False))

    assert first < last


def test_expert_workspace_of_qwen3_30b_is_half_a_gib() -> None:
    """8,192 tokens x 8 experts x 2 B x two buffers of 2,048 and more: 0.49 GiB as logged."""
    workspace = moe_workspace_bytes(mixture_model(), profile())

    assert workspace / GIB == pytest.approx(0.49, abs=0.05)


def test_expert_parallelism_keeps_experts_whole() -> None:
    """Without it tensor parallelism narrows each expert, with it the width stays."""
    split = moe_workspace_bytes(mixture_model(), profile(tensor_parallel_size=4))
    whole = moe_workspace_bytes(
        mixture_model(), profile(tensor_parallel_size=4, expert_parallel_size=4)
    )

    assert split <= whole == moe_workspace_bytes(mixture_model(), profile())


def test_recurrent_projections_widen_the_forward_pass() -> None:
    """Gated DeltaNet layers work on four times their projections."""
    hybrid = hybrid_model()
    dense = replace(hybrid, layers=hybrid.layers[:1], layer_order=())

    assert forward_bytes(hybrid, profile()) > forward_bytes(dense, profile())


def test_images_stay_cached_beside_the_sampler() -> None:
    """Two images of Mistral-Small 3.1 add their outputs and pixels: 0.08 GiB as logged."""
    plain = model(hidden_size=5120, vocab_size=131_072)
    seeing = replace(plain, vision=TOWER)

    added = activation_bytes(seeing, profile()) - activation_bytes(plain, profile())

    assert added / GIB == pytest.approx(0.085, abs=0.01)


@pytest.mark.parametrize(
    ("config", "loaded"),
    [
        (EngineConfig(), True),
        (EngineConfig(language_model_only=True), False),
        (EngineConfig(limit_mm_per_prompt={"image": 0}), False),
        (EngineConfig(limit_mm_per_prompt={"image": {"count": 0}}), False),
        (EngineConfig(limit_mm_per_prompt={"image": 2, "audio": 0}), True),
    ],
)
def test_an_unused_encoder_is_not_loaded(config: EngineConfig, loaded: object) -> None:
    """Language-model-only servers, and those that allow no image, leave the tower out."""
    assert loads_encoder(TOWER, config) is loaded


def test_a_video_model_needs_its_encoder_for_videos() -> None:
    """Image limits alone do not switch the tower of a Qwen-VL off."""
    tower = replace(TOWER, kind="qwen3_vl")

    assert loads_encoder(tower, EngineConfig(limit_mm_per_prompt={"image": 0}))
    assert not loads_encoder(tower, EngineConfig(limit_mm_per_prompt={"image": 0, "video": 0}))


def test_old_engines_without_flash_attention_take_more() -> None:
    """V0 on T4 and V100 ran the slower attention with copies of its own."""
    run = profile("0.5.0", is_legacy=True, sequences=2)

    assert forward_bytes(model(), replace(run, has_flash_attention=False)) > 2 * forward_bytes(
        model(), run
    )
