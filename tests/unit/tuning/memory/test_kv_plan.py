"""How each release lays out blocks, and the figures that it prints."""

from collections.abc import Mapping

import pytest

from service.tuning.memory.cache_layers import CacheLayer, cache_layer
from service.tuning.memory.kv_plan import (
    KvLayout,
    KvRules,
    fill_pool,
    kv_layout,
    printed_tokens,
)
from service.tuning.memory.plan import GIB, KvPlan
from service.tuning.models.spec import Mixer, StateSpace
from tests.unit.tuning.memory.builders import attention, delta_net, latent, rules


def kept(mixer: Mixer, *, dtype: str = "bfloat16", tp: int = 1, speculative: int = 0) -> CacheLayer:
    layer = cache_layer(
        mixer,
        kv_cache_dtype=dtype,
        tensor_parallel_size=tp,
        speculative_tokens=speculative,
        state_element_bytes=4,
    )
    assert layer is not None
    return layer


def layout_of(layers: Mapping[CacheLayer, int], under: KvRules) -> KvLayout:
    found = kv_layout(layers, under)
    assert found is not None
    return found


def filled(layers: Mapping[CacheLayer, int], under: KvRules, *, gib: float, length: int) -> KvPlan:
    layout = layout_of(layers, under)
    pool = int(gib * GIB)
    return fill_pool(
        layout,
        num_blocks=pool // layout.block_bytes,
        kv_cache_bytes=pool,
        max_model_len=length,
        longest_model_len=max(length, 262_144),
        rules=under,
        element_bytes=2.0,
    )


LLAMA_8B = {kept(attention()): 32}
GEMMA_3_4B = {
    kept(attention(kv_heads=4, heads=8, dim=256)): 5,
    kept(attention(kv_heads=4, heads=8, dim=256, window=1024)): 29,
}


def test_one_block_of_llama_3_8b_is_2_mib() -> None:
    """128 KiB per token times 16 tokens."""
    assert layout_of(LLAMA_8B, rules()).block_bytes == 2 * 1024**2


@pytest.mark.parametrize(("dtype", "sequences"), [("bfloat16", 56), ("fp8", 112)])
def test_56_gib_hold_56_sequences_of_8k_and_twice_as_many_in_fp8(
    dtype: str, sequences: int
) -> None:
    """The guides' example: 8K of Llama-3-8B are 1 GiB."""
    layers = {kept(attention(), dtype=dtype): 32}

    assert filled(layers, rules(), gib=56, length=8192).max_concurrency == sequences


def test_qwen_32b_at_tp4_holds_6_full_sequences_in_53_gib() -> None:
    """64 layers of 8 KV heads: 262,144 bytes per token, 32 GiB for 128K over four GPUs."""
    whole = layout_of({kept(attention(heads=40)): 64}, rules())
    quarter = {kept(attention(heads=40), tp=4): 64}

    assert whole.bytes_per_token == 262_144
    assert whole.bytes_per_token * 131_072 == 32 * GIB
    halved = {kept(attention(heads=40), dtype="fp8"): 64}
    assert layout_of(halved, rules()).bytes_per_token * 131_072 == 16 * GIB
    assert int(filled(quarter, rules(), gib=53, length=131_072).max_concurrency) == 6


@pytest.mark.parametrize(
    ("version", "tokens", "concurrency"),
    [
        ("0.7.3", 10_000, 10_000 / 3000),
        ("0.8.5", 10_000, 10_000 / 3000),
        ("0.9.2", 10_000, 625 / 188),
        ("0.20.0", 10_000, 625 / 188),
        ("0.20.2", int(625 / 188 * 3000), 625 / 188),
        ("0.21.0", int(625 / 188 * 3000), 625 / 188),
        ("0.33.0", int(625 / 188 * 3000), 625 / 188),
    ],
)
def test_each_release_prints_its_own_figure(version: str, tokens: int, concurrency: float) -> None:
    """Tokens are blocks x 16 at first, from 0.20.2 concurrency x length; 3,000 tokens take 188."""
    plan = filled(LLAMA_8B, rules(version), gib=625 / 512, length=3000)

    assert plan.num_blocks == 625
    assert plan.tokens == tokens
    assert plan.max_concurrency == pytest.approx(concurrency)


def test_sliding_layers_share_blocks_in_groups_of_the_rarer_kind() -> None:
    """29 sliding and 5 full layers make six and one groups of five."""
    layout = layout_of(GEMMA_3_4B, rules("0.19.0"))

    assert [group.kind for group in layout.groups].count("sliding") == 6
    assert [group.kind for group in layout.groups].count("full") == 1
    assert layout.block_bytes == 5 * 16 * 4096


def test_kinds_of_similar_number_form_one_group_each() -> None:
    """Counts closer than 1.5 are padded to the larger one instead of split."""
    near = {kept(attention()): 20, kept(attention(window=512)): 25}

    layout = layout_of(near, rules("0.19.0"))

    assert len(layout.groups) == 2
    assert layout.block_bytes == 25 * 16 * 4096


def test_before_groups_existed_every_layer_kept_all_tokens() -> None:
    """0.9.0 and older reserve full length in sliding layers."""
    layout = layout_of(GEMMA_3_4B, rules("0.9.0"))

    assert [group.kind for group in layout.groups] == ["full"]
    assert layout.block_bytes == 34 * 16 * 4096


def test_a_window_saves_nothing_within_window_and_budget() -> None:
    """Up to window + batched tokens a sliding group holds all tokens, and one block more."""
    layout = layout_of(GEMMA_3_4B, rules("0.19.0", in_flight_tokens=8192))

    assert layout.request_blocks(8192) == 512 + 6 * 513
    assert layout.request_blocks(131_072) == 8192 + 6 * (576 + 1)


def test_a_smaller_page_gets_a_larger_block() -> None:
    """Gemma-4-31B: full layers have half the page, so their block holds 32 tokens."""
    layers = {
        kept(attention(kv_heads=4, dim=512)): 10,
        kept(attention(kv_heads=16, dim=256, window=1024)): 50,
    }

    layout = layout_of(layers, rules("0.22.0"))

    assert {group.block_tokens for group in layout.groups if group.kind == "full"} == {32}
    assert {group.block_tokens for group in layout.groups if group.kind == "sliding"} == {16}


@pytest.mark.parametrize(
    ("layers", "block"),
    [
        # Qwen3.8-27B with fp8 KV
        (
            {
                kept(attention(kv_heads=4, dim=256), dtype="fp8", tp=2): 16,
                kept(delta_net(), tp=2): 48,
            },
            1568,
        ),
        # Qwen3.6-35B-A3B with fp8 KV
        (
            {
                kept(attention(kv_heads=2, dim=256), dtype="fp8"): 10,
                kept(delta_net(value_heads=32)): 30,
            },
            2096,
        ),
    ],
)
def test_hybrids_raise_the_block_to_hold_one_state(
    layers: dict[CacheLayer, int], block: int
) -> None:
    """The smallest multiple of 16 tokens whose page holds one recurrent state."""
    layout = layout_of(layers, rules("0.26.0"))

    assert {group.block_tokens for group in layout.groups} == {block}


@pytest.mark.parametrize(("speculative", "block"), [(0, 4176), (1, 4192)])
def test_drafted_tokens_raise_the_block_of_qwen35_122b(speculative: int, block: int) -> None:
    """64 value heads and 2 KV heads with fp8 KV, without and with one MTP token."""
    layers = {
        kept(attention(kv_heads=2, dim=256), dtype="fp8"): 12,
        kept(delta_net(value_heads=64), speculative=speculative): 36,
    }

    layout = layout_of(layers, rules("0.26.0", speculative_tokens=speculative))

    assert layout.min_block_tokens == block


@pytest.mark.parametrize(("speculative", "caches", "states"), [(0, 0, 1), (0, 1, 2), (3, 1, 5)])
def test_a_request_holds_one_state_more_with_caching_and_each_draft(
    speculative: int, caches: int, states: int
) -> None:
    """1 + speculative tokens, one more with prefix caching, in each recurrent group."""
    layers = {kept(attention(kv_heads=4, dim=256)): 16, kept(delta_net()): 48}
    under = rules("0.26.0", speculative_tokens=speculative, checkpoints_state=bool(caches))

    layout = layout_of(layers, under)

    assert layout.recurrent_blocks == 3 * states
    assert layout.request_blocks(1) == 1 + 3 * states


def test_context_parallelism_multiplies_the_tokens_of_a_block() -> None:
    """Each block id stands for block x DCP tokens."""
    layers = {kept(latent()): 61}

    one = filled(layers, rules("0.19.0"), gib=20, length=32_768)
    four = filled(layers, rules("0.19.0", decode_context_parallel_size=4), gib=20, length=32_768)

    assert four.tokens == 4 * one.tokens
    assert four.max_concurrency == pytest.approx(4 * one.max_concurrency)


@pytest.mark.parametrize(("version", "longest"), [("0.28.0", 480), ("0.29.0", 464)])
def test_the_null_block_counts_against_the_length_from_0_29(version: str, longest: int) -> None:
    """One block is never given out; only the newer check leaves it out."""
    layout = layout_of(LLAMA_8B, rules(version))

    plan = fill_pool(
        layout,
        num_blocks=30,
        kv_cache_bytes=30 * layout.block_bytes,
        max_model_len=4096,
        longest_model_len=4096,
        rules=rules(version),
        element_bytes=2.0,
    )

    assert plan.largest_max_model_len == longest


def test_purely_recurrent_models_hold_requests_of_any_length() -> None:
    """A state does not grow with the context."""
    plan = filled({kept(delta_net()): 48}, rules(), gib=10, length=100_000)

    assert plan.bytes_per_token == 0
    assert plan.request_blocks(100_000) == plan.request_blocks(10)
    assert plan.largest_max_model_len == 262_144


def test_a_model_without_any_cache_has_no_layout() -> None:
    """Nothing to lay out is not a layout of zero bytes."""
    assert kv_layout({}, rules()) is None


@pytest.mark.parametrize(("caches_prefixes", "tokens"), [(False, 41 * 2048), (True, 41 * 2080)])
def test_a_state_that_is_kept_once_is_a_block_as_long_as_a_request(
    *, caches_prefixes: bool, tokens: int
) -> None:
    """Falcon-H1-3B with 0.12 prints 83,968 tokens of 83 blocks of 2,080 for requests of 2,048."""
    mamba = StateSpace(
        kind="mamba2",
        inner_size=4096,
        state_size=256,
        num_heads=32,
        head_dim=128,
        num_groups=1,
        conv_kernel=4,
    )
    state = cache_layer(
        mamba,
        kv_cache_dtype="bfloat16",
        tensor_parallel_size=1,
        speculative_tokens=0,
        state_element_bytes=2,
    )
    assert state is not None
    layers = {kept(attention(kv_heads=2, heads=10)): 32, state: 32}
    under = rules("0.12.0", checkpoints_state=caches_prefixes)
    layout = layout_of(layers, under)

    assert layout.min_block_tokens == 2080
    assert printed_tokens(layout, 83, 2048, under) == tokens
