"""The nearest change is one that works when it is asked for."""

import msgspec
import pytest

from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import Advice, Constraints, Nearest, TargetEngine, TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import (
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    LognormalLength,
    PoissonArrivals,
    Workload,
)
from service.tuning.recommend import recommend

TIGHT = Slo(
    targets=[
        LatencyTarget(metric="ttft", percentile=95, limit_ms=500),
        LatencyTarget(metric="tpot", percentile=95, limit_ms=20),
    ]
)


def chat(requests_per_s: float) -> Workload:
    """Return a chat load of so many requests a second."""
    return Workload(preset="chat", arrivals=PoissonArrivals(requests_per_s=requests_per_s))


def asked(model: str, gpu: str, count: int = 1, **changes: object) -> TuningRequest:
    """Return the request for this model and hardware."""
    hardware = Hardware(gpu=gpu, gpus_per_node=count)
    fields = {"model": ModelRef(id=model), "hardware": hardware, **changes}
    return TuningRequest(**fields)  # type: ignore[arg-type]


def followed(request: TuningRequest, nearest: Nearest) -> Advice:
    """Return the answer to the request with the nearest change made."""
    changed = msgspec.structs.replace(
        request,
        hardware=nearest.hardware or request.hardware,
        slo=nearest.slo or request.slo,
        workload=nearest.workload or request.workload,
        constraints=nearest.constraints or request.constraints,
        engine=nearest.engine or request.engine,
    )
    # What is offered must pass the schema of a request as well.
    return recommend(msgspec.json.decode(msgspec.json.encode(changed), type=TuningRequest))


CASES = (
    asked("nvidia/DeepSeek-R1-NVFP4", "A100-SXM4-40GB", 8, workload=chat(5), slo=TIGHT),
    asked("tiiuae/falcon-180B", "A10G", 4, workload=chat(5), slo=TIGHT),
    asked(
        "tiiuae/falcon-180B",
        "A100-SXM4-40GB",
        8,
        workload=Workload(preset="chat", arrivals=ClosedLoop(max_concurrency=64)),
        slo=TIGHT,
    ),
    asked("Qwen/Qwen3-8B", "L4", workload=chat(200), slo=TIGHT),
    asked("Qwen/Qwen3-8B", "H100-SXM5-80GB", workload=chat(1e6)),
    asked(
        "deepseek-ai/DeepSeek-V3",
        "RTX-3090",
        2,
        constraints=Constraints(pin=EngineConfig(tensor_parallel_size=2)),
    ),
    asked(
        "openai/gpt-oss-20b",
        "H100-SXM5-80GB",
        8,
        objective="cost",
        workload=Workload(preset="code_completion", arrivals=BatchArrivals(num_requests=20_000)),
    ),
    asked(
        "Qwen/Qwen3-8B",
        "V100-SXM2-32GB",
        constraints=Constraints(pin=EngineConfig(kv_cache_dtype="fp8")),
    ),
    asked(
        "Qwen/Qwen3-32B",
        "A100-SXM4-80GB",
        4,
        constraints=Constraints(
            pin=EngineConfig(data_parallel_size=2, tensor_parallel_size=4),
        ),
    ),
)


@pytest.mark.parametrize("request_", CASES, ids=lambda r: f"{r.model.id} on {r.hardware.gpu}")
def test_the_nearest_change_is_feasible_when_asked_for(request_: TuningRequest) -> None:
    """Memory, rules, load and limits all hold once the offered change is made."""
    advice = recommend(request_)

    assert not advice.feasible
    assert advice.nearest is not None
    assert followed(request_, advice.nearest).feasible, advice.nearest.change


def test_no_absurd_number_of_gpus_is_offered() -> None:
    """A million requests a second are no matter of more GPUs: what one node carries is said."""
    nearest = recommend(asked("Qwen/Qwen3-8B", "H100-SXM5-80GB", workload=chat(1e6))).nearest

    assert nearest is not None
    assert nearest.hardware is None
    assert "No sensible amount" in nearest.detail
    assert "one node of 1 x H100-SXM5-80GB carries" in nearest.detail


def test_a_pin_that_goes_is_named_and_one_that_holds_stays() -> None:
    """The offer keeps a pinned width where it holds; else it says which pin goes."""
    kept = recommend(CASES[5]).nearest
    gone = recommend(CASES[8]).nearest

    assert kept is not None
    assert kept.config is not None
    assert kept.config.tensor_parallel_size == 2
    assert kept.constraints is None
    assert gone is not None
    assert gone.constraints is not None
    assert "without the pinned tensor_parallel_size" in gone.change


def test_a_layout_larger_than_the_node_is_called_that() -> None:
    """Two times four GPUs on four are too many; that vLLM accepts no layout would be false."""
    binding = recommend(CASES[8]).binding

    assert binding is not None
    assert "takes 8 GPUs, but there are 4" in binding.detail


def test_a_load_below_the_floor_is_not_blamed_on_the_hardware() -> None:
    """Five requests a second bring no 3000 tokens a second, however fast the hardware is."""
    request = asked(
        "Qwen/Qwen3-8B",
        "H100-SXM5-80GB",
        workload=chat(5),
        slo=Slo(targets=[], min_output_tokens_per_s=3000),
    )

    advice = recommend(request)

    assert advice.binding is not None
    assert "the stated load does not bring more" in advice.binding.detail
    assert advice.nearest is not None
    assert "hardware does not reach" not in advice.nearest.detail
    assert "Bring more load" in advice.nearest.detail


def old_release(**changes: object) -> TuningRequest:
    """Return a request for a release that lacks the model's code, on GPUs that lack the memory."""
    request = TuningRequest(
        model=ModelRef(id="Qwen/Qwen3.5-35B-A3B"),
        hardware=Hardware(gpu="A10G", gpus_per_node=2),
        engine=TargetEngine(version="0.13.0"),
    )
    return msgspec.structs.replace(request, **changes)


def test_a_newer_release_is_offered_with_all_else_that_it_needs() -> None:
    """What serves the model is a release that has its code, and GPUs that hold its weights."""
    nearest = recommend(old_release()).nearest

    assert nearest is not None
    assert nearest.engine == TargetEngine(version="0.17.0")
    assert nearest.hardware is not None
    assert nearest.change.startswith("vLLM 0.17.0 instead of 0.13.0 and 4 x A10G")
    assert followed(old_release(), nearest).feasible


def test_a_pin_that_the_newer_release_lacks_is_let_go_with_it() -> None:
    """The release alone would be refused for the pin: the offer names both."""
    request = TuningRequest(
        model=ModelRef(id="google/gemma-4-31B-it"),
        hardware=Hardware(gpu="H100-SXM5-80GB"),
        engine=TargetEngine(version="0.13.0"),
        constraints=Constraints(pin=EngineConfig(swap_space=4.0)),
    )

    nearest = recommend(request).nearest

    assert nearest is not None
    assert nearest.engine == TargetEngine(version="0.19.0")
    assert "without the pinned swap_space" in nearest.change
    assert followed(request, nearest).feasible


def test_a_floor_that_is_missed_is_told_in_the_figures_that_were_asked_for() -> None:
    """Four copies serve a quarter each; the floor is on what they do together."""
    request_ = TuningRequest(
        model=ModelRef(id="Qwen/Qwen2.5-Coder-14B-Instruct-AWQ"),
        hardware=Hardware(gpu="RTX-3090", gpus_per_node=4),
        workload=Workload(
            prompt_tokens=500, output_tokens=50, arrivals=PoissonArrivals(requests_per_s=0.1)
        ),
        slo=Slo(min_output_tokens_per_s=40),
    )

    advice = recommend(request_)

    assert advice.binding is not None
    assert advice.replicas.count > 1
    assert "output_tokens_per_s is predicted at 5" in advice.binding.detail
    assert "the limit is 40." in advice.binding.detail


def test_a_pinned_share_that_is_too_small_is_let_go_before_gpus_are_bought() -> None:
    """A share costs nothing to change; three more GPUs do."""
    pin = EngineConfig(gpu_memory_utilization=0.2)
    request = asked("Qwen/Qwen3-8B", "L40S", constraints=Constraints(pin=pin))
    advice = recommend(request)

    assert advice.nearest is not None
    assert advice.nearest.hardware is None
    assert advice.nearest.change == "without the pinned gpu_memory_utilization 0.2"
    assert followed(request, advice.nearest).feasible


def test_pins_that_leave_nothing_to_offer_are_let_go_of() -> None:
    """A step that needs more memory than any GPU has is pinned: without it there is a way."""
    pin = EngineConfig(max_num_batched_tokens=100_000_000)
    request = asked("Qwen/Qwen3-8B", "L40S", constraints=Constraints(pin=pin))
    advice = recommend(request)

    assert advice.nearest is not None
    assert "max_num_batched_tokens" in advice.nearest.change
    assert followed(request, advice.nearest).feasible


def test_bursts_that_break_the_limits_relax_them() -> None:
    """A load that fits on average and not in its bursts is offered the limits that they need."""
    load = Workload(preset="chat", arrivals=GammaArrivals(requests_per_s=5, burstiness=0.01))
    request = asked("Qwen/Qwen3-8B", "L40S", workload=load)
    advice = recommend(request)

    assert advice.nearest is not None
    assert "relax ttft p95" in advice.nearest.change
    assert followed(request, advice.nearest).feasible


def test_an_offer_never_says_that_it_carries_less_than_it_offers() -> None:
    """What the simulation sees carried is the least that the sentence speaks of."""
    limits = [
        LatencyTarget(metric="ttft", percentile=99, limit_ms=86.9),
        LatencyTarget(metric="e2el", percentile=99, limit_ms=64.3),
    ]
    load = Workload(
        prompt_tokens=8000,
        output_tokens=LognormalLength(mean=1119, p99=8340),
        arrivals=PoissonArrivals(requests_per_s=1.2),
    )
    request = asked("Qwen/Qwen3-8B", "L40S", workload=load, slo=Slo(targets=limits))
    advice = recommend(request)

    assert advice.nearest is not None
    assert "e-0" not in advice.nearest.detail
    assert followed(request, advice.nearest).feasible


def test_a_lower_floor_keeps_the_load_that_was_asked_for() -> None:
    """Where a floor says how much load there is, relaxing it does not take load away."""
    load = Workload(
        prompt_tokens=LognormalLength(mean=1675, p99=5084),
        output_tokens=LognormalLength(mean=20_000, p99=60_000),
    )
    slo = Slo(targets=[], min_output_tokens_per_s=50)
    request = asked(
        "RedHatAI/Qwen2.5-72B-Instruct-quantized.w4a16", "H200-SXM-141GB", 3, workload=load, slo=slo
    )
    advice = recommend(request)

    assert advice.nearest is not None
    assert "still cannot" not in advice.nearest.detail
    assert followed(request, advice.nearest).feasible


def test_what_hardware_cannot_mend_is_part_of_the_way() -> None:
    """The model is too large for the GPUs, and ends long before the requests do: both are said."""
    request = asked(
        "tiiuae/falcon-40b-instruct",
        "A100-SXM4-40GB",
        workload=Workload(preset="reasoning"),
    )

    nearest = recommend(request).nearest

    assert nearest is not None
    assert nearest.hardware is not None
    assert "keep prompt and answer within 2048 tokens" in nearest.change
    assert "still cannot be met" not in nearest.detail


def test_a_lower_load_lowers_the_floors_that_it_cannot_reach() -> None:
    """Two thousand tokens a second are more than the load that is left brings."""
    request = asked(
        "Qwen/Qwen2.5-VL-72B-Instruct",
        "RTX-A6000",
        4,
        workload=chat(100),
        slo=Slo(
            targets=[LatencyTarget(metric="itl", percentile=99, limit_ms=5)],
            min_output_tokens_per_s=2000,
        ),
        constraints=Constraints(pin=EngineConfig(gpu_memory_utilization=0.5)),
        objective="cost",
    )

    nearest = recommend(request).nearest

    assert nearest is not None
    assert "min_output_tokens_per_s" in nearest.change
    assert followed(request, nearest).feasible
