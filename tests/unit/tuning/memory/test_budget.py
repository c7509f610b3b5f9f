"""The whole budget of a worker, and what makes it refuse to start."""

import pytest
from msgspec.structs import replace

from service.tuning.memory.plan import GIB
from service.tuning.models.spec import RopeCache
from tests.unit.tuning.memory.builders import (
    attention,
    gpu,
    group,
    hybrid_model,
    mixture_model,
    model,
    node,
    plan,
)

SMALL = node(gpu(name="RTX 4090", arch="Ada", memory_gib=23.53, compute_capability=(8, 9)))


def test_llama_8b_on_h100_leaves_what_vllm_logged() -> None:
    """0.11, 0.90, default limits: 14.99 weights, 4.76 activation, 51.38 GiB of cache."""
    llama = model(
        group(32, attention()),
        max_position_embeddings=131_072,
    )

    found = plan(llama, version="0.11.0", max_model_len=16_000, on=node())

    assert found.kv is not None
    assert found.kv.kv_cache_bytes / GIB == pytest.approx(51.38, abs=0.1)
    assert found.fits


def test_the_sampler_law_of_the_release_decides_the_pool() -> None:
    """The same model and flags get gigabytes more from 0.17.0 on."""
    old, new = plan(version="0.16.0"), plan(version="0.17.0")

    assert new.available_bytes - old.available_bytes > 2 * GIB


def test_an_explicit_pool_replaces_the_budget() -> None:
    """`kv_cache_memory_bytes` is taken as it is from 0.10.2 on, and ignored before."""
    explicit = plan(version="0.19.0", kv_cache_memory_bytes=4 * GIB)
    before = plan(version="0.10.0", kv_cache_memory_bytes=4 * GIB)

    assert explicit.kv is not None
    assert explicit.kv.kv_cache_bytes == 4 * GIB
    assert explicit.kv.num_blocks == 2048
    assert explicit.band_bytes == 0
    assert before.available_bytes > 4 * GIB


def test_overridden_blocks_win_over_the_budget() -> None:
    """`num_gpu_blocks_override` sets the pool in blocks."""
    found = plan(num_gpu_blocks_override=1000, max_model_len=8192)

    assert found.kv is not None
    assert found.kv.num_blocks == 1000
    assert found.kv.kv_cache_bytes == 1000 * 2 * 1024**2


def test_auto_length_is_the_longest_that_fits() -> None:
    """From 0.14 "auto" shrinks the model's length until one request fits."""
    found = plan(on=SMALL, max_model_len="auto")

    assert found.kv is not None
    assert found.fits
    assert found.max_model_len == found.kv.largest_max_model_len < 131_072


def test_too_long_a_request_names_the_longest_that_fits() -> None:
    """The full length of Llama-3.1-8B needs 16 GiB of cache."""
    found = plan(on=SMALL, max_model_len=131_072)

    assert found.refusals == ("one_request",)
    assert found.kv is not None
    assert plan(on=SMALL, max_model_len=found.kv.largest_max_model_len).fits
    assert not plan(on=SMALL, max_model_len=found.kv.largest_max_model_len + 16).fits


def test_weights_beyond_the_card_fail_while_loading() -> None:
    """80 layers of Llama-70B do not load on one small card."""
    found = plan(model(group(80, attention(heads=64), width=28_672), hidden_size=8192), on=SMALL)

    assert found.refusals == ("weights",)
    assert found.kv is None


def test_nothing_left_is_not_a_negative_cache() -> None:
    """Weights load but the budget is used up: no plan, a negative remainder."""
    found = plan(on=SMALL, gpu_memory_utilization=0.65)

    assert found.refusals == ("no_memory",)
    assert found.kv is None
    assert found.available_bytes < 0


def test_others_on_the_card_make_a_newer_vllm_refuse() -> None:
    """From 0.9.1 the requested memory must be free; before it shrank the pool instead."""
    shared = replace(SMALL, used_memory_gib=4.0)

    assert "free_memory" in plan(on=shared, max_model_len=2048).refusals
    assert "free_memory" not in plan(on=shared, version="0.9.0", max_model_len=2048).refusals


def test_hybrids_need_a_state_block_per_sequence() -> None:
    """From 0.20 with graphs; eager mode and fewer sequences start."""
    on = node()
    many = plan(hybrid_model(), version="0.28.0", on=on, max_model_len=132_000)
    fewer = plan(hybrid_model(), version="0.28.0", on=on, max_model_len=132_000, max_num_seqs=64)

    assert many.refusals == ("state_blocks",)
    assert fewer.fits
    assert (
        "state_blocks"
        not in plan(hybrid_model(), version="0.28.0", on=on, enforce_eager=True).refusals
    )


def test_the_fullest_pipeline_stage_limits() -> None:
    """The last stage samples and holds the head, so it has the fewest blocks."""
    found = plan(version="0.19.0", pipeline_parallel_size=2, on=node(count=2))

    assert found.limiting_rank == "pipeline stage 1"


def test_more_stages_than_layers_are_planned_as_far_as_they_go() -> None:
    """Nonsense is a finding of the rules; the plan must still answer."""
    assert plan(pipeline_parallel_size=64).total_bytes > 0


def test_adapters_take_memory() -> None:
    """Slots for LoRA adapters are allocated at start."""
    plain = plan()
    adapted = plan(enable_lora=True, max_loras=8, max_lora_rank=64)

    assert adapted.weights_bytes - plain.weights_bytes > GIB
    assert adapted.available_bytes < plain.available_bytes


def test_lora_slots_of_llama_8b_have_the_published_size() -> None:
    """Rank 16 over all linear layers of Llama-3-8B: 41.9 million parameters, 16 bit."""
    added = plan(enable_lora=True, max_loras=1, max_lora_rank=16).weights_bytes
    added -= plan().weights_bytes

    assert added == pytest.approx(41_943_040 * 2, rel=0.01)


def test_a_drafting_model_brings_weights_and_cache() -> None:
    """Its layers join the cache and its weights lie beside the model's."""
    small = model(group(16, attention(heads=16)), hidden_size=2048)
    speculative = {"method": "draft_model", "num_speculative_tokens": 3}

    found = plan(speculative_config=speculative, draft=small)

    assert found.weights_bytes > plan().weights_bytes + GIB
    assert found.kv is not None
    assert found.kv.bytes_per_token == (32 + 16) * 4096


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_an_eagle_head_is_one_more_layer(method: str) -> None:
    """One attention layer in the cache, a few hundred megabytes of weights."""
    found = plan(speculative_config={"method": method, "num_speculative_tokens": 3})

    assert found.kv is not None
    assert found.kv.bytes_per_token == 33 * 4096
    assert 0.3 * GIB < found.weights_bytes - plan().weights_bytes < 1.5 * GIB


def test_quantising_online_halves_the_weights() -> None:
    """`quantization=fp8` on a 16-bit checkpoint; embedding and head stay."""
    ratio = plan(quantization="fp8").weights_bytes / plan().weights_bytes

    assert 0.5 < ratio < 0.62


def test_expert_parallelism_keeps_the_weights_of_a_rank() -> None:
    """Whole experts instead of slices: the same bytes per GPU."""
    sliced = plan(mixture_model(), tensor_parallel_size=4)
    whole = plan(mixture_model(), tensor_parallel_size=4, enable_expert_parallel=True)

    assert whole.weights_bytes == pytest.approx(sliced.weights_bytes, rel=0.01)


def test_a_checkpoint_with_8_bit_scales_gets_an_fp8_cache() -> None:
    """The effective configuration says fp8, and the plan follows it."""
    halved = plan(kv_cache_dtype="fp8")

    assert halved.kv is not None
    assert halved.kv.element_bytes == 1.0


def test_a_concurrency_near_one_is_borderline() -> None:
    """Between 0.95 and 1.08 the uncertainty decides."""
    found = plan(on=SMALL, max_model_len="auto")

    assert found.kv is not None
    assert found.kv.max_concurrency == pytest.approx(1.0, abs=0.02)
    assert found.borderline
    assert not plan(max_model_len=8192).borderline


def test_the_old_engine_runs_on_old_gpus() -> None:
    """Below compute capability 8.0 the V0 plan holds until 0.11 removed it."""
    turing = node(gpu(name="T4", arch="Turing", memory_gib=14.56, compute_capability=(7, 5)))
    small = model(group(16, attention(heads=16)), hidden_size=2048)

    old = plan(small, on=turing, version="0.10.0", max_model_len=2048)

    assert old.kv is not None
    assert old.kv.tokens == old.kv.num_blocks * 16


def test_offloaded_weights_leave_the_gpu() -> None:
    """`cpu_offload_gb` keeps that much of the weights in host memory."""
    found = plan(cpu_offload_gb=4)

    assert plan().weights_bytes - found.weights_bytes == pytest.approx(4 * GIB)
    assert plan(cpu_offload_gb=1000).weights_bytes == 0


@pytest.mark.parametrize(
    ("version", "stated", "is_charged"),
    [
        ("0.19.0", None, False),
        ("0.19.0", "1", True),
        ("0.17.0", "1", False),
        ("0.22.0", None, True),
        ("0.22.0", "0", False),
    ],
)
def test_the_environment_switches_the_graph_estimate(
    version: str, stated: str | None, is_charged: object
) -> None:
    """VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: opt-in in 0.18 and 0.19, opt-out later."""
    env = {} if stated is None else {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": stated}

    found = plan(version=version, env=env)

    assert (found.charged_graphs_bytes > 0) is is_charged


@pytest.mark.parametrize(
    ("layers", "head_dim", "pool_mib", "tokens"),
    [(2, 32, 64, 131_072), (8, 64, 64, 16_384), (8, 64, 10, 2560)],
)
def test_the_cpu_backend_lays_out_the_same_pages(
    layers: int, head_dim: int, pool_mib: int, tokens: int
) -> None:
    """Pools that vLLM 0.32 printed on its CPU backend for tiny models."""
    heads = 2
    tiny = model(
        group(layers, attention(kv_heads=heads, heads=4, dim=head_dim)),
        hidden_size=128,
        vocab_size=1024,
        max_position_embeddings=1024,
    )
    host = node(
        gpu(name="CPU", vendor="cpu", arch="CPU", gpu_class="cpu", compute_capability=None),
        total_memory_gib=18.46,
    )

    found = plan(
        tiny,
        on=host,
        version="0.32.0",
        kv_cache_memory_bytes=pool_mib * 2**20,
        block_size=32,
        max_model_len=1024,
    )

    assert found.kv is not None
    assert found.kv.tokens == tokens


def test_a_cpu_pool_too_small_names_the_length_that_vllm_printed() -> None:
    """256 KiB hold 16 blocks of 32 tokens; one is the null block, so 480 fit (0.32)."""
    tiny = model(
        group(2, attention(kv_heads=2, heads=4, dim=32)),
        hidden_size=128,
        vocab_size=1024,
        max_position_embeddings=1024,
    )

    found = plan(tiny, version="0.32.0", kv_cache_memory_bytes=2**18, block_size=32)

    assert found.refusals == ("one_request",)
    assert found.kv is not None
    assert found.kv.largest_max_model_len == 480


def test_segments_that_expand_hold_the_weights_in_less() -> None:
    """Logs of Gemma 4 and Qwen3.8 with that allocator setting print the tensors' own size."""
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512"}
    whole = plan(hybrid_model(), max_model_len=8192)

    tight = plan(hybrid_model(), max_model_len=8192, env=settings)

    assert 0 < whole.weights_bytes - tight.weights_bytes < 0.5 * GIB


def test_older_releases_keep_longer_rotary_tables_of_picture_models() -> None:
    """Qwen3.5 to 3.8 log 0.09 GiB of weights more up to 0.29: a table of 1,048,576 positions."""
    table = RopeCache(positions=262_144, dim=64, older_positions=4 * 262_144)
    spec = hybrid_model(rope_caches=(table,))

    old, new = (plan(spec, version=version, max_model_len=8192) for version in ("0.29.0", "0.32.0"))

    assert old.weights_bytes - new.weights_bytes == 3 * 262_144 * 64 * 2


def test_a_memory_shared_with_the_host_is_less_sure() -> None:
    """Every process of the host counts there: GB10 logs lie up to 6 GiB of 121.7 below the law."""
    own, shared = (
        plan(on=node(gpu(arch="Blackwell", memory_gib=121.69, unified_memory=unified)))
        for unified in (False, True)
    )

    assert shared.band_bytes - own.band_bytes == pytest.approx(0.04 * 121.69 * GIB)
