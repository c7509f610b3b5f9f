"""Laws of the advice: what holds for every request."""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api_schemas.engine import Engine
from api_schemas.estimate import EstimateRequest
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import Advice, TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import (
    ClosedLoop,
    LognormalLength,
    PoissonArrivals,
    Preset,
    UniformLength,
    Workload,
)
from service.tuning.estimate import estimate
from service.tuning.recommend import recommend, understand
from service.tuning.search.baseline import baseline_of
from service.tuning.search.finder import assess_all, find_best, size_all
from service.tuning.search.problem import Problem
from service.tuning.search.ranking import merit, rank_key
from service.tuning.search.refining import refine
from service.tuning.search.trial import Trial

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct-AWQ",
    "Qwen/Qwen3-30B-A3B-FP8",
    "meta-llama/Llama-3.3-70B-Instruct",
)
GPUS = ("H100-SXM5-80GB", "A100-SXM4-80GB", "L40S", "L4", "RTX-4090")
FEW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

prompts = st.one_of(
    st.integers(16, 6000),
    st.builds(UniformLength, low=st.integers(10, 500), high=st.integers(501, 4000)),
    st.builds(
        lambda mean, ratio: LognormalLength(mean=mean, p99=mean * ratio),
        st.integers(100, 4000),
        st.floats(1.5, 8),
    ),
)
outputs = st.one_of(
    st.integers(1, 800),
    st.builds(
        lambda mean, ratio: LognormalLength(mean=mean, p99=mean * ratio),
        st.integers(20, 800),
        st.floats(1.5, 6),
    ),
)
arrivals = st.one_of(
    st.builds(PoissonArrivals, requests_per_s=st.floats(0.05, 20)),
    st.builds(ClosedLoop, max_concurrency=st.integers(1, 64)),
)
targets = st.lists(
    st.builds(
        LatencyTarget,
        metric=st.sampled_from(["ttft", "tpot", "e2el"]),
        percentile=st.sampled_from([50, 95, 99]),
        limit_ms=st.floats(10, 20_000),
    ),
    max_size=2,
)
requests = st.builds(
    TuningRequest,
    model=st.sampled_from(MODELS).map(lambda name: ModelRef(id=name)),
    hardware=st.builds(
        Hardware, gpu=st.sampled_from(GPUS), gpus_per_node=st.sampled_from([1, 2, 4])
    ),
    workload=st.builds(Workload, prompt_tokens=prompts, output_tokens=outputs, arrivals=arrivals),
    slo=st.builds(Slo, targets=targets),
    objective=st.sampled_from(["balanced", "latency", "throughput", "cost"]),
    posture=st.sampled_from(["production", "aggressive"]),
)


def changed(request: TuningRequest, **changes: object) -> TuningRequest:
    """Return the request with some fields changed."""
    return msgspec.structs.replace(request, **changes)


@FEW
@given(request=requests)
def test_what_is_feasible_starts_and_keeps_its_limits(request: TuningRequest) -> None:
    """A feasible answer fits by the what-if, and every limit is predicted to hold."""
    advice = recommend(request)

    if not advice.feasible:
        assert advice.binding is not None
        return
    again = estimate(
        EstimateRequest(
            model=request.model,
            hardware=request.hardware,
            engine=Engine(version=advice.request.engine.version, config=advice.config),
        )
    )
    assert again.fits
    assert all(outcome.margin >= 0 for outcome in advice.estimate.slo)


@FEW
@given(request=requests)
def test_emitted_settings_are_safe_and_explained(request: TuningRequest) -> None:
    """The share never exceeds 0.95, no harsh measure is taken unasked, each setting has a why."""
    advice = recommend(request)

    config = advice.config
    emitted = {name for name in config.__struct_fields__ if getattr(config, name) is not None}
    assert emitted <= {decision.setting for decision in advice.decisions}
    assert 0 < (config.gpu_memory_utilization or 0) <= 0.95
    assert not emitted & {"enforce_eager", "block_size", "quantization", "cpu_offload_gb"}
    assert advice.replicas.gpus <= (request.hardware.gpus_per_node or 1)


@FEW
@given(request=requests)
def test_same_request_same_bytes(request: TuningRequest) -> None:
    """The answer is a function of the request alone."""
    assert msgspec.json.encode(recommend(request)) == msgspec.json.encode(recommend(request))


@FEW
@given(request=requests)
def test_never_worse_than_the_defaults(request: TuningRequest) -> None:
    """Where vLLM's own defaults keep every limit, the pick is at least as good on the objective."""
    problem, _ = understand(request)
    baseline = baseline_of(problem)
    performance = baseline.performance
    keeps = performance is not None and all(o.margin >= 0 for o in baseline.outcomes)
    if performance is None or not keeps or performance.preemptions_per_request > 0:
        return
    if performance.saturated and problem.demand.requests_per_s is not None:
        return

    advice = recommend(request)

    assert advice.feasible
    mine = advice.estimate.performance
    assert mine is not None
    match request.objective:
        case "latency":
            assert mine.e2el_ms.mean <= performance.e2el_ms.mean * 1.03
        case "cost":
            gpus = (baseline.config.tensor_parallel_size or 1) * baseline.copies
            assert advice.replicas.gpus <= gpus
        case _:
            faster = performance.e2el_ms.mean / mine.e2el_ms.mean
            theirs = performance.output_tokens_per_s * baseline.copies
            more = mine.output_tokens_per_s * advice.replicas.count / theirs
            # Copies trade speed for capacity; a slower last answer lengthens a finite run a bit.
            assert max(faster, more) >= 0.95


def more_gpus(request: TuningRequest) -> TuningRequest:
    """Return the request on twice the GPUs."""
    count = (request.hardware.gpus_per_node or 1) * 2
    hardware = msgspec.structs.replace(request.hardware, gpus_per_node=count)
    return changed(request, hardware=hardware)


@FEW
@given(request=requests)
def test_more_gpus_never_make_it_infeasible(request: TuningRequest) -> None:
    """What one node carries, twice the node carries too."""
    if recommend(request).feasible:
        assert recommend(more_gpus(request)).feasible


@FEW
@given(request=requests)
def test_the_fewest_gpus_are_enough_and_no_more_where_more_are_there(
    request: TuningRequest,
) -> None:
    """What all GPUs carry, the cheapest answer carries too, and idle GPUs never make it dearer.

    Where it takes all there are, more of them may first give the head-room that was lacking.
    """
    carried = recommend(changed(request, objective="balanced"))
    cheap = changed(request, objective="cost")

    few = recommend(cheap)

    assert few.feasible == carried.feasible
    if few.feasible:
        assert few.replicas.gpus <= carried.replicas.gpus
    if few.feasible and few.replicas.gpus < (cheap.hardware.gpus_per_node or 1):
        assert recommend(more_gpus(cheap)).replicas.gpus <= few.replicas.gpus


@FEW
@given(request=requests, factor=st.floats(0.3, 0.95))
def test_a_tighter_limit_is_kept_or_refused(request: TuningRequest, factor: float) -> None:
    """Tightening the limits never yields a feasible answer that breaks them."""
    tight = [
        msgspec.structs.replace(target, limit_ms=target.limit_ms * factor)
        for target in (request.slo.targets if request.slo else [])
    ]

    advice: Advice = recommend(changed(request, slo=Slo(targets=tight)))

    for outcome in advice.estimate.slo if advice.feasible else []:
        assert outcome.margin >= 0


token_targets = st.builds(
    LatencyTarget,
    metric=st.sampled_from(["tpot", "itl"]),
    percentile=st.sampled_from([50, 90, 95, 99]),
    limit_ms=st.floats(10, 120),
)
A_CLOSER_RACE = 0.9
"""Two simulated runs of a finite load differ by this much for no reason that a search sees."""


@FEW
@given(
    request=requests,
    target=token_targets,
    preset=st.sampled_from(["batch", "chat", "api", "code_generation"]),
    factor=st.sampled_from([1.1, 1.5, 2.0]),
)
def test_a_looser_limit_never_makes_the_answer_worse(
    request: TuningRequest, target: LatencyTarget, preset: Preset, factor: float
) -> None:
    """What keeps a tight limit keeps a loose one: the pick stays feasible and as good."""
    arrivals = request.workload.arrivals if request.workload else None
    workload = Workload(preset=preset, arrivals=None if preset == "batch" else arrivals)
    asked = changed(request, workload=workload)
    tight, loose = (picked(asked, target, factor=by) for by in (1.0, factor))
    if tight is None or not tight[1].meets:
        return

    assert loose is not None
    assert loose[1].meets
    at_tight, at_loose = merit(*tight), merit(tight[0], loose[1])
    assert at_loose >= A_CLOSER_RACE * at_tight


def picked(
    request: TuningRequest, target: LatencyTarget, *, factor: float
) -> tuple[Problem, Trial] | None:
    """Return the problem and its pick when the limit is this many times as loose."""
    limit = msgspec.structs.replace(target, limit_ms=target.limit_ms * factor)
    problem, _ = understand(changed(request, slo=Slo(targets=[limit])))
    found = find_best(problem)
    return None if found.pick is None else (found.problem, found.pick)


@FEW
@given(request=requests)
def test_the_search_prunes_nothing_that_ranks_first(request: TuningRequest) -> None:
    """Refining every layout finds nothing better than the search's own shortlist."""
    problem, _ = understand(request)
    found = find_best(problem)
    if found.pick is None:
        return

    sized, _ = size_all(problem)
    everything = [refine(problem, trial).best for trial in assess_all(problem, sized)]
    best = min(everything, key=lambda trial: rank_key(problem, trial))

    first = found.trials[0]
    assert first.meets or not best.meets
    if best.meets:
        assert merit(problem, first) >= 0.97 * merit(problem, best)
