"""Laws of step prices and predictions, over models, layouts and GPUs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Performance
from api_schemas.slo import Slo
from api_schemas.workload import BatchArrivals, ClosedLoop, PoissonArrivals, Workload
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import NEWEST, EngineVersion, parse_version
from service.tuning.hardware.catalogue import find_gpu
from service.tuning.hardware.spec import Node
from service.tuning.latency.coefficients import PRIOR_COEFFICIENTS, bundled_coefficients
from service.tuning.latency.price import NUM_BATCH, NUM_PRICES, PRICE_FIELDS
from service.tuning.latency.work import price_array, step_work
from service.tuning.memory.budget import plan_memory
from service.tuning.models.spec import (
    DenseFeedForward,
    GroupedQueryAttention,
    LayerGroup,
    MixtureOfExperts,
    ModelSpec,
)
from service.tuning.performance import Method, predict_performance

LAW = settings(max_examples=40, deadline=None, derandomize=True)


def model(
    *, num_kv_heads: int = 8, layers: int = 32, window: int | None = None, experts: int = 0
) -> ModelSpec:
    """A model of 7 to 8 billion active parameters."""
    mixer = GroupedQueryAttention(
        num_heads=32, num_kv_heads=num_kv_heads, head_dim=128, v_head_dim=128, window=window
    )
    feed_forward = (
        MixtureOfExperts(num_experts=experts, experts_per_token=2, expert_intermediate_size=3584)
        if experts
        else DenseFeedForward(intermediate_size=14336)
    )
    return ModelSpec(
        id="laws/model",
        architecture="LlamaForCausalLM",
        model_type="llama",
        hidden_size=4096,
        vocab_size=128256,
        max_position_embeddings=32768,
        dtype="bfloat16",
        layers=(LayerGroup(count=layers, mixer=mixer, feed_forward=feed_forward),),
        layer_order=(0,) * layers,
    )


def node(gpu: str = "H100-SXM5-80GB", gpus: int = 8, **changes: float) -> Node:
    return Node(
        gpu=replace(find_gpu(gpu), **changes),
        gpus_per_node=gpus,
        nodes=1,
        interconnect="nvlink",
        total_memory_gib=find_gpu(gpu).memory_gib,
        used_memory_gib=0.0,
        host_memory_gib=None,
        price_per_gpu_hour=None,
    )


def config_for(
    spec: ModelSpec, place: Node, version: EngineVersion = NEWEST, **settings_: object
) -> EngineConfig:
    return effective_config(
        EngineConfig(max_model_len=16384, **settings_), spec=spec, node=place, version=version
    )


def step_time(
    spec: ModelSpec,
    place: Node,
    batch: list[float],
    *,
    version: EngineVersion = NEWEST,
    **settings_: object,
) -> float:
    from service.tuning.simulation.kernel import step_seconds

    config = config_for(spec, place, version, **settings_)
    work = step_work(spec=spec, node=place, config=config, version=version)
    features = np.array(batch, dtype=np.float64)
    return float(step_seconds(price_array(work, bundled_coefficients()), features))


def predict(
    spec: ModelSpec,
    place: Node,
    load: Workload,
    *,
    version: EngineVersion = NEWEST,
    method: Method = "simulation",
    slo: Slo | None = None,
    **settings_: object,
) -> Performance:
    config = config_for(spec, place, version, **settings_)
    plan = plan_memory(spec=spec, node=place, config=config, version=version)
    return predict_performance(
        spec=spec,
        node=place,
        config=config,
        version=version,
        plan=plan,
        workload=load,
        method=method,
        slo=slo,
    )


def loop(clients: int = 16, prompt: int = 1000, output: int = 200) -> Workload:
    return Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        arrivals=ClosedLoop(max_concurrency=clients),
    )


def decodes(count: int, context: int = 1000) -> list[float]:
    return [count, 0, count, count * context, count * context, 0, 0]


@LAW
@given(count=st.integers(1, 400), context=st.integers(1, 8000), share=st.floats(0.3, 3.0))
def test_more_bandwidth_never_slows_decoding(count: int, context: int, share: float) -> None:
    """A GPU that reads faster never takes longer for the same decode step."""
    slow, fast = sorted((1000 * share, 3350.0))

    one = step_time(model(), node(bandwidth_gb_s=slow), decodes(count, context))
    two = step_time(model(), node(bandwidth_gb_s=fast), decodes(count, context))

    assert two <= one


@LAW
@given(count=st.integers(1, 500), context=st.integers(1, 8000))
def test_longer_context_and_larger_batches_take_longer(count: int, context: int) -> None:
    """A decode step grows with the sequences and with what they attend to."""
    here = step_time(model(), node(), decodes(count, context))

    assert step_time(model(), node(), decodes(count, context + 64)) > here
    assert step_time(model(), node(), decodes(count + 16, context)) > here


@pytest.mark.parametrize("context", [4096, 16000])
def test_a_window_bounds_what_attention_reads(context: int) -> None:
    """Sliding layers cost no more than full ones, and less once the context exceeds the window."""
    batch = [64, 0, 64, 64 * context, 64 * 1024, 0, 0]

    full = step_time(model(), node(), batch)
    sliding = step_time(model(window=1024), node(), batch)

    assert sliding < full


def test_fewer_kv_heads_read_less() -> None:
    """Grouped-query attention reads no more than multi-head attention."""
    grouped = step_time(model(num_kv_heads=4), node(), decodes(128, 8000))

    assert grouped < step_time(model(num_kv_heads=32), node(), decodes(128, 8000))


def test_expert_reads_grow_with_the_tokens_until_all_are_touched() -> None:
    """One token touches its own experts, several touch what chance gives, many touch them all."""
    from service.tuning.simulation.kernel import step_shares

    spec, place = model(experts=64), node()
    config = config_for(spec, place)
    work = step_work(spec=spec, node=place, config=config, version=NEWEST)
    prices = price_array(work, PRIOR_COEFFICIENTS)
    reads = []
    for count in (1, 8, 64, 100_000):
        prices[PRICE_FIELDS.index("expert_token")] = 0.0
        shares = np.zeros(NUM_PRICES)
        step_shares(prices, np.array(decodes(count, 1), dtype=np.float64), shares)
        reads.append(shares[PRICE_FIELDS.index("expert_read")])

    assert reads[0] < reads[1] < reads[2] < reads[3]
    assert reads[3] == pytest.approx(prices[PRICE_FIELDS.index("expert_read")], rel=1e-6)
    assert reads[0] == pytest.approx(reads[3] * 2 / 64, rel=1e-6)
    assert reads[1] == pytest.approx(reads[3] * (1 - (1 - 2 / 64) ** 8), rel=1e-6)


def test_weights_are_read_once_per_step() -> None:
    """Twice the sequences at short context cost far less than twice the time."""
    one = step_time(model(), node(), decodes(8, 10))

    assert step_time(model(), node(), decodes(16, 10)) < 1.2 * one


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_tensor_parallelism_shortens_a_step_but_not_in_proportion(ranks: int) -> None:
    """More GPUs finish a large step sooner, and collectives keep them from perfect scaling."""
    batch = decodes(64, 4000)
    alone = step_time(model(), node(), batch)

    together = step_time(model(), node(), batch, tensor_parallel_size=ranks)

    assert alone / ranks < together < alone


def test_slow_links_make_collectives_dearer() -> None:
    """The same layout takes longer over PCIe than over NVLink."""
    batch = decodes(64, 1000)
    pcie = replace(node(), interconnect="pcie")

    fast = step_time(model(), node(), batch, tensor_parallel_size=4)

    assert step_time(model(), pcie, batch, tensor_parallel_size=4) > fast


def test_eager_mode_is_never_faster() -> None:
    """Without graphs the host launches every kernel, which small steps wait for."""
    eager = step_time(model(), node(), decodes(1), enforce_eager=True)

    assert eager > 1.5 * step_time(model(), node(), decodes(1))


@pytest.mark.parametrize("method", ["simulation", "closed_form"])
def test_more_clients_wait_longer_and_get_more_done(method: Method) -> None:
    """In a closed loop throughput and TPOT grow with the clients."""
    answers = [predict(model(), node(), loop(n), method=method) for n in (1, 8, 64)]

    assert [a.tpot_ms.mean for a in answers] == sorted(a.tpot_ms.mean for a in answers)
    rates = [a.output_tokens_per_s for a in answers]
    assert rates == sorted(rates)


@pytest.mark.parametrize("clients", [4, 16, 64])
@pytest.mark.parametrize(("prompt", "output"), [(500, 500), (2000, 300)])
def test_the_closed_form_agrees_with_the_simulation(clients: int, prompt: int, output: int) -> None:
    """For varied lengths and ten waves both tell the same means within a fifth."""
    from api_schemas.workload import UniformLength

    load = Workload(
        prompt_tokens=UniformLength(low=int(0.8 * prompt), high=prompt),
        output_tokens=UniformLength(low=int(0.8 * output), high=output),
        arrivals=ClosedLoop(max_concurrency=clients),
    )

    simulated = predict(model(), node(), load)
    closed = predict(model(), node(), load, method="closed_form")

    assert closed.tpot_ms.mean == pytest.approx(simulated.tpot_ms.mean, rel=0.1)
    assert closed.output_tokens_per_s == pytest.approx(simulated.output_tokens_per_s, rel=0.15)
    assert closed.ttft_ms.p50 == pytest.approx(simulated.ttft_ms.p50, rel=0.35)


@pytest.mark.parametrize("method", ["simulation", "closed_form"])
def test_an_open_loop_serves_what_is_offered_until_it_saturates(method: Method) -> None:
    """Below capacity the rate is the offered one; far above it the answer says saturated."""
    calm = Workload(
        prompt_tokens=500, output_tokens=100, arrivals=PoissonArrivals(requests_per_s=2.0)
    )
    flood = replace(calm, arrivals=PoissonArrivals(requests_per_s=2000.0))

    served = predict(model(), node(), calm, method=method)
    drowned = predict(model(), node(), flood, method=method)

    assert served.requests_per_s == pytest.approx(2.0, rel=0.05)
    assert not served.saturated
    assert drowned.saturated
    assert drowned.ttft_ms.p50 > 5 * served.ttft_ms.p50


def test_percentiles_are_in_order_and_bands_hold_their_prediction() -> None:
    """p50 to p99 never fall, and each band contains the figure it is for."""
    answer = predict(model(), node(), loop(48))

    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"):
        summary = getattr(answer, name)
        assert summary.p50 <= summary.p90 <= summary.p95 <= summary.p99
        for statistic in ("mean", "p50", "p90", "p95", "p99"):
            low, high = answer.band[f"{name}_{statistic}"]
            assert low <= getattr(summary, statistic) <= high
    low, high = answer.band["output_tokens_per_s"]
    assert low <= answer.output_tokens_per_s <= high


def test_the_same_question_gets_the_same_answer() -> None:
    """Two predictions of one configuration are equal."""
    assert predict(model(), node(), loop(32)) == predict(model(), node(), loop(32))


def test_data_parallel_engines_share_the_load() -> None:
    """Two engines of half the load each get about twice the throughput of one."""
    one = predict(model(), node(), loop(32))

    two = predict(model(), node(), loop(64), data_parallel_size=2)

    assert two.output_tokens_per_s == pytest.approx(2 * one.output_tokens_per_s, rel=0.05)


def test_a_single_burst_ends_with_its_longest_wait() -> None:
    """All requests of a batch are served, and the last waits longer than the first."""
    burst = Workload(prompt_tokens=1000, output_tokens=50, arrivals=BatchArrivals(num_requests=200))

    answer = predict(model(), node(), burst)

    assert answer.ttft_ms.p99 > 3 * answer.ttft_ms.p50 / 2
    assert answer.running_requests > 1


@pytest.mark.parametrize("version", ["0.6.3", "0.8.5", "0.11.0", "0.19.0", "0.33.0"])
def test_every_era_is_answered(version: EngineVersion) -> None:
    """Old and new releases have a prediction with finite figures."""
    answer = predict(model(), node(), loop(8), version=parse_version(version))

    assert 0 < answer.tpot_ms.p50 < 1000
    assert 0 < answer.ttft_ms.p50 < 60_000
    assert NUM_BATCH == 7
