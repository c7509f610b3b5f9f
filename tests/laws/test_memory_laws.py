"""What must hold of memory plans whatever the model, GPU, release and settings."""

import itertools
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from api_schemas.engine import EngineConfig
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import EngineVersion, known_releases
from service.tuning.hardware.spec import Gpu, Node
from service.tuning.memory.budget import plan_memory
from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import (
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    Mixer,
    MixtureOfExperts,
    ModelSpec,
)

_LAW = settings(deadline=None, derandomize=True)
_RELEASES = st.sampled_from(known_releases())
_NEW_RELEASES = st.sampled_from([v for v in known_releases() if v.since("0.9.1")])


def _gpu(memory_gib: float, *, is_hopper: bool) -> Gpu:
    return Gpu(
        name="H100" if is_hopper else "L40S",
        vendor="nvidia",
        arch="Hopper" if is_hopper else "Ada",
        gpu_class="datacenter",
        memory_gib=memory_gib,
        memory_gb_vendor=None,
        memory_is_verified=True,
        bandwidth_gb_s=3000.0,
        bf16_tflops=900.0,
        fp16_tflops=900.0,
        fp8_tflops=1800.0,
        int8_tops=1800.0,
        fp4_tflops=None,
        compute_capability=(9, 0) if is_hopper else (8, 9),
        link_gb_s=450.0 if is_hopper else 0.0,
        pcie_gb_s=64.0,
    )


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Draw eight alike GPUs of 16 to 192 GiB."""
    part = _gpu(
        draw(st.sampled_from([16.0, 23.53, 79.19, 139.72, 191.5])), is_hopper=draw(st.booleans())
    )
    return Node(
        gpu=part,
        gpus_per_node=8,
        nodes=1,
        interconnect="nvlink" if part.link_gb_s else "pcie",
        total_memory_gib=part.memory_gib,
        used_memory_gib=0.0,
        host_memory_gib=None,
        price_per_gpu_hour=None,
    )


def _attention(*, window: int | None = None, chunk: int | None = None) -> GroupedQueryAttention:
    return GroupedQueryAttention(
        num_heads=32, num_kv_heads=8, head_dim=128, v_head_dim=128, window=window, chunk=chunk
    )


_LATENT = LatentAttention(
    num_heads=32,
    q_lora_rank=None,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
_RECURRENT = LinearAttention(
    kind="gdn",
    num_key_heads=16,
    num_value_heads=32,
    key_head_dim=128,
    value_head_dim=128,
    conv_kernel=4,
)


@st.composite
def models(draw: st.DrawFn) -> ModelSpec:
    """Draw a model of one or two kinds of layers, dense or with experts."""
    kinds: list[tuple[Mixer, ...]] = [
        (_attention(),),
        (_LATENT,),
        (_attention(), _attention(window=draw(st.sampled_from([128, 1024, 4096])))),
        (_attention(), _attention(chunk=8192)),
        (_attention(), _RECURRENT),
    ]
    width = draw(st.sampled_from([1024, 4096, 14_336]))
    feed_forward = draw(
        st.sampled_from(
            [
                DenseFeedForward(intermediate_size=width),
                MixtureOfExperts(
                    num_experts=32, experts_per_token=4, expert_intermediate_size=width // 4
                ),
            ]
        )
    )
    groups = tuple(
        LayerGroup(count=draw(st.integers(2, 40)), mixer=mixer, feed_forward=feed_forward)
        for mixer in draw(st.sampled_from(kinds))
    )
    order = tuple(index for index, group in enumerate(groups) for _ in range(group.count))
    return ModelSpec(
        id="law/model",
        architecture="LlamaForCausalLM",
        model_type="llama",
        hidden_size=draw(st.sampled_from([1024, 4096])),
        vocab_size=draw(st.sampled_from([32_000, 128_256])),
        max_position_embeddings=131_072,
        dtype="bfloat16",
        layers=groups,
        layer_order=order,
    )


def planned(spec: ModelSpec, node: Node, version: EngineVersion, **settings_: object) -> MemoryPlan:
    """Return the plan with every default filled in."""
    given_ = EngineConfig(**settings_)  # type: ignore[arg-type]
    config = effective_config(given_, spec=spec, node=node, version=version)
    return plan_memory(spec=spec, node=node, config=config, version=version)


@_LAW
@given(spec=models(), node=nodes(), version=_RELEASES)
def test_parts_sum_to_the_requested_memory(
    spec: ModelSpec, node: Node, version: EngineVersion
) -> None:
    """Weights, activations, overheads and what is left are the whole budget, nothing is lost."""
    plan = planned(spec, node, version)

    parts = (
        plan.weights_bytes
        + plan.activation_bytes
        + plan.non_torch_bytes
        + plan.charged_graphs_bytes
        + plan.slack_bytes
        + plan.available_bytes
    )
    assert parts == pytest.approx(plan.requested_bytes, abs=2)
    assert plan.requested_bytes <= plan.total_bytes


@_LAW
@given(spec=models(), node=nodes(), version=_RELEASES)
def test_more_tensor_parallelism_never_means_more_weights_each(
    spec: ModelSpec, node: Node, version: EngineVersion
) -> None:
    """Splitting over more GPUs never raises the weight bytes on one of them."""
    sizes = [
        planned(spec, node, version, tensor_parallel_size=tp).weights_bytes for tp in (1, 2, 4, 8)
    ]

    # The allocator rounds each tensor up, so a split may cost a few pages.
    assert all(more <= less * 1.02 + 2**22 for less, more in itertools.pairwise(sizes))


@_LAW
@given(
    spec=models(),
    node=nodes(),
    version=_NEW_RELEASES,
    shorter=st.integers(1, 60_000),
    extra=st.integers(0, 60_000),
)
def test_longer_requests_never_raise_concurrency(
    spec: ModelSpec, node: Node, version: EngineVersion, shorter: int, extra: int
) -> None:
    """At the same budget of tokens and sequences, longer requests need as many blocks or more."""
    limits = {"max_num_batched_tokens": 8192, "max_num_seqs": 64}
    short = planned(spec, node, version, max_model_len=shorter, **limits)
    long = planned(spec, node, version, max_model_len=shorter + extra, **limits)
    assume(short.kv is not None and long.kv is not None)

    assert short.kv is not None
    assert long.kv is not None
    assert long.kv.max_concurrency <= short.kv.max_concurrency + 1e-9


@_LAW
@given(
    spec=models(),
    node=nodes(),
    version=_RELEASES,
    low=st.floats(0.3, 0.95),
    more=st.floats(0.0, 0.3),
)
def test_more_utilization_never_means_fewer_tokens(
    spec: ModelSpec, node: Node, version: EngineVersion, low: float, more: float
) -> None:
    """A larger share of the GPU leaves at least as large a cache."""
    smaller = planned(spec, node, version, gpu_memory_utilization=low, max_model_len=4096)
    larger = planned(
        spec, node, version, gpu_memory_utilization=min(1.0, low + more), max_model_len=4096
    )

    tokens = smaller.kv.tokens if smaller.kv is not None else 0
    assert larger.kv is not None or tokens == 0
    assert larger.kv is None or larger.kv.tokens >= tokens


@_LAW
@given(spec=models(), node=nodes(), version=_NEW_RELEASES, length=st.integers(1, 131_072))
def test_a_request_of_the_largest_length_fits_and_one_token_more_does_not(
    spec: ModelSpec, node: Node, version: EngineVersion, length: int
) -> None:
    """The bisection finds the very edge."""
    plan = planned(spec, node, version, max_model_len=length)
    assume(plan.kv is not None)
    assert plan.kv is not None
    longest = plan.kv.largest_max_model_len
    blocks = plan.kv.num_blocks - (1 if version.since("0.29.0") else 0)

    assert longest == 0 or plan.kv.request_blocks(longest) <= blocks
    assert longest == spec.max_position_embeddings or plan.kv.request_blocks(longest + 1) > blocks
    assert (length <= longest) == ("one_request" not in plan.refusals)


@_LAW
@given(
    window=st.sampled_from([128, 1024, 4096]),
    tokens=st.integers(512, 16_384),
    node=nodes(),
    version=_NEW_RELEASES,
)
def test_a_window_bounds_the_cache_of_a_request(
    window: int, tokens: int, node: Node, version: EngineVersion
) -> None:
    """Beyond window and in-flight tokens a sliding layer takes no more blocks."""
    group = LayerGroup(
        count=8,
        mixer=_attention(window=window),
        feed_forward=DenseFeedForward(intermediate_size=1024),
    )
    spec = ModelSpec(
        id="law/window",
        architecture="MistralForCausalLM",
        model_type="mistral",
        hidden_size=1024,
        vocab_size=32_000,
        max_position_embeddings=1_000_000,
        dtype="bfloat16",
        layers=(group,),
        layer_order=(0,) * 8,
    )
    plan = planned(spec, node, version, max_num_batched_tokens=tokens, max_num_seqs=8)
    assert plan.kv is not None

    bound = math.ceil((window - 1 + 3 * tokens) / 16) + 1
    assert plan.kv.request_blocks(1_000_000) <= bound
    assert plan.kv.request_blocks(1_000_000) == plan.kv.request_blocks(900_000)


@_LAW
@given(spec=models(), node=nodes(), version=_NEW_RELEASES)
def test_an_fp8_cache_holds_at_least_as_many_requests(
    spec: ModelSpec, node: Node, version: EngineVersion
) -> None:
    """Half the bytes per value never hold fewer tokens of attention, up to one block's rounding."""
    pool = {"max_model_len": 8192, "kv_cache_memory_bytes": 8 * 2**30}
    assume(version.since("0.10.2"))
    plain = planned(spec, node, version, kv_cache_dtype="auto", **pool)
    halved = planned(spec, node, version, kv_cache_dtype="fp8", **pool)
    assert plain.kv is not None
    assert halved.kv is not None

    assert halved.kv.max_concurrency >= 0.9 * plain.kv.max_concurrency


@_LAW
@given(spec=models(), node=nodes(), version=_RELEASES, used=st.floats(0.0, 8.0))
def test_others_on_the_gpu_never_help(
    spec: ModelSpec, node: Node, version: EngineVersion, used: float
) -> None:
    """Memory that other processes hold never turns a no into a yes, nor adds tokens."""
    alone = planned(spec, node, version, max_model_len=2048)
    shared = planned(spec, replace(node, used_memory_gib=used), version, max_model_len=2048)

    assert alone.fits or not shared.fits
    assert shared.available_bytes <= alone.available_bytes


_NONSENSE = st.fixed_dictionaries(
    {
        "tensor_parallel_size": st.integers(-1, 10**9),
        "pipeline_parallel_size": st.integers(-1, 10**9),
        "block_size": st.integers(-1, 10**6),
        "gpu_memory_utilization": st.floats(-1, 1000),
        "max_num_batched_tokens": st.integers(-1, 10**15),
        "max_num_seqs": st.integers(-1, 10**15),
        "max_cudagraph_capture_size": st.integers(-1, 10**15),
        "max_model_len": st.one_of(st.just("auto"), st.integers(-1, 10**9)),
    }
)


@_LAW
@given(spec=models(), node=nodes(), version=_RELEASES, values=_NONSENSE)
def test_nonsense_still_gets_an_answer(
    spec: ModelSpec, node: Node, version: EngineVersion, values: dict[str, object]
) -> None:
    """Values that vLLM would refuse are the rules' business: the plan never raises."""
    plan = planned(spec, node, version, **values)

    assert plan.max_model_len >= 1
    assert math.isfinite(plan.available_bytes)
