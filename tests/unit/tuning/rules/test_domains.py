"""The legal values that the search chooses from."""

import msgspec
import pytest

from api_schemas.engine import EngineConfig
from service.tuning.rules.domains import (
    find_obstacle,
    kv_cache_dtype_support,
    legal_decode_context_parallel_sizes,
    legal_tensor_parallel_sizes,
    minimum_batched_tokens,
    quantization_support,
    recommended_dtype,
)
from service.tuning.rules.scheduler import sequence_limit
from tests.unit.tuning.rules.builders import (
    DEEPSEEK,
    GEMMA_4,
    LLAMA_8B,
    LLAMA_70B,
    QWEN_HYBRID,
    QWEN_MOE_FP8,
    node_of,
    spec_of,
    version,
)


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        (LLAMA_8B, (1, 2, 4, 8)),
        (QWEN_HYBRID, (1, 2, 4, 8)),
        ("Qwen/Qwen2.5-7B", (1, 2, 4)),
        ("huggyllama/llama-30b", (1, 2, 4)),
        ("openai-community/gpt2-xl", (1,)),
        ("microsoft/phi-4", (1, 2)),
        ("MiniMaxAI/MiniMax-M2.7", (1, 2, 4, 8)),
    ],
)
def test_tensor_parallel_sizes_up_to_eight(model: str, sizes: tuple[int, ...]) -> None:
    """Heads, KV heads, vocabulary, widths and blocks all have to divide."""
    assert legal_tensor_parallel_sizes(spec_of(model), num_gpus=8, version=version()) == sizes


@pytest.mark.parametrize(
    ("model", "release", "sizes"),
    [
        (QWEN_MOE_FP8, "0.28.0", (1, 2)),
        (QWEN_MOE_FP8, "0.29.0", (1, 2, 4, 8)),
        ("MiniMaxAI/MiniMax-M2.5", "0.18.0", (1, 2, 4)),
        ("MiniMaxAI/MiniMax-M2.5", "0.29.0", (1, 2, 4, 8)),
    ],
)
def test_narrow_fp8_experts_may_be_cut_once_their_scales_can_be(
    model: str, release: str, sizes: tuple[int, ...]
) -> None:
    """Up to 0.28 a share of 192 is refused over blocks of 128; later the blocks are cut to 64."""
    found = legal_tensor_parallel_sizes(spec_of(model), num_gpus=8, version=version(release))

    assert found == sizes


def test_only_the_fp8_method_cuts_its_blocks() -> None:
    """The same experts in compressed-tensors' blocks are refused in every release."""
    fp8 = spec_of(QWEN_MOE_FP8)
    assert fp8.quantization is not None
    other = msgspec.structs.replace(fp8.quantization, method="compressed-tensors")
    spec = msgspec.structs.replace(fp8, quantization=other)

    refused = find_obstacle(spec, tensor_parallel_size=4, version=version())

    assert refused is not None
    assert refused.kind == "fp8_block"


def test_blocks_are_not_cut_below_thirty_two() -> None:
    """A share of 48 leaves a common divisor of 16, which no kernel takes."""
    refused = find_obstacle(spec_of(QWEN_MOE_FP8), tensor_parallel_size=16, version=version())

    assert refused is not None


def test_expert_parallelism_frees_narrow_experts() -> None:
    """Experts that stay whole need not divide into fp8 blocks."""
    sizes = legal_tensor_parallel_sizes(
        spec_of(QWEN_MOE_FP8), num_gpus=8, version=version("0.28.0"), enable_expert_parallel=True
    )

    assert sizes == (1, 2, 4, 8)


def test_data_parallel_ranks_share_experts_without_expert_parallelism() -> None:
    """Experts are cut over tensor x data parallel ranks, so more of either may not divide."""
    spec = spec_of(QWEN_MOE_FP8)

    release = version("0.28.0")

    alone = find_obstacle(spec, tensor_parallel_size=2, version=release)
    doubled = find_obstacle(spec, tensor_parallel_size=2, version=release, data_parallel_size=2)

    assert alone is None
    assert doubled is not None
    assert doubled.kind == "fp8_block"


def test_one_rank_is_always_legal() -> None:
    """A model that is not split meets no obstacle."""
    for model in (LLAMA_8B, DEEPSEEK, QWEN_HYBRID, GEMMA_4, QWEN_MOE_FP8):
        assert find_obstacle(spec_of(model), tensor_parallel_size=1, version=version()) is None


@pytest.mark.parametrize(
    ("model", "ranks", "sizes"),
    [
        (LLAMA_70B, 8, (1,)),
        (LLAMA_70B, 16, (1, 2)),
        (LLAMA_70B, 32, (1, 2, 4)),
        (DEEPSEEK, 8, (1, 2, 4, 8)),
        (QWEN_HYBRID, 8, (1,)),
    ],
)
def test_decode_context_sizes(model: str, ranks: int, sizes: tuple[int, ...]) -> None:
    """Only ranks that would hold copies of a KV head can share the context."""
    found = legal_decode_context_parallel_sizes(
        spec_of(model), tensor_parallel_size=ranks, version=version()
    )

    assert found == sizes


@pytest.mark.parametrize(
    ("gpu", "dtype", "ok", "backend"),
    [
        ("T4", "fp8", False, None),
        ("T4", "int8_per_token_head", True, "TRITON_ATTN"),
        ("V100-SXM2-32GB", "fp8_e5m2", False, None),
        ("A100-SXM4-80GB", "fp8", True, "FLASHINFER"),
        ("L40S", "fp8", True, "FLASHINFER"),
        ("H100-SXM5-80GB", "fp8", True, "FLASH_ATTN"),
        ("H100-SXM5-80GB", "fp8_e5m2", True, "FLASHINFER"),
        ("B200", "fp8", True, "FLASHINFER"),
        ("B200", "nvfp4", True, "FLASHINFER"),
        ("H100-SXM5-80GB", "nvfp4_4over6", False, None),
        ("RTX-5090", "fp8", True, "FLASHINFER"),
        ("A10", "fp8_per_token_head", False, None),
        ("MI300X", "fp8", True, "ROCm attention"),
        ("MI300X", "nvfp4", False, None),
        ("H100-SXM5-80GB", "auto", True, None),
        ("T4", "bfloat16", False, None),
        ("H100-SXM5-80GB", "fp8_ds_mla", False, None),
    ],
)
def test_cache_types_by_gpu(gpu: str, dtype: str, ok: bool, backend: str | None) -> None:  # noqa: FBT001
    """Turing has no 8-bit float cache, Ampere only by FlashInfer, Hopper by FlashAttention."""
    support = kv_cache_dtype_support(spec_of(LLAMA_8B), node_of(gpu).gpu, version(), dtype)

    assert (support.ok, support.backend) == (ok, backend)


def test_ampere_is_not_certain_of_e4m3() -> None:
    """It hangs on FlashInfer there, while e5m2 is the robust kind."""
    gpu, spec = node_of("RTX-3090").gpu, spec_of(LLAMA_8B)

    assert not kv_cache_dtype_support(spec, gpu, version(), "fp8_e4m3").is_certain
    assert kv_cache_dtype_support(spec, gpu, version(), "fp8_e5m2").is_certain


@pytest.mark.parametrize(
    ("dtype", "ok"), [("fp8", True), ("fp8_e5m2", False), ("int8_per_token_head", False)]
)
def test_latent_attention_takes_few_cache_types(dtype: str, ok: bool) -> None:  # noqa: FBT001
    """The latent has no heads to scale."""
    gpu = node_of("H200").gpu

    assert kv_cache_dtype_support(spec_of(DEEPSEEK), gpu, version(), dtype).ok is ok


def test_a_type_of_a_newer_release_is_not_offered() -> None:
    """nvfp4 came with 0.20."""
    gpu, spec = node_of("B200").gpu, spec_of(LLAMA_8B)

    assert not kv_cache_dtype_support(spec, gpu, version("0.19.0"), "nvfp4").ok
    assert kv_cache_dtype_support(spec, gpu, version("0.20.0"), "nvfp4").ok


@pytest.mark.parametrize(
    ("gpu", "method", "release", "ok"),
    [
        ("RTX-3090", "fp8", "0.4.1", False),
        ("RTX-4090", "fp8", "0.4.1", False),
        ("RTX-4090", "fp8", "0.4.3", True),
        ("A100-SXM4-80GB", "fp8", "0.5.1", True),
        ("T4", "fp8", "0.13.0", False),
        ("T4", "fp8", "0.14.0", True),
        ("V100-SXM2-32GB", "awq", "0.33.0", False),
        ("V100-SXM2-32GB", "gptq", "0.33.0", True),
        ("T4", "awq", "0.33.0", True),
    ],
)
def test_weight_formats_by_gpu_and_release(gpu: str, method: str, release: str, ok: bool) -> None:  # noqa: FBT001
    """The least compute capability of fp8 fell twice; AWQ never ran on Volta."""
    support = quantization_support(
        spec_of(LLAMA_8B), node_of(gpu).gpu, version(release), method=method
    )

    assert support.ok is ok


def test_fp8_weights_on_ampere_are_weight_only() -> None:
    """They load, and the answer says that they do not compute in fp8."""
    support = quantization_support(
        spec_of("Qwen/Qwen3-8B-FP8"), node_of("A100-SXM4-80GB").gpu, version()
    )

    assert support.ok
    assert support.backend == "Marlin, weight-only"


@pytest.mark.parametrize(
    ("gpu", "dtype"),
    [("T4", "float16"), ("V100-SXM2-32GB", "float16"), ("RTX-3090", "bfloat16")],
)
def test_activation_type_by_gpu(gpu: str, dtype: str) -> None:
    """bfloat16 starts with Ampere; consumer Ampere has it too."""
    assert recommended_dtype(spec_of(LLAMA_8B), node_of(gpu).gpu) == dtype


def test_least_step_budget() -> None:
    """Sequences, whole prompts, whole images and aligned blocks each set a floor."""
    llama, gemma, hybrid = spec_of(LLAMA_8B), spec_of(GEMMA_4), spec_of(QWEN_HYBRID)
    config = EngineConfig(max_num_seqs=256, max_model_len=8192, enable_chunked_prefill=True)
    whole = EngineConfig(max_num_seqs=256, max_model_len=8192, enable_chunked_prefill=False)
    text = EngineConfig(max_num_seqs=16, language_model_only=True)
    cached = EngineConfig(max_num_seqs=16, enable_prefix_caching=True)

    assert minimum_batched_tokens(llama, config, version()) == 256
    assert minimum_batched_tokens(llama, whole, version()) == 8192
    assert minimum_batched_tokens(gemma, config, version()) == 2496
    assert minimum_batched_tokens(gemma, text, version()) == 16
    assert minimum_batched_tokens(hybrid, cached, version(), aligned_block_tokens=784) == 784


def test_guide_example_of_the_sequence_limit() -> None:
    """30 GB of cache at 0.12 MB a token and 2000 tokens a request hold 125 requests."""
    kv_cache_tokens = 30e9 / 0.12e6

    assert sequence_limit(kv_cache_tokens, mean_tokens=2000) == 125


def test_ninety_six_heads_divide_by_eight_but_not_by_five() -> None:
    """The guide's own example of an error divides; five ranks are the refused ones."""
    # A Mistral Large has 96 attention heads.
    spec = spec_of("mistralai/Mistral-Large-Instruct-2407")

    assert find_obstacle(spec, tensor_parallel_size=8, version=version()) is None
    refused = find_obstacle(spec, tensor_parallel_size=5, version=version())
    assert refused is not None
    assert refused.message.startswith("96 attention heads")


def test_one_hundred_and_twenty_eight_heads_do_not_divide_by_five() -> None:
    """Llama 405B has 128 heads."""
    spec = spec_of("meta-llama/Llama-3.1-405B-Instruct")

    refused = find_obstacle(spec, tensor_parallel_size=5, version=version())

    assert refused is not None
    assert refused.message.startswith("128 attention heads")
