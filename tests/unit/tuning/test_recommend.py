"""The advice as a whole, on real models and hardware."""

import math
from pathlib import Path

import msgspec
import pytest

from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import EstimateRequest
from api_schemas.hardware import Hardware
from api_schemas.model import Lora, ModelRef, Speculative
from api_schemas.recommendation import Advice, Constraints, TargetEngine, TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import (
    ClosedLoop,
    GammaArrivals,
    LognormalLength,
    PoissonArrivals,
    Users,
    Workload,
)
from service.tuning.errors import InvalidRequest, UnknownGpu, UnknownModel
from service.tuning.estimate import estimate
from service.tuning.recommend import recommend

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "requests").glob("*.json"))
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"


def request(**changes: object) -> TuningRequest:
    """Return a request for Llama 8B chat on one H100 with some fields changed."""
    fields: dict[str, object] = {
        "model": ModelRef(id=LLAMA_8B),
        "hardware": Hardware(gpu="H100-SXM5-80GB", gpus_per_node=1),
        "workload": Workload(preset="chat", arrivals=PoissonArrivals(requests_per_s=4)),
    }
    return TuningRequest(**(fields | changes))  # type: ignore[arg-type]


def advise(**changes: object) -> Advice:
    """Return the advice for such a request."""
    return recommend(request(**changes))


def p95(metric: str, limit_ms: float) -> LatencyTarget:
    """Return a limit at the 95th percentile."""
    return LatencyTarget(metric=metric, percentile=95, limit_ms=limit_ms)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_request_is_answered(path: Path) -> None:
    """Each example is valid, and its answer explains every setting that it emits."""
    asked = msgspec.json.decode(path.read_bytes(), type=TuningRequest)

    advice = recommend(asked)

    explained = {decision.setting for decision in advice.decisions}
    settings = advice.config.__struct_fields__
    emitted = {name for name in settings if getattr(advice.config, name) is not None}
    assert emitted <= explained
    assert advice.feasible is not path.stem.endswith("infeasible")
    assert advice.headline.endswith(".")


def test_there_are_at_least_ten_examples() -> None:
    """Examples cover ten situations or more."""
    assert len(EXAMPLES) >= 10


def test_chat_target_of_the_guide_is_met_on_one_gpu() -> None:
    """Llama 8B, 200 ms to the first token, 50 ms per token: one GPU, 0.90 to 0.95, a real cap."""
    slo = Slo(targets=[p95("ttft", 200), p95("tpot", 50)])

    advice = advise(slo=slo)

    assert advice.feasible
    assert advice.config.tensor_parallel_size == 1
    assert advice.config.gpu_memory_utilization == pytest.approx(0.92)
    assert 64 <= (advice.config.max_num_seqs or 0) <= 512
    assert all(outcome.margin >= 0 for outcome in advice.estimate.slo)


def test_business_peak_gives_a_fifth_more_length() -> None:
    """A stated peak of 8000 tokens gives max_model_len 9600."""
    workload = Workload(
        preset="chat", max_request_tokens=8000, arrivals=PoissonArrivals(requests_per_s=4)
    )

    advice = advise(workload=workload)

    assert advice.config.max_model_len == 9600


def test_qwen_on_four_gpus_serves_long_context() -> None:
    """Qwen2.5-32B over four A100 takes its full length, few sequences, no eager mode."""
    advice = advise(
        model=ModelRef(id="Qwen/Qwen2.5-32B-Instruct"),
        hardware=Hardware(gpu="A100-SXM4-80GB", gpus_per_node=4),
        workload=Workload(
            preset="long_context", max_request_tokens=32_768, arrivals=ClosedLoop(max_concurrency=8)
        ),
        constraints=Constraints(pin=EngineConfig(tensor_parallel_size=4)),
    )

    assert advice.config.max_model_len == 32_768
    assert (advice.config.max_num_seqs or 0) <= 64
    assert advice.config.enforce_eager is None
    assert advice.config.block_size is None


def test_small_models_run_in_copies_for_throughput() -> None:
    """On eight GPUs an 8B model is copied rather than cut, and the reason says so."""
    advice = advise(
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=8), objective="throughput"
    )

    reason = next(d.reason for d in advice.decisions if d.setting == "tensor_parallel_size")
    assert (advice.config.tensor_parallel_size or 0) * advice.replicas.count == 8
    assert advice.replicas.count >= 4
    assert "copies" in reason


def test_fewest_gpus_for_cost() -> None:
    """For cost a light load gets as few GPUs as carry it, and a price becomes a cost."""
    advice = advise(
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=8, price_per_gpu_hour=2.0),
        objective="cost",
    )

    assert advice.feasible
    assert advice.replicas.gpus == 1
    assert advice.cost is not None
    assert advice.cost.per_hour == pytest.approx(2.0)
    assert advice.cost.per_million_output_tokens is not None


def test_latency_prefers_a_wide_copy() -> None:
    """For latency the same GPUs answer one request together."""
    hardware = Hardware(gpu="H100-SXM5-80GB", gpus_per_node=4)

    fast = advise(hardware=hardware, objective="latency")
    plenty = advise(hardware=hardware, objective="throughput")

    assert (fast.config.tensor_parallel_size or 0) > (plenty.config.tensor_parallel_size or 0)


def test_a_model_that_does_not_fit_gets_a_way_out() -> None:
    """70B in 16 bit on one L4 is an answer with the binding constraint and what would fit."""
    advice = advise(model=ModelRef(id=LLAMA_70B), hardware=Hardware(gpu="L4", gpus_per_node=1))

    assert not advice.feasible
    assert not advice.estimate.fits
    assert advice.binding is not None
    assert advice.binding.constraint == "weights"
    assert advice.nearest is not None
    assert advice.nearest.hardware is not None
    assert [file.path for file in advice.files] == ["DECISION.md"]
    assert "vllm serve" not in advice.files[0].content
    again = advise(model=ModelRef(id=LLAMA_70B), hardware=advice.nearest.hardware, slo=Slo())
    assert again.estimate.fits


def test_a_limit_out_of_reach_is_answered_with_one_within() -> None:
    """1 ms to the first token cannot be; the relaxed limits in the answer can."""
    advice = advise(slo=Slo(targets=[p95("ttft", 1)]))

    assert not advice.feasible
    assert advice.nearest is not None
    assert advice.nearest.slo is not None
    assert advise(slo=advice.nearest.slo).feasible


def test_too_much_load_is_answered_with_more_gpus() -> None:
    """A load beyond one GPU names the binding load and hardware that carries it."""
    workload = Workload(preset="chat", arrivals=PoissonArrivals(requests_per_s=100))

    advice = advise(workload=workload)

    assert not advice.feasible
    assert advice.nearest is not None
    assert advice.nearest.hardware is not None
    gpus = (advice.nearest.hardware.gpus_per_node or 1) * advice.nearest.hardware.nodes
    assert gpus > 1


def test_pinned_settings_stay_and_are_explained() -> None:
    """What the caller fixes is emitted as it is, with a decision that says so."""
    pin = EngineConfig(max_num_seqs=64, stream_interval=4)

    advice = advise(constraints=Constraints(pin=pin))

    reasons = {decision.setting: decision.reason for decision in advice.decisions}
    assert advice.config.max_num_seqs == 64
    assert advice.config.stream_interval == 4
    assert "Fixed by the request" in reasons["max_num_seqs"]
    assert "Fixed by the request" in reasons["stream_interval"]


def test_a_pinned_setting_the_release_lacks_is_refused_with_its_successor() -> None:
    """Pinning swap_space on 0.33.0 names the field and what replaced it."""
    with pytest.raises(InvalidRequest) as refused:
        advise(constraints=Constraints(pin=EngineConfig(swap_space=4)))

    assert refused.value.pointer == "/constraints/pin/swap_space"
    assert "kv_offloading_size" in refused.value.message


def test_an_old_release_keeps_graphs_outside_the_share() -> None:
    """On 0.19 the share stays at its default of 0.9, since graphs come on top."""
    advice = advise(engine=TargetEngine(version="0.19.0"))

    assert advice.config.gpu_memory_utilization == pytest.approx(0.90)


def test_an_eight_bit_cache_needs_permission_and_a_gain() -> None:
    """Light load keeps 16 bit; where the cache binds, 8 bit comes, unless it is forbidden."""
    workload = Workload(preset="long_context", arrivals=ClosedLoop(max_concurrency=64))

    light = advise()
    bound = advise(workload=workload, objective="throughput")
    forbidden = advise(
        workload=workload,
        objective="throughput",
        constraints=Constraints(allow_fp8_kv_cache=False),
    )

    assert light.config.kv_cache_dtype is None
    assert bound.config.kv_cache_dtype == "fp8"
    assert forbidden.config.kv_cache_dtype is None


def test_no_eight_bit_cache_on_a_gpu_that_may_not_run_it() -> None:
    """On A100 it depends on an optional backend, so it is not proposed."""
    advice = advise(
        hardware=Hardware(gpu="A100-SXM4-80GB", gpus_per_node=1),
        workload=Workload(preset="long_context", arrivals=ClosedLoop(max_concurrency=64)),
        objective="throughput",
    )

    assert advice.config.kv_cache_dtype is None


def test_a_desktop_gpu_leaves_room_for_the_desktop() -> None:
    """2.5 GiB held by a desktop lower the share so that vLLM still starts."""
    advice = advise(
        model=ModelRef(id="Qwen/Qwen2.5-7B-Instruct-AWQ"),
        hardware=Hardware(gpu="RTX-4090", gpus_per_node=1, used_memory_gib=2.5),
        slo=Slo(),
    )

    memory = advice.estimate.memory
    assert advice.feasible
    assert memory is not None
    assert memory.requested_gib <= memory.total_gib - 2.5
    assert not advice.baseline.fits


def test_a_gpu_without_bfloat16_gets_float16() -> None:
    """A T4 runs a bfloat16 checkpoint in float16, and the setting is explained."""
    advice = advise(
        model=ModelRef(id="Qwen/Qwen2.5-1.5B-Instruct"),
        hardware=Hardware(gpu="T4", gpus_per_node=1),
        slo=Slo(),
    )

    assert advice.config.dtype == "float16"
    assert any(decision.setting == "dtype" for decision in advice.decisions)


def test_adapters_are_switched_on() -> None:
    """A request that names adapters gets their settings, with a rank that vLLM accepts."""
    advice = advise(model=ModelRef(id=LLAMA_8B, lora=Lora(max_rank=24, max_adapters=4)))

    assert advice.config.enable_lora is True
    assert advice.config.max_loras == 4
    assert advice.config.max_lora_rank == 32


def test_common_advice_that_would_overflow_is_answered() -> None:
    """Where the cache holds fewer than 256 requests, a note says why 256 would preempt."""
    advice = advise(
        workload=Workload(preset="long_context", arrivals=ClosedLoop(max_concurrency=8)),
        slo=Slo(),
    )

    assert any(finding.rule == "GUI001" for finding in advice.findings)


def test_people_become_a_rate_that_the_answer_spells_out() -> None:
    """A portal may ask by users; the understood request shows the rate and the habits."""
    advice = advise(workload=Workload(preset="chat", arrivals=Users(users=600)))

    arrivals = advice.request.workload.arrivals
    assert isinstance(arrivals, PoissonArrivals)
    assert arrivals.requests_per_s == pytest.approx(600 * 0.2 * 0.4 / 60 * 2)
    assert any("600 users" in sentence for sentence in advice.request.assumptions)


def test_same_request_same_bytes() -> None:
    """Two answers to one request are equal byte for byte."""
    first, second = msgspec.json.encode(advise()), msgspec.json.encode(advise())

    assert first == second


def test_the_answer_agrees_with_the_what_if() -> None:
    """Estimating the recommended settings gives the recommendation's own figures."""
    asked = request()
    advice = recommend(asked)

    again = estimate(
        EstimateRequest(
            model=asked.model,
            hardware=asked.hardware,
            engine=Engine(version=advice.request.engine.version, config=advice.config),
            workload=advice.request.workload,
            slo=advice.request.slo,
        )
    )

    assert again.fits
    assert again.memory == advice.estimate.memory
    assert again.performance == advice.estimate.performance


def test_files_hold_the_settings() -> None:
    """The rendered command carries what the answer recommends."""
    advice = advise()

    script = next(file for file in advice.files if file.path == "serve.sh")
    assert f"--max-num-seqs {advice.config.max_num_seqs}" in " ".join(script.content.split())
    assert advice.watch


def test_what_is_unknown_is_refused() -> None:
    """Unknown models and GPUs are errors of the request, not answers."""
    with pytest.raises(UnknownModel):
        advise(model=ModelRef(id="nobody/knows-this-model"))
    with pytest.raises(UnknownGpu):
        advise(hardware=Hardware(gpu="no-such-gpu"))


def test_a_layout_that_no_gpu_count_allows_is_answered() -> None:
    """Pinning a tensor-parallel size that the heads do not divide is infeasible, with a reason."""
    advice = advise(
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=8),
        constraints=Constraints(pin=EngineConfig(tensor_parallel_size=5)),
    )

    assert not advice.feasible
    assert advice.binding is not None
    assert advice.binding.constraint == "tensor_parallel_size"


def test_predictions_are_finite() -> None:
    """No figure of an answer is infinite or not a number."""
    performance = advise().estimate.performance

    assert performance is not None
    assert math.isfinite(performance.e2el_ms.p99)


def test_without_a_stated_load_the_machine_is_asked_what_it_carries() -> None:
    """A request without arrivals gets a load that suits the hardware, and is told so."""
    small = advise(workload=Workload(preset="chat"), hardware=Hardware(gpu="L4"))
    large = advise(workload=Workload(preset="chat"))

    rates = [answer.request.workload.arrivals for answer in (small, large)]
    assert isinstance(rates[0], PoissonArrivals)
    assert isinstance(rates[1], PoissonArrivals)
    assert rates[0].requests_per_s < rates[1].requests_per_s
    assert any("No load was stated" in sentence for sentence in large.request.assumptions)
    assert large.feasible


def test_requests_longer_than_the_model_are_answered() -> None:
    """A typical request beyond the model's length is infeasible, bound by max_model_len."""
    workload = Workload(
        prompt_tokens=200_000, output_tokens=100, arrivals=ClosedLoop(max_concurrency=1)
    )

    advice = advise(workload=workload)

    assert not advice.feasible
    assert advice.binding is not None
    assert advice.binding.constraint == "max_model_len"


def test_a_floor_of_throughput_out_of_reach_is_relaxed_alone() -> None:
    """Wanting more requests per second than arrive is answered with the rate that is served."""
    advice = advise(slo=Slo(min_requests_per_s=50))

    assert not advice.feasible
    assert advice.nearest is not None
    assert advice.nearest.slo is not None
    assert (advice.nearest.slo.min_requests_per_s or 0) < 5


def test_a_price_ceiling_is_judged() -> None:
    """Tokens dearer than the ceiling make the answer infeasible, with the figure."""
    advice = advise(
        hardware=Hardware(gpu="H100-SXM5-80GB", price_per_gpu_hour=4.0),
        slo=Slo(max_cost_per_million_output_tokens=0.01),
    )

    assert not advice.feasible
    assert advice.binding is not None
    assert advice.binding.constraint == "max_cost_per_million_output_tokens"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("tensor_parallel_size", 0), ("max_num_seqs", -1), ("gpu_memory_utilization", 1.5)],
)
def test_a_pinned_value_that_no_release_takes_is_refused(setting: str, value: float) -> None:
    """Senseless pins are mistakes of the request, named by their pointer."""
    pin = EngineConfig(**{setting: value})  # type: ignore[arg-type]

    with pytest.raises(InvalidRequest) as refused:
        advise(constraints=Constraints(pin=pin))

    assert refused.value.pointer == f"/constraints/pin/{setting}"


def test_harsh_measures_need_permission() -> None:
    """A 16-bit 8B model on 16 GB fits only when quantising at load is allowed."""
    hardware = Hardware(gpu="RTX-4080")
    allowed = Constraints(allow_online_quantization=True)

    without = advise(hardware=hardware, slo=Slo())
    with_it = advise(hardware=hardware, slo=Slo(), constraints=allowed)

    assert not without.estimate.fits
    assert with_it.estimate.fits
    assert with_it.config.quantization == "fp8"
    assert with_it.config.enforce_eager is None


def test_usual_limits_give_way_on_slow_hardware_and_stated_ones_do_not() -> None:
    """A preset's limits widen where they leave no load; limits that were stated are kept."""
    hardware = Hardware(gpu="RTX-3090", gpus_per_node=2)
    stated = Slo(targets=[p95("ttft", 500), p95("tpot", 50)])

    usual = advise(hardware=hardware, workload=Workload(preset="chat"))
    kept = advise(hardware=hardware, workload=Workload(preset="chat"), slo=stated)

    assert usual.request.slo.targets[0].limit_ms > 500
    assert any("usual limits" in sentence for sentence in usual.request.assumptions)
    assert kept.request.slo.targets == stated.targets


@pytest.mark.parametrize("objective", ["balanced", "latency", "throughput", "cost"])
def test_the_capacity_in_the_headline_holds_by_simulation(objective: str) -> None:
    """Asking again at nine tenths of the stated capacity is feasible."""
    advice = advise(objective=objective)
    words = advice.headline.split("up to about ")[1]
    capacity = float(words.split(" ")[0].replace(",", ""))

    again = advise(
        objective=objective,
        workload=Workload(preset="chat", arrivals=PoissonArrivals(requests_per_s=0.9 * capacity)),
    )

    assert again.feasible


def test_hardware_is_understood_by_part_and_count() -> None:
    """An instance name becomes the part and its number of GPUs in the understood request."""
    advice = advise(hardware=Hardware(gpu="p5.48xlarge"))

    assert advice.request.hardware.gpu == "H100-SXM5-80GB"
    assert advice.request.hardware.gpus_per_node == 8


def test_what_is_nearest_can_be_asked_for() -> None:
    """More GPUs than an instance has are offered as GPUs, so that the request can be sent again."""
    advice = advise(
        model=ModelRef(id="deepseek-ai/DeepSeek-R1"),
        hardware=Hardware(gpu="p5.48xlarge"),
        slo=Slo(),
    )

    assert advice.nearest is not None
    assert advice.nearest.hardware is not None
    again = advise(
        model=ModelRef(id="deepseek-ai/DeepSeek-R1"),
        hardware=advice.nearest.hardware,
        slo=Slo(),
    )
    assert again.estimate.fits


def test_an_aggressive_posture_takes_more() -> None:
    """The aggressive posture takes a larger share and admits at least as many requests."""
    calm = advise(workload=Workload(preset="batch"))
    bold = advise(workload=Workload(preset="batch"), posture="aggressive")

    assert bold.config.gpu_memory_utilization == pytest.approx(0.95)
    assert (bold.config.max_num_seqs or 0) >= (calm.config.max_num_seqs or 0)


def test_a_pinned_length_below_the_load_is_named() -> None:
    """Pinning fewer tokens than a typical request has is infeasible, not an error."""
    advice = advise(
        workload=Workload(
            prompt_tokens=4000, output_tokens=100, arrivals=ClosedLoop(max_concurrency=1)
        ),
        constraints=Constraints(pin=EngineConfig(max_model_len=512)),
    )

    assert not advice.feasible
    assert advice.binding is not None
    assert "pinned length" in advice.binding.detail
    assert advice.estimate.performance is None


def test_a_pinned_layout_of_its_own_is_searched_around() -> None:
    """Ranks that only a pin asks for are a layout too; the rest is chosen around them."""
    advice = advise(
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=4),
        constraints=Constraints(pin=EngineConfig(data_parallel_size=2)),
    )

    assert advice.config.data_parallel_size == 2
    assert advice.estimate.fits
    assert advice.replicas.gpus <= 4


def test_letting_go_of_a_pinned_layout_is_offered() -> None:
    """Where a pinned size divides nothing, the nearest way is a size that does."""
    advice = advise(
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=8),
        constraints=Constraints(pin=EngineConfig(tensor_parallel_size=5)),
    )

    assert advice.nearest is not None
    assert advice.nearest.config is not None
    assert advice.nearest.config.tensor_parallel_size in {1, 2, 4, 8}


def test_copies_are_no_more_than_requests_in_flight() -> None:
    """One client keeps one copy busy, however many GPUs there are."""
    load = Workload(prompt_tokens=500, output_tokens=100, arrivals=ClosedLoop(max_concurrency=1))

    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-8B"),
            hardware=Hardware(gpu="L40S", gpus_per_node=4),
            workload=load,
            objective="throughput",
        )
    )

    assert advice.replicas.count == 1
    assert advice.all_copies.requests_per_s == advice.estimate.performance.requests_per_s


def test_a_release_without_the_models_code_decides_before_memory_does() -> None:
    """No hardware helps a release that cannot serve the model, so the release is named."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-Next-80B-A3B-Thinking"),
            hardware=Hardware(gpu="A10G"),
            engine=TargetEngine(version="0.10.0"),
        )
    )

    assert advice.binding is not None
    assert advice.binding.constraint == "model"
    assert advice.nearest is not None
    assert advice.nearest.engine == TargetEngine(version="0.10.2")
    assert advice.nearest.change.startswith("vLLM 0.10.2 instead of 0.10.0")
    assert advice.nearest.change in advice.headline


def test_a_pinned_layout_wider_than_the_hardware_is_offered_gpus() -> None:
    """Where nothing fits without the pin either, the GPUs that it takes come first."""
    request = TuningRequest(
        model=ModelRef(id="Qwen/Qwen3-Next-80B-A3B-Instruct-FP8"),
        hardware=Hardware(gpu="RTX-5090"),
        workload=Workload(preset="agent", arrivals=ClosedLoop(max_concurrency=1)),
        constraints=Constraints(pin=EngineConfig(tensor_parallel_size=4)),
    )
    advice = recommend(request)

    assert advice.nearest is not None
    assert advice.nearest.hardware is not None
    assert (advice.nearest.hardware.gpus_per_node or 0) >= 4


def test_releases_without_data_parallel_ranks_are_not_offered_them() -> None:
    """Before 0.8.3 `vllm serve` has no such setting; tensor parallelism carries the experts."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="deepseek-ai/DeepSeek-V3"),
            hardware=Hardware(gpu="H200-SXM-141GB", gpus_per_node=8),
            workload=Workload(preset="batch"),
            engine=TargetEngine(version="0.8.2"),
            objective="throughput",
        )
    )

    assert advice.feasible
    assert advice.config.data_parallel_size is None


def test_the_headline_says_nothing_per_token_of_answers_of_one() -> None:
    """Answers of one token have no time between tokens."""
    load = Workload(prompt_tokens=512, output_tokens=1, arrivals=ClosedLoop(max_concurrency=1))

    headline = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-8B"),
            hardware=Hardware(gpu="L40S"),
            workload=load,
            constraints=Constraints(pin=EngineConfig(max_num_seqs=1)),
        )
    ).headline

    assert "per token" not in headline
    assert "at most 1 request at once" in headline


def test_hardware_that_is_there_already_is_no_way_out() -> None:
    """An offer never names the GPUs of the request again."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-VL-4B-Instruct"),
            hardware=Hardware(gpu="A100-SXM4-80GB", gpus_per_node=8, nodes=4),
            workload=Workload(
                prompt_tokens=LognormalLength(mean=4941, p99=14915),
                output_tokens=120_000,
                arrivals=GammaArrivals(requests_per_s=0.013, burstiness=0.5),
                preset="chat",
            ),
            objective="cost",
            posture="aggressive",
            engine=TargetEngine(version="0.12.0"),
        )
    )

    assert advice.feasible or (advice.nearest is not None and advice.nearest.hardware is None)


def test_graphs_outside_the_share_leave_room_for_themselves() -> None:
    """Releases up to 0.9 capture large graphs beside the share: both fit on a small GPU."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-8B"),
            hardware=Hardware(gpu="RTX-4090"),
            engine=TargetEngine(version="0.9.2"),
        )
    )
    memory = advice.estimate.memory
    (share,) = [d for d in advice.decisions if d.setting == "gpu_memory_utilization"]

    assert advice.feasible
    assert memory is not None
    assert memory.requested_gib + memory.cuda_graphs_gib + 0.5 <= memory.total_gib
    assert "CAP008" not in {finding.rule for finding in advice.findings}
    assert "smaller than usual" in share.reason


def test_defaults_that_refuse_the_load_have_no_latency() -> None:
    """Left alone, vLLM serves this model at 4,096 tokens: the load's requests are all refused."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="microsoft/Phi-3.5-mini-instruct"),
            hardware=Hardware(gpu="RTX-A4000", gpus_per_node=2),
            workload=Workload(preset="agent", arrivals=Users(users=20)),
            engine=TargetEngine(version="0.17.0"),
        )
    )

    assert advice.baseline.memory is not None
    assert advice.baseline.memory.max_model_len == 4096
    assert advice.baseline.performance is None


def test_more_gpus_are_not_split_into_ranks_that_cannot_share_the_experts() -> None:
    """160 experts do not spread over 6 ranks, so another layout is taken."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="deepseek-ai/DeepSeek-Coder-V2-Instruct"),
            hardware=Hardware(gpu="B200", gpus_per_node=6),
        )
    )

    assert advice.feasible
    assert (advice.config.data_parallel_size or 1) in (1, 2, 4, 5)


def test_what_does_not_start_is_given_no_latency() -> None:
    """An answer that a rule refuses promises neither speed nor cost, nor others like it."""
    request = TuningRequest(
        model=ModelRef(
            id="meta-llama/Llama-3.1-8B-Instruct",
            speculative=Speculative(method="mtp", num_tokens=1),
        ),
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=2, price_per_gpu_hour=2.0),
    )

    advice = recommend(request)

    assert not advice.feasible
    assert not advice.estimate.fits
    assert advice.estimate.performance is None
    assert (advice.cost, advice.alternatives, advice.compared) == (None, [], [])
    assert advice.replicas.requests_per_s_each is None


def test_a_drafter_that_the_model_lacks_is_named_before_its_memory() -> None:
    """No GPU cures a missing drafter, so that more memory is no way out."""
    request = TuningRequest(
        model=ModelRef(
            id="mistralai/Mixtral-8x7B-Instruct-v0.1",
            speculative=Speculative(method="mtp", num_tokens=1),
        ),
        hardware=Hardware(gpu="RTX-4090"),
    )

    advice = recommend(request)

    assert advice.binding is not None
    assert advice.binding.constraint == "speculative_config"
    assert advice.nearest is not None
    assert "another method" in advice.nearest.change


def test_alternatives_start() -> None:
    """A layout that a rule refuses is no alternative, however few GPUs it takes."""
    request = TuningRequest(
        model=ModelRef(id="Qwen/Qwen3-Coder-Next-FP8"),
        hardware=Hardware(gpu="T4", gpus_per_node=8),
        workload=Workload(
            prompt_tokens=395, output_tokens=16, arrivals=PoissonArrivals(requests_per_s=0.2562)
        ),
        slo=Slo(targets=[LatencyTarget(metric="itl", percentile=50, limit_ms=9.8)]),
        objective="cost",
        constraints=Constraints(allow_fp8_kv_cache=False),
    )

    for other in recommend(request).alternatives:
        alone = estimate(
            EstimateRequest(
                model=request.model, hardware=request.hardware, engine=Engine(config=other.config)
            )
        )
        assert alone.fits, other.label
