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
    most_images,
    sampler_bytes,
)
from service.tuning.memory.plan import GIB
from service.tuning.models.spec import VisionTower
from tests.unit.tuning.memory.builders import (
    attention,
    group,
    hybrid_model,
    mixture_model,
    model,
)

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
VIDEO_TOWER = VisionTower(
    kind="qwen3_vl",
    num_layers=27,
    hidden_size=1152,
    intermediate_size=4304,
    num_heads=16,
    parameters=460_000_000,
    sharded=True,
    max_image_tokens=16_384,
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


@pytest.mark.parametrize(
    ("version", "switch", "observed_gib"),
    [("0.11.0", True, 2.12), ("0.11.0", None, 4.98), ("0.11.0", False, 4.98)],
)
def test_flashinfer_samples_in_less_memory_before_0_17(
    version: str, switch: object, observed_gib: float
) -> None:
    """Mistral-Small on H100 logged 2.12 GiB where FlashInfer was installed; the switch tells."""
    seeing = model(hidden_size=5120, vocab_size=131_072, vision=TOWER)
    run = profile(version, uses_flashinfer_sampler=switch)

    assert activation_bytes(seeing, run) / GIB == pytest.approx(observed_gib, abs=0.15)


def test_the_samplers_of_the_two_runners_differ_from_0_26() -> None:
    """Model Runner V2 holds fewer copies of the logits."""
    first, second = profile("0.26.0"), profile("0.26.0", uses_v2_runner=True)

    assert sampler_bytes(model(), second) < sampler_bytes(model(), first)
    assert sampler_bytes(model(), first) == sampler_bytes(model(), profile("0.19.0"))


def test_expert_buffers_stay_from_0_14() -> None:
    """Qwen3-Next with 0.10.2 on H200 logged just the sampler, 5.58 GiB; 0.19 logs both."""
    spec = mixture_model()
    plain, shared = profile("0.13.0"), profile("0.14.0")

    assert activation_bytes(spec, plain) == pytest.approx(sampler_bytes(spec, plain) + 0.07 * GIB)
    assert activation_bytes(spec, shared) == pytest.approx(
        sampler_bytes(spec, shared) + moe_workspace_bytes(spec, shared) + 0.07 * GIB
    )
    assert activation_bytes(spec, replace(plain, data_parallel_size=2)) > activation_bytes(
        spec, plain
    )


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


@pytest.mark.parametrize("sequences", [16, 256])
def test_one_maximal_image_sets_the_peak_of_a_video_model(sequences: int) -> None:
    """Qwen3.8-27B-FP8 on an L40S with 0.26 holds 1.41 GiB with 16 sequences as with 256."""
    run = profile("0.26.0", tokens=2048, sequences=sequences)

    peak = activation_bytes(hybrid_model(vision=VIDEO_TOWER), run) / GIB

    assert peak == pytest.approx(1.41, abs=0.05)


@pytest.mark.parametrize(("tokens", "most", "images"), [(65_536, None, 4), (65_536, 1, 1)])
def test_all_images_of_the_budget_go_through_the_tower_at_once(
    tokens: int, most: int | None, images: int
) -> None:
    """A log with 65,536 tokens profiles four images; fewer where requests cannot hold them."""
    narrow = group(1, attention(), width=256)
    seeing = model(narrow, hidden_size=256, vocab_size=1024, vision=VIDEO_TOWER)
    one = activation_bytes(seeing, profile(tokens=16_384, sequences=1))

    several = activation_bytes(seeing, profile(tokens=tokens, sequences=1, most_images=most))

    assert several / one == pytest.approx(images, rel=0.07)


@pytest.mark.parametrize(
    ("settings", "images"),
    [
        ({"max_num_seqs": 1, "max_model_len": 65_536}, 4),
        ({"max_num_seqs": 8, "max_model_len": 65_536}, 32),
        ({"max_num_seqs": 8, "max_model_len": 1024}, 8),
        ({"max_num_seqs": 8, "limit_mm_per_prompt": {"image": 2}}, 16),
        ({}, None),
    ],
)
def test_requests_bound_the_images_of_a_pass(
    settings: dict[str, object], images: int | None
) -> None:
    """Every request holds as many images as its length and its limit allow, at least one."""
    assert most_images(VIDEO_TOWER, EngineConfig(**settings)) == images  # type: ignore[arg-type]


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
