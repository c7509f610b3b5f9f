"""What vLLM fills in, per release, GPU and entry point."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.defaults import Usage, effective_config
from service.tuning.engine.versions import SUPPORTED, parse_version
from service.tuning.hardware.spec import Gpu, Node
from service.tuning.models.spec import (
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    Mixer,
    ModelSpec,
    Quantization,
)


@dataclass(frozen=True)
class Part:
    """The figures of a GPU that defaults look at."""

    name: str
    memory_gib: float
    capability: tuple[int, int] | None
    vendor: str = "nvidia"


H100 = Part("NVIDIA H100 80GB HBM3", 79.19, (9, 0))
A100 = Part("NVIDIA A100-SXM4-80GB", 79.2, (8, 0))
A800 = Part("NVIDIA A800-SXM4-80GB", 79.2, (8, 0))
L4 = Part("NVIDIA L4", 21.96, (8, 9))
T4 = Part("Tesla T4", 14.56, (7, 5))
B200 = Part("NVIDIA B200", 178.35, (10, 0))
GB10 = Part("NVIDIA GB10", 121.69, (12, 1))
MI300X = Part("AMD Instinct MI300X", 191.5, None, "amd")
CPU = Part("AMD EPYC", 24.0, None, "cpu")


def node(part: Part) -> Node:
    """Return a node of one GPU."""
    gpu = Gpu(
        name=part.name,
        vendor=part.vendor,  # type: ignore[arg-type]
        arch="any",
        gpu_class="datacenter",
        memory_gib=part.memory_gib,
        memory_gb_vendor=None,
        memory_is_verified=True,
        bandwidth_gb_s=3000,
        bf16_tflops=900,
        fp16_tflops=900,
        fp8_tflops=None,
        int8_tops=None,
        fp4_tflops=None,
        compute_capability=part.capability,
        link_gb_s=0,
        pcie_gb_s=64,
        driver_name=part.name,
    )
    return Node(
        gpu=gpu,
        gpus_per_node=1,
        nodes=1,
        interconnect="none",
        total_memory_gib=part.memory_gib,
        used_memory_gib=0,
        host_memory_gib=None,
        price_per_gpu_hour=None,
    )


ATTENTION = GroupedQueryAttention(num_heads=32, num_kv_heads=8, head_dim=128, v_head_dim=128)
LATENT = LatentAttention(
    num_heads=128,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
SPARSE = replace(LATENT, index_topk=2048, index_num_heads=64, index_head_dim=128)
LINEAR = LinearAttention(
    kind="gdn",
    num_key_heads=16,
    num_value_heads=32,
    key_head_dim=128,
    value_head_dim=128,
    conv_kernel=4,
)


def model(*mixers: Mixer, **changes: Json) -> ModelSpec:
    """Return a model of 8 layers per mixer with a length of 131072 tokens."""
    feed_forward = DenseFeedForward(intermediate_size=14336)
    spec = ModelSpec(
        id="example/model",
        architecture="LlamaForCausalLM",
        model_type="llama",
        hidden_size=4096,
        vocab_size=128256,
        max_position_embeddings=131072,
        dtype="bfloat16",
        layers=tuple(
            LayerGroup(count=8, mixer=mixer, feed_forward=feed_forward)
            for mixer in mixers or (ATTENTION,)
        ),
    )
    return replace(spec, **changes)


def effective(
    version: str,
    part: Part = H100,
    *,
    spec: ModelSpec | None = None,
    usage: Usage = "serve",
    **settings: Json,
) -> EngineConfig:
    """Return the effective configuration of `settings` on that release and part."""
    return effective_config(
        EngineConfig(**settings),
        spec=spec or model(),
        node=node(part),
        version=parse_version(version),
        usage=usage,
    )


@pytest.mark.parametrize(
    ("version", "part", "usage", "tokens", "seqs"),
    [
        ("0.33.0", B200, "serve", 16384, 1024),
        ("0.33.0", MI300X, "llm", 16384, 1024),
        ("0.33.0", H100, "serve", 8192, 1024),
        ("0.33.0", H100, "llm", 16384, 1024),
        ("0.33.0", A100, "serve", 2048, 256),
        ("0.33.0", A100, "llm", 8192, 256),
        ("0.33.0", A800, "serve", 8192, 1024),
        ("0.33.0", GB10, "serve", 2048, 256),
        ("0.32.0", GB10, "serve", 8192, 1024),
        ("0.33.0", L4, "serve", 2048, 256),
        ("0.27.1", B200, "serve", 8192, 1024),
        ("0.9.0", A100, "serve", 2048, 256),
        ("0.8.5", A100, "serve", 8192, 1024),
        ("0.8.4", A100, "serve", 2048, 256),
        ("0.8.4", H100, "serve", 8192, 1024),
        ("0.8.2", L4, "serve", 2048, 1024),
        ("0.8.2", H100, "llm", 16384, 1024),
        ("0.33.0", CPU, "serve", 2048, 128),
        ("0.33.0", CPU, "llm", 4096, 256),
    ],
)
def test_batch_limits_follow_release_memory_and_device_name(
    version: str, part: Part, usage: Usage, tokens: int, seqs: int
) -> None:
    """The two batch limits are those that the release's own source gives."""
    config = effective(version, part, usage=usage)

    assert (config.max_num_batched_tokens, config.max_num_seqs) == (tokens, seqs)


def test_the_first_engine_takes_whole_prompts() -> None:
    """V0 without chunked prefill must hold the longest prompt in one step; old GPUs fell back."""
    legacy = effective("0.6.6", max_model_len=8192)
    fallback = effective("0.10.2", T4, max_model_len=8192)
    modern = effective("0.11.0", T4, max_model_len=8192)

    assert (legacy.max_num_batched_tokens, legacy.enable_chunked_prefill) == (8192, False)
    assert (fallback.max_num_batched_tokens, fallback.enable_prefix_caching) == (8192, False)
    assert (modern.max_num_batched_tokens, modern.enable_chunked_prefill) == (2048, True)


def test_the_first_engine_chunks_long_contexts() -> None:
    """V0 turned chunked prefill on above 32768 tokens, with 512 tokens per step up to 0.6.4."""
    assert effective("0.6.4").max_num_batched_tokens == 512
    assert effective("0.7.3").max_num_batched_tokens == 2048


def test_throughput_mode_doubles_what_is_left_out() -> None:
    """`performance_mode=throughput` doubles defaults but never given values."""
    doubled = effective("0.33.0", performance_mode="throughput")
    given = effective("0.33.0", performance_mode="throughput", max_num_seqs=64)
    older = effective("0.16.0", performance_mode="throughput")

    assert (doubled.max_num_batched_tokens, doubled.max_num_seqs) == (16384, 2048)
    assert (given.max_num_batched_tokens, given.max_num_seqs) == (16384, 64)
    assert older.max_num_batched_tokens == 8192


def test_without_chunking_the_budget_holds_the_longest_prompt() -> None:
    """Chunked prefill off raises the default budget to the model length."""
    assert effective("0.33.0", enable_chunked_prefill=False).max_num_batched_tokens == 131072


def test_the_budget_never_exceeds_what_the_sequences_can_hold() -> None:
    """Few short sequences cap the default budget; a small budget caps the default sequences."""
    assert effective("0.33.0", max_num_seqs=2, max_model_len=512).max_num_batched_tokens == 1024
    assert effective("0.33.0", max_num_batched_tokens=256).max_num_seqs == 256


@pytest.mark.parametrize(
    ("version", "part", "settings", "tokens"),
    [
        ("0.25.1", L4, {}, 2496),
        ("0.25.1", L4, {"max_num_batched_tokens": 2048}, 2048),
        ("0.25.1", L4, {"language_model_only": True}, 2048),
        ("0.25.1", L4, {"limit_mm_per_prompt": {"image": 0, "video": 0, "audio": 0}}, 2048),
        ("0.25.1", H100, {}, 8192),
        ("0.20.2", L4, {}, 2048),
    ],
)
def test_a_default_budget_holds_a_whole_video_of_gemma_4(
    version: str, part: Part, settings: dict[str, Json], tokens: int
) -> None:
    """Where image tokens attend to each other an item is never cut: 32 frames of 78 tokens."""
    gemma = model(architecture="Gemma4ForConditionalGeneration", is_multimodal=True)

    config = effective(version, part, spec=gemma, **settings)

    assert config.max_num_batched_tokens == tokens


def test_batched_expert_exchange_has_a_small_budget() -> None:
    """Low-latency expert exchange over data-parallel ranks works on 256 tokens."""
    config = effective(
        "0.33.0",
        data_parallel_size=8,
        enable_expert_parallel=True,
        all2all_backend="deepep_low_latency",
    )

    assert (config.max_num_batched_tokens, config.max_num_seqs) == (256, 256)


def test_cpu_limits_grow_with_the_ranks() -> None:
    """On a CPU each rank adds its share of tokens and sequences."""
    config = effective("0.33.0", CPU, tensor_parallel_size=2)

    assert (config.max_num_batched_tokens, config.max_num_seqs) == (4096, 256)


@pytest.mark.parametrize(("version", "expected"), [("0.19.1", 0.9), ("0.20.0", 0.92)])
def test_memory_utilization_rose_in_0_20(version: str, expected: float) -> None:
    """0.9 up to 0.19, 0.92 since."""
    assert effective(version).gpu_memory_utilization == expected


@pytest.mark.parametrize(("version", "expected"), [("0.25.0", False), ("0.26.0", True)])
def test_hybrids_cache_prefixes_since_0_26(version: str, *, expected: bool) -> None:
    """Recurrent layers learned prefix caching in 0.26; attention-only models had it before."""
    hybrid = model(LINEAR, ATTENTION)

    assert effective(version, spec=hybrid).enable_prefix_caching is expected
    assert effective(version).enable_prefix_caching is True


def test_a_checkpoint_with_eight_bit_scales_turns_auto_into_fp8() -> None:
    """A stated format wins over the checkpoint's scheme."""
    scheme = Quantization(method="modelopt", scheme="fp8", bits=8, kv_cache_bits=8)
    spec = model(quantization=scheme)

    assert effective("0.33.0", spec=spec).kv_cache_dtype == "fp8"
    assert effective("0.33.0", spec=spec, kv_cache_dtype="bfloat16").kv_cache_dtype == "bfloat16"
    assert effective("0.33.0").kv_cache_dtype == "auto"


def test_sparse_latent_attention_has_a_layout_of_its_own() -> None:
    """fp8 means the packed 656-byte record there, in blocks of 64."""
    config = effective("0.33.0", spec=model(SPARSE), kv_cache_dtype="fp8")

    assert config.kv_cache_dtype == "fp8_ds_mla"
    assert config.block_size == 64


@pytest.mark.parametrize(
    ("version", "part", "kv_cache_dtype", "expected"),
    [
        ("0.33.0", H100, "auto", 16),
        ("0.33.0", H100, "fp8", 64),
        ("0.17.0", H100, "auto", 64),
        ("0.33.0", B200, "auto", 32),
        ("0.17.0", B200, "auto", 128),
        ("0.33.0", A100, "auto", 16),
    ],
)
def test_latent_attention_backends_choose_the_block(
    version: str, part: Part, kv_cache_dtype: str, expected: int
) -> None:
    """Blocks of latent attention follow the backend that is picked first."""
    config = effective(version, part, spec=model(LATENT), kv_cache_dtype=kv_cache_dtype)

    assert config.block_size == expected


@pytest.mark.parametrize(
    ("part", "dtype", "version", "expected"),
    [
        (H100, "bfloat16", "0.33.0", "bfloat16"),
        (T4, "bfloat16", "0.33.0", "float16"),
        (H100, "float16", "0.33.0", "float16"),
        (H100, "float32", "0.33.0", "bfloat16"),
        (H100, "float32", "0.8.5", "float16"),
    ],
)
def test_auto_dtype_follows_checkpoint_and_gpu(
    part: Part, dtype: str, version: str, expected: str
) -> None:
    """bf16 needs compute capability 8.0; float32 checkpoints run in 16 bit."""
    assert effective(version, part, spec=model(dtype=dtype)).dtype == expected


@pytest.mark.parametrize(
    ("version", "settings", "expected"),
    [
        ("0.9.2", {}, False),
        ("0.13.0", {}, False),
        ("0.14.0", {}, True),
        ("0.14.0", {"pipeline_parallel_size": 2}, False),
        ("0.33.0", {"pipeline_parallel_size": 2}, True),
        ("0.33.0", {"distributed_executor_backend": "ray"}, False),
        ("0.33.0", {"async_scheduling": False}, False),
        ("0.20.0", {"speculative_config": {"method": "ngram"}}, False),
        ("0.20.0", {"speculative_config": {"method": "eagle3"}}, True),
    ],
)
def test_async_scheduling_is_on_where_it_can_be(
    version: str, settings: dict[str, Json], *, expected: bool
) -> None:
    """On since 0.14 unless executor, pipeline or drafter forbid it."""
    assert effective(version, **settings).async_scheduling is expected


def test_auto_length_stays_for_the_memory_plan() -> None:
    """`auto` and -1 both mean: what fits."""
    assert effective("0.33.0", max_model_len="auto").max_model_len == "auto"
    assert effective("0.33.0", max_model_len=-1).max_model_len == "auto"
    assert effective("0.33.0").max_model_len == 131072


@pytest.mark.parametrize(
    ("version", "settings", "count", "largest"),
    [
        ("0.9.2", {}, 67, 512),
        ("0.10.2", {}, 67, 512),
        ("0.12.0", {}, 51, 512),
        ("0.33.0", {}, 51, 512),
        ("0.33.0", {"max_num_seqs": 100}, 29, 200),
        ("0.33.0", {"max_num_seqs": 1}, 2, 2),
        ("0.33.0", {"enforce_eager": True}, 0, 0),
        ("0.33.0", {"optimization_level": 0}, 0, 0),
        ("0.33.0", {"compilation_config": {"cudagraph_mode": "NONE"}}, 0, 0),
        ("0.33.0", {"max_cudagraph_capture_size": 64}, 11, 64),
        ("0.33.0", {"cudagraph_capture_sizes": [64, 8, 8, 100_000]}, 2, 64),
        ("0.33.0", {"performance_mode": "interactivity", "max_num_seqs": 16}, 32, 32),
        ("0.12.0", {"cuda_graph_sizes": [256]}, 35, 256),
    ],
)
def test_capture_sizes_follow_the_release(
    version: str, settings: dict[str, Json], count: int, largest: int
) -> None:
    """The grid of captured batches is the release's own (67 and 51 are what its logs show)."""
    sizes = effective(version, **settings).cudagraph_capture_sizes or []

    assert (len(sizes), max(sizes, default=0)) == (count, largest)


def test_datacenter_blackwell_captures_up_to_1024() -> None:
    """From 0.28.0 on compute capability 10 the grid reaches 1024 tokens."""
    assert effective("0.28.0", B200).max_cudagraph_capture_size == 1024
    assert effective("0.27.0", B200).max_cudagraph_capture_size == 512


@pytest.mark.parametrize(
    ("version", "max_num_seqs", "drafts", "captured"),
    [
        ("0.20.2", 2, 3, [1, 2, 4, 8, 16]),
        ("0.24.0", 1, 3, [1, 2, 4, 8]),
        ("0.25.1", 2, 5, [1, 2, 4, 8, 16, 24]),
    ],
)
def test_drafted_tokens_widen_the_captured_batches(
    version: str, max_num_seqs: int, drafts: int, captured: list[int]
) -> None:
    """A decode batch holds every drafted token, as logs of piecewise graphs show by their sizes."""
    drafting = {"method": "mtp", "num_speculative_tokens": drafts}
    sizes = effective(version, max_num_seqs=max_num_seqs, speculative_config=drafting)

    assert sizes.cudagraph_capture_sizes == captured


def test_full_decode_batches_are_captured() -> None:
    """A batch of max_num_seqs that lies between grid points gets a graph of its own."""
    assert 100 in (effective("0.33.0", max_num_seqs=100).cudagraph_capture_sizes or [])


def test_a_stated_maximum_is_not_taken_for_the_default() -> None:
    """A maximum that happens to be the default one captures the plain grid all the same."""
    by_default = effective("0.33.0", max_num_seqs=100)
    stated = effective("0.33.0", max_num_seqs=100, max_cudagraph_capture_size=200)

    assert by_default.max_cudagraph_capture_size == stated.max_cudagraph_capture_size == 200
    assert 100 not in (stated.cudagraph_capture_sizes or [])


@given(
    version=st.sampled_from([version.text for version in SUPPORTED]),
    part=st.sampled_from([H100, A100, A800, L4, T4, B200, GB10, MI300X, CPU]),
    max_num_seqs=st.none() | st.integers(-1, 5000),
    max_num_batched_tokens=st.none() | st.integers(-1, 100_000),
    max_model_len=st.none() | st.just("auto") | st.integers(-1, 200_000),
    performance_mode=st.none() | st.sampled_from(["throughput", "interactivity"]),
)
def test_filling_in_twice_changes_nothing(version: str, part: Part, **settings: Json) -> None:
    """Defaults are complete after one pass, and what was given is kept."""
    once = effective(version, part, **settings)
    twice = effective_config(
        once, spec=model(), node=node(part), version=parse_version(version), usage="serve"
    )

    assert twice == once
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        assert settings[name] is None or getattr(once, name) == settings[name]
    sizes = once.cudagraph_capture_sizes or []
    assert sizes == sorted(set(sizes))
