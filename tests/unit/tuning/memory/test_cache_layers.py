"""Bytes that one layer keeps per token or per request."""

import pytest

from service.tuning.memory.cache_layers import cache_layer, element_bytes, head_bytes
from service.tuning.models.spec import Mixer, StateSpace
from tests.unit.tuning.memory.builders import attention, delta_net, latent


def bytes_per_token(mixer: Mixer, *, dtype: str = "bfloat16", tp: int = 1) -> float:
    layer = cache_layer(
        mixer,
        kv_cache_dtype=dtype,
        tensor_parallel_size=tp,
        speculative_tokens=0,
        state_element_bytes=4,
    )
    assert layer is not None
    return layer.bytes_per_token


def state_bytes(mixer: Mixer, *, tp: int = 1, speculative: int = 0) -> int:
    layer = cache_layer(
        mixer,
        kv_cache_dtype="bfloat16",
        tensor_parallel_size=tp,
        speculative_tokens=speculative,
        state_element_bytes=4,
    )
    assert layer is not None
    return layer.state_bytes


def test_llama_3_8b_keeps_131072_bytes_per_token() -> None:
    """2 x 8 heads x 128 x 2 B over 32 layers is the guides' figure."""
    assert 32 * bytes_per_token(attention()) == 131_072


def test_llama_70b_at_tp4_keeps_81920_bytes_per_token() -> None:
    """Two of eight KV heads live on each of four GPUs."""
    assert 80 * bytes_per_token(attention(heads=64), tp=4) == 81_920


@pytest.mark.parametrize(("dtype", "total"), [("bfloat16", 70_272), ("fp8", 35_136)])
def test_deepseek_v3_keeps_one_latent_per_token(dtype: str, total: int) -> None:
    """61 layers of 576 values, whatever tensor parallelism is."""
    assert 61 * bytes_per_token(latent(), dtype=dtype) == total
    assert 61 * bytes_per_token(latent(), dtype=dtype, tp=8) == total


def test_sparse_latent_attention_adds_the_indexer() -> None:
    """DeepSeek-V3.2 in its packed fp8 format: 656 + 132 bytes per token and layer."""
    sparse = latent(index_topk=2048, index_num_heads=64, index_head_dim=128)

    assert 61 * bytes_per_token(sparse, dtype="fp8_ds_mla", tp=8) == 48_068


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    """With more GPUs than KV heads each keeps one whole head."""
    assert bytes_per_token(attention(), tp=16) == bytes_per_token(attention(), tp=8)


def test_fp8_halves_the_cache() -> None:
    """Per-tensor scales add nothing per token."""
    assert 2 * bytes_per_token(attention(), dtype="fp8") == bytes_per_token(attention())


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("fp8_per_token_head", 2 * 128 + 8),
        ("int8_per_token_head", 2 * 128 + 8),
        ("int4_per_token_head", 128 + 8),
        ("nvfp4", 2 * (64 + 8)),
        ("turboquant_k8v4", 128 + 64 + 4),
        ("turboquant_4bit_nc", 66 + 68),
        ("turboquant_k3v4_nc", 50 + 68),
        ("turboquant_3bit_nc", 50 + 52),
        ("float32", 1024),
    ],
)
def test_quantised_formats_carry_their_scales(dtype: str, size: int) -> None:
    """Scales per token and head come on top of the values."""
    assert head_bytes(dtype, key_dim=128, value_dim=128) == size


def test_odd_packed_sizes_are_rounded_up_to_even() -> None:
    """Turboquant pads a head's record to an even number of bytes."""
    assert head_bytes("turboquant_k3v4_nc", key_dim=129, value_dim=128) % 2 == 0


def test_unknown_formats_count_as_16_bit() -> None:
    """A format without a transcribed layout is not promised to be smaller."""
    assert element_bytes("octave_k3v4") == 2.0


def test_a_layer_that_shares_its_cache_keeps_nothing() -> None:
    """YOCO-style layers read the cache of an earlier one."""
    layer = cache_layer(
        attention(shares_kv=True),
        kv_cache_dtype="bfloat16",
        tensor_parallel_size=1,
        speculative_tokens=0,
        state_element_bytes=4,
    )

    assert layer is None


def test_gated_delta_net_keeps_matrix_and_convolution() -> None:
    """48 heads of 128 x 128 in fp32 and three rows of the convolution in 16 bit."""
    assert state_bytes(delta_net()) == 48 * 128 * 128 * 4 + 3 * (2 * 2048 + 6144) * 2


def test_drafted_tokens_lengthen_the_convolution() -> None:
    """Each speculative token adds one row of the convolution's inputs."""
    longer = state_bytes(delta_net(), speculative=1) - state_bytes(delta_net())

    assert longer == (2 * 2048 + 6144) * 2


def test_recurrent_state_is_split_over_gpus() -> None:
    """Linear attention heads divide by tensor parallelism without replication."""
    assert 2 * state_bytes(delta_net(), tp=2) == state_bytes(delta_net())


def test_mamba2_groups_are_padded_to_the_gpus() -> None:
    """One group that eight GPUs cannot split is kept by each of them."""
    mixer = StateSpace(
        kind="mamba2",
        inner_size=8192,
        num_heads=128,
        head_dim=64,
        state_size=128,
        num_groups=1,
        conv_kernel=4,
    )

    expected = (128 * 64 * 128 * 4 + 3 * (8192 + 2 * 8 * 128) * 2) // 8

    assert state_bytes(mixer, tp=8) == expected


def test_mamba1_keeps_one_state_per_channel() -> None:
    """The inner width times the state size, and the convolution's inputs."""
    mixer = StateSpace(
        kind="mamba1",
        inner_size=8192,
        num_heads=0,
        head_dim=0,
        state_size=16,
        num_groups=0,
        conv_kernel=4,
    )

    assert state_bytes(mixer) == 8192 * 16 * 4 + 3 * 8192 * 2
