"""Latency and throughput of a configuration under a workload."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Percentiles, Performance
from api_schemas.model import Speculative
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import BatchArrivals, ClosedLoop, Trace, Workload
from service.tuning.engine.versions import EngineVersion
from service.tuning.errors import BeyondCache, InvalidRequest
from service.tuning.hardware.spec import Node
from service.tuning.latency.bands import Predicted, Regime, performance_band
from service.tuning.latency.calibration import Calibration
from service.tuning.latency.closed_form import (
    LoadShape,
    OpenLoop,
    SteadyState,
    in_step_ttft_s,
    runnable,
    steady_state,
)
from service.tuning.latency.coefficients import Coefficients, bundled_coefficients
from service.tuning.latency.speculation import read_speculation
from service.tuning.latency.work import StepWork, price_array, step_work
from service.tuning.lengths import length_figures
from service.tuning.limits_kept import is_kept, statistic_name
from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import ModelSpec
from service.tuning.played_run import PlayedRun, traffic_of
from service.tuning.simulation.effort import is_too_fine
from service.tuning.simulation.limits import SchedulerLimits, scheduler_limits
from service.tuning.simulation.metrics import (
    RequestLatencies,
    Summary,
    flow_of,
    request_latencies,
    summarize,
    summarize_gaps,
)
from service.tuning.simulation.run import FrontEnd, Run, run_scheduler
from service.tuning.simulation.traffic import (
    MAX_REQUESTS,
    MIN_WAVES,
    OPEN_LOOP_REQUESTS,
    WAVES,
    draw_traffic,
    mean_arrival_rate,
)

Floats = NDArray[np.float64]
Method = Literal["closed_form", "simulation"]
_SERVICE_PROMPT_TOKENS = 2000.0
"""Prompt length at which taking in one request costs twice the shortest one's time."""
_BACKLOG_SHARE = 0.1
"""Waiting over running requests from which on an engine counts as saturated."""
_STAND_IN = 1.5
_KEEPS_UP = 0.97
"""Share of the offered rate that an unsaturated engine serves during a run."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """All that one prediction works with: prices, limits and load of one engine."""

    work: StepWork
    price: Floats
    limits: SchedulerLimits
    front_end: FrontEnd
    replicas: int
    calibration: Calibration | None


def predict_performance(
    *,
    spec: ModelSpec,
    node: Node,
    config: EngineConfig,
    version: EngineVersion,
    plan: MemoryPlan,
    workload: Workload,
    slo: Slo | None = None,
    method: Method = "simulation",
    seed: int = 0,
    speculative: Speculative | None = None,
    calibration: Calibration | None = None,
    coefficients: Coefficients | None = None,
    waves: float = WAVES,
    stops_when_lost: bool = False,
    played: PlayedRun | None = None,
) -> Performance:
    """Return latency and throughput of all replicas together under the workload.

    `config` has every default filled in, `workload` its preset, and its arrivals are no users. A
    closed loop is predicted as benchmarks run it (see `simulation.traffic`), `waves` requests per
    client; with `played` that very run is simulated. The same arguments give the same answer.

    Raises:
        LimitMissed: With `stops_when_lost`, an open loop cannot keep a limit any more.
    """
    prepared = prepare(
        spec=spec,
        node=node,
        config=config,
        version=version,
        plan=plan,
        shared_prefix_tokens=workload.shared_prefix_tokens or 0,
        speculative=speculative,
        calibration=calibration,
        coefficients=coefficients,
    )
    if method == "closed_form":
        _reject_endless(prepared.limits, workload)
        return closed_form_performance(prepared, workload=workload)
    return simulated_performance(
        prepared,
        workload=workload,
        slo=slo,
        seed=seed,
        waves=waves,
        stops_when_lost=stops_when_lost,
        played=played,
    )


def simulated_performance(
    prepared: Prediction,
    *,
    workload: Workload,
    slo: Slo | None = None,
    seed: int = 0,
    waves: float = WAVES,
    stops_when_lost: bool = False,
    played: PlayedRun | None = None,
) -> Performance:
    """Return latency and throughput by simulation; in mean figures where a run is too long.

    The prediction must be prepared with the workload's own shared prefix.

    Raises:
        LimitMissed: With `stops_when_lost`, an open loop cannot keep a limit any more.
    """
    limits = prepared.limits
    _reject_endless(limits, workload)
    if played is not None and not played.can_be_simulated:
        played = None
    if played is None and _is_too_long(workload, replicas=prepared.replicas):
        return closed_form_performance(prepared, workload=workload)
    if is_too_fine(workload, token_budget=limits.token_budget, longest_chunk=limits.longest_chunk):
        return _less_sure(closed_form_performance(prepared, workload=workload))
    if played is None:
        traffic = draw_traffic(workload, replicas=prepared.replicas, seed=seed, waves=waves)
    else:
        traffic = traffic_of(played, replicas=prepared.replicas)
    run = run_scheduler(
        prepared.price,
        traffic=traffic,
        limits=limits,
        front_end=prepared.front_end,
        growth=prepared.work.tokens_per_step,
        limited_by=slo if stops_when_lost and traffic.concurrency == 0 else None,
    )
    if run is None:
        raise BeyondCache(
            "a request needs more KV cache than one engine has", pointer="/workload/prompt_tokens"
        )
    return _summary(prepared, run=run, slo=slo, workload=workload)


def prepare(
    *,
    spec: ModelSpec,
    node: Node,
    config: EngineConfig,
    version: EngineVersion,
    plan: MemoryPlan,
    shared_prefix_tokens: int = 0,
    speculative: Speculative | None = None,
    calibration: Calibration | None = None,
    coefficients: Coefficients | None = None,
) -> Prediction:
    """Return everything of a configuration that does not depend on its load, computed once."""
    work = step_work(
        spec=spec,
        node=node,
        config=config,
        version=version,
        speculation=read_speculation(spec=spec, config=config, speculative=speculative),
    )
    factors = coefficients or bundled_coefficients()
    if calibration is not None:
        factors = calibration.applied_to(factors)
    return Prediction(
        work=work,
        price=price_array(work, factors),
        limits=scheduler_limits(
            config=config, kv=plan.kv, version=version, shared_prefix_tokens=shared_prefix_tokens
        ),
        front_end=front_end_of(work, factors),
        replicas=max(config.data_parallel_size or 1, 1),
        calibration=calibration,
    )


def front_end_of(work: StepWork, factors: Coefficients) -> FrontEnd:
    """Return what the API server of this configuration adds before the engine."""
    service = factors.product(work.burst)
    return FrontEnd(
        latency_s=factors.product(work.front_end),
        latency_per_token_s=factors.product(work.front_end_token),
        service_s=service,
        service_per_token_s=service / _SERVICE_PROMPT_TOKENS,
        start_s=factors.product(work.start),
        open_share=factors.product(work.open_burst) / service,
    )


def closed_form_performance(prepared: Prediction, *, workload: Workload) -> Performance:
    """Return mean-field latency and throughput in tens of microseconds, without simulating.

    Percentiles above the median are scaled from it by the load alone; the simulation is the place
    for tails, bursts and preemption.
    """
    load = load_shape(workload, replicas=prepared.replicas)
    performance, predicted = _mean_field(prepared, load=load)
    in_step_s = ttft_in_step_s(prepared, workload=workload)
    band = performance_band(
        msgspec.structs.replace(predicted, ttft_in_step_s=in_step_s),
        regime=regime_of(prepared, workload=workload),
        calibration=prepared.calibration,
    )
    return msgspec.structs.replace(performance, band=band)


def _less_sure(performance: Performance) -> Performance:
    """Return a closed form that stands in for a simulation, its bands wider by half."""
    band = {
        name: [edges[0] / _STAND_IN, edges[1] * _STAND_IN]
        for name, edges in performance.band.items()
    }
    return msgspec.structs.replace(performance, band=band)


def mean_performance(prepared: Prediction, *, load: LoadShape) -> Performance:
    """Return mean-field latency and throughput without their bands, for a search among many."""
    return _mean_field(prepared, load=load)[0]


class MeanAtRates:
    """Mean-field behaviour of an open loop at one rate after another."""

    def __init__(self, prepared: Prediction, *, load: LoadShape) -> None:
        self._prepared, self._load = prepared, load
        self._loop = OpenLoop(prepared.price, load=load, limits=prepared.limits)

    def keeps(self, rate: float, targets: Sequence[LatencyTarget]) -> bool:
        """Return whether one replica keeps up with this rate, and with its limits.

        The latencies are those of `mean_performance`, of which only the limited ones are made.
        """
        state = self._loop.at(rate)
        if state.is_saturated or not _takes_in(self._prepared, self._load, rate=rate):
            return False
        return _keeps(self._prepared, state=state, load=self._load, targets=targets)


def mean_load_keeps(
    prepared: Prediction, *, load: LoadShape, targets: Sequence[LatencyTarget]
) -> bool:
    """Return whether the latencies of `mean_performance` keep these limits."""
    state = steady_state(prepared.price, load=load, limits=prepared.limits)
    return _keeps(prepared, state=state, load=load, targets=targets)


def _keeps(
    prepared: Prediction, *, state: SteadyState, load: LoadShape, targets: Sequence[LatencyTarget]
) -> bool:
    for target in targets:
        match target.metric:
            case "ttft":
                summary = _ttft_summary(prepared, state=state, load=load)
            case "e2el":
                ttft = _ttft_summary(prepared, state=state, load=load)
                tpot = _tpot_summary(prepared, state=state, load=load)
                summary = _e2el_summary(ttft, tpot=tpot, load=load)
            case "tpot":
                summary = _tpot_summary(prepared, state=state, load=load)
            case "itl":
                summary = _gap_summary(state=state, load=load)
        seconds: float = getattr(summary, statistic_name(target))
        if not is_kept(target, seconds * 1e3):
            return False
    return True


def load_shape(workload: Workload, *, replicas: int) -> LoadShape:
    """Return the load of one of the replicas in mean figures."""
    arrivals, prompts, outputs = workload.arrivals, workload.prompt_tokens, workload.output_tokens
    if isinstance(arrivals, Trace):
        prompt, output, spread = (
            float(np.mean(arrivals.prompt_tokens)),
            float(np.mean(arrivals.output_tokens)),
            True,
        )
    elif prompts is None or outputs is None:
        raise InvalidRequest("the workload names no lengths", pointer="/workload/prompt_tokens")
    else:
        asked, answered = length_figures(prompts), length_figures(outputs)
        prompt, output = asked.mean_tokens, answered.mean_tokens
        spread = asked.has_spread or answered.has_spread
    base = LoadShape(
        prompt_tokens=prompt,
        output_tokens=max(output, 1.0),
        has_spread=spread,
        shared_prefix_tokens=workload.shared_prefix_tokens or 0,
    )
    match arrivals:
        case ClosedLoop():
            clients = max(arrivals.max_concurrency / replicas, 1.0)
            whole = arrivals.num_requests
            requests = WAVES * clients if whole is None else max(whole / replicas, 1.0)
            clients = min(clients, requests)
            return msgspec.structs.replace(base, concurrency=clients, requests=requests)
        case BatchArrivals():
            return _at_once(base, arrivals.num_requests / replicas)
        case Trace() if mean_arrival_rate(arrivals) is None:
            return _at_once(base, len(arrivals.at_s) / replicas)
        case None:
            raise InvalidRequest("the workload names no arrivals", pointer="/workload/arrivals")
        case _:
            rate = mean_arrival_rate(arrivals) or 1e9
            # Requests come when they like: not even equally long ones keep in step.
            return msgspec.structs.replace(
                base,
                has_spread=True,
                requests_per_s=rate / replicas,
                requests=float(OPEN_LOOP_REQUESTS),
            )


def _at_once(load: LoadShape, requests: float) -> LoadShape:
    """Return the load of so many requests that are all there from the beginning."""
    number = max(requests, 1.0)
    return msgspec.structs.replace(load, concurrency=number, requests=number)


def _is_too_long(workload: Workload, *, replicas: int) -> bool:
    """Tell whether a closed loop has so many clients that a run would take many seconds."""
    arrivals = workload.arrivals
    if not isinstance(arrivals, ClosedLoop):
        return False
    return arrivals.max_concurrency / replicas * MIN_WAVES > MAX_REQUESTS


def _reject_endless(limits: SchedulerLimits, workload: Workload) -> None:
    """Refuse a workload whose longest request can never hold its KV cache."""
    if workload.prompt_tokens is None or workload.output_tokens is None:
        return
    prompts, outputs = (
        length_figures(workload.prompt_tokens),
        length_figures(workload.output_tokens),
    )
    shortest = int(prompts.mean_tokens + outputs.mean_tokens)
    if limits.blocks_of(shortest) > limits.num_blocks:
        longest = prompts.max_tokens + outputs.max_tokens
        raise BeyondCache(
            f"a request of {longest} tokens needs more KV cache than one engine has",
            pointer="/workload/prompt_tokens",
        )


def _summary(prepared: Prediction, *, run: Run, slo: Slo | None, workload: Workload) -> Performance:
    latencies = request_latencies(run)
    weights = run.traffic.weights
    ttft, tpot = summarize(latencies.ttft, weights), summarize(latencies.tpot, weights)
    is_saturated = _is_saturated(prepared, run=run, workload=workload)
    flow = flow_of(run, is_saturated=is_saturated)
    rate = prepared.replicas * flow.requests_per_s
    output_rate = prepared.replicas * flow.output_tokens_per_s
    prompt_rate = rate * float((run.traffic.prompts * weights).sum())
    regime = regime_of(prepared, workload=workload, run=run)
    gaps = summarize_gaps(run, tokens_per_step=prepared.work.tokens_per_step)
    e2el = summarize(latencies.e2el, weights)
    return Performance(
        ttft_ms=_milliseconds(ttft),
        tpot_ms=_milliseconds(tpot),
        itl_ms=_milliseconds(gaps),
        e2el_ms=_milliseconds(e2el),
        requests_per_s=rate,
        output_tokens_per_s=output_rate,
        total_tokens_per_s=output_rate + prompt_rate,
        goodput_requests_per_s=rate * _share_within(latencies, slo=slo, weights=weights),
        preemptions_per_request=run.preemptions / len(run.traffic.prompts),
        kv_cache_usage=min(flow.used_blocks / prepared.limits.num_blocks, 1.0),
        running_requests=flow.running * prepared.replicas,
        waiting_requests=flow.waiting * prepared.replicas,
        saturated=is_saturated,
        band=performance_band(
            Predicted(
                ttft=ttft,
                tpot=tpot,
                itl=gaps,
                e2el=e2el,
                output_tokens_per_s=output_rate,
                requests_per_s=rate,
                ttft_in_step_s=ttft_in_step_s(prepared, workload=workload),
            ),
            regime=regime,
            calibration=prepared.calibration,
        ),
    )


def regime_of(prepared: Prediction, *, workload: Workload, run: Run | None = None) -> Regime:
    """Return what decides how sure a prediction is: load, KV demand, what was measured before."""
    load = load_shape(workload, replicas=prepared.replicas)
    wanted = load.concurrency or (run.mean_running if run else 1.0)
    return Regime(
        classes=prepared.work.classes,
        hardware=prepared.work.hardware,
        configuration=prepared.work.configuration,
        is_unmeasured=prepared.work.is_unmeasured,
        is_level=not load.has_spread and (load.concurrency or 0.0) > 1,
        is_burst=isinstance(workload.arrivals, BatchArrivals),
        is_open=not isinstance(workload.arrivals, ClosedLoop | BatchArrivals),
        demand=_demand(wanted, load=load, limits=prepared.limits),
    )


def ttft_in_step_s(prepared: Prediction, *, workload: Workload) -> float:
    """Return the median TTFT if the clients of a loop stay in step, seconds; 0 if they cannot.

    They can where answers have one length, and do where all run to it, which a workload leaves
    open: but for short runs (`IN_STEP_WAVES`), predictions are of clients that are parted, as most
    measured ones are.
    """
    load = load_shape(workload, replicas=prepared.replicas)
    is_loop = isinstance(workload.arrivals, ClosedLoop)
    if load.has_spread or not is_loop or (load.concurrency or 0.0) <= 1:
        return 0.0
    front = prepared.front_end
    service_s = front.service_s + front.service_per_token_s * load.prompt_tokens
    taken_in_s = front.latency_s + front.latency_per_token_s * load.prompt_tokens
    taken_in_s += front.again_share * service_s * (load.concurrency or 0.0) / 2
    return taken_in_s + in_step_ttft_s(prepared.price, load=load, limits=prepared.limits)


def _demand(wanted: float, *, load: LoadShape, limits: SchedulerLimits) -> float:
    """Return the wanted sequences over those that the cache holds, or that may run if fewer."""
    places = float(limits.max_num_seqs)
    unlimited = msgspec.structs.replace(limits, max_num_seqs=1 << 40)
    of_cache = wanted / max(runnable(load, unlimited), 1e-9)
    return max(of_cache, wanted / places) if wanted > places else of_cache


def _is_saturated(prepared: Prediction, *, run: Run, workload: Workload) -> bool:
    """Return whether requests queue for a place, or come faster than they can ever be served."""
    if run.traffic.offered_requests_per_s is None:
        return run.mean_waiting > _BACKLOG_SHARE * max(run.mean_running, 1.0)
    served = len(run.traffic.prompts) / run.duration_s
    if served > _KEEPS_UP * run.traffic.offered_requests_per_s:
        return False
    load = load_shape(workload, replicas=prepared.replicas)
    if not _takes_in(prepared, load, rate=load.requests_per_s or 0.0):
        return True
    return steady_state(prepared.price, load=load, limits=prepared.limits).is_saturated


def _takes_in(prepared: Prediction, load: LoadShape, *, rate: float) -> bool:
    """Return whether the API server of one replica can hand on so many requests per second."""
    return rate < prepared.front_end.highest_rate(load.prompt_tokens)


def _share_within(latencies: RequestLatencies, *, slo: Slo | None, weights: Floats) -> float:
    """Return the share of requests that keep every limit on their own."""
    good = np.ones(len(weights), dtype=bool)
    for target in slo.targets if slo else ():
        values = _values_of(latencies, target)
        good &= ~(values * 1e3 > target.limit_ms)
    return float(weights[good].sum())


def _values_of(latencies: RequestLatencies, target: LatencyTarget) -> Floats:
    match target.metric:
        case "ttft":
            return latencies.ttft
        case "e2el":
            return latencies.e2el
        case "tpot" | "itl":
            return latencies.tpot


def _mean_field(prepared: Prediction, *, load: LoadShape) -> tuple[Performance, Predicted]:
    """Return the prediction in mean figures without its band, and what gets a band."""
    state = steady_state(prepared.price, load=load, limits=prepared.limits)
    return _mean_figures(prepared, state=state, load=load)


def _mean_figures(
    prepared: Prediction, *, state: SteadyState, load: LoadShape
) -> tuple[Performance, Predicted]:
    ttft = _ttft_summary(prepared, state=state, load=load)
    tpot = _tpot_summary(prepared, state=state, load=load)
    e2el = _e2el_summary(ttft, tpot=tpot, load=load)
    gaps = _gap_summary(state=state, load=load)
    rate = prepared.replicas * state.run_requests_per_s
    output_rate = rate * load.output_tokens
    held = load.prompt_tokens + load.output_tokens / 2
    each = prepared.limits.decoding_blocks_of(math.ceil(held))
    usage = state.running * each / prepared.limits.num_blocks
    takes_in = _takes_in(prepared, load, rate=load.requests_per_s or 0.0)
    performance = Performance(
        ttft_ms=_milliseconds(ttft),
        tpot_ms=_milliseconds(tpot),
        itl_ms=_milliseconds(gaps),
        e2el_ms=_milliseconds(e2el),
        requests_per_s=rate,
        output_tokens_per_s=output_rate,
        total_tokens_per_s=output_rate + rate * load.prompt_tokens,
        goodput_requests_per_s=rate,
        preemptions_per_request=0.0,
        kv_cache_usage=min(usage, 1.0),
        running_requests=state.running * prepared.replicas,
        waiting_requests=state.waiting * prepared.replicas,
        saturated=state.is_saturated or not takes_in,
        band={},
    )
    predicted = Predicted(
        ttft=ttft,
        tpot=tpot,
        itl=gaps,
        e2el=e2el,
        output_tokens_per_s=output_rate,
        requests_per_s=rate,
    )
    return performance, predicted


_P90, _P95, _P99 = 1.6, 2.0, 3.0
"""p90, p95, p99 of TTFT over its median in unsaturated runs (medians of our simulations)."""


def _ttft_summary(prepared: Prediction, *, state: SteadyState, load: LoadShape) -> Summary:
    """Return TTFT, its tails by fixed ratios."""
    front = prepared.front_end
    added = front.latency_s + front.latency_per_token_s * load.prompt_tokens
    service = front.service_s + front.service_per_token_s * load.prompt_tokens
    clients = load.concurrency or 1.0
    is_loop = load.concurrency is not None and load.requests > clients
    first_s = front.start_s + service * clients / 2
    burst = first_s * clients / load.requests if is_loop else 0.0
    median = state.ttft_p50_s
    return Summary(
        mean=state.ttft_mean_s + added + burst,
        p50=median + added,
        p90=median * _P90 + added,
        p95=median * _P95 + added,
        p99=median * _P99 + added,
    )


_NO_GAPS = Summary(mean=0.0, p50=0.0, p90=0.0, p95=0.0, p99=0.0)
"""Of answers of one token, as in a simulation of them: no limit between tokens is missed."""


def _tpot_summary(prepared: Prediction, *, state: SteadyState, load: LoadShape) -> Summary:
    if load.output_tokens <= 1:
        return _NO_GAPS
    tpot_s = state.tpot_s / prepared.work.tokens_per_step
    return Summary(mean=tpot_s, p50=tpot_s, p90=tpot_s, p95=tpot_s, p99=tpot_s)


def _e2el_summary(ttft: Summary, *, tpot: Summary, load: LoadShape) -> Summary:
    decode = tpot.mean * (load.output_tokens - 1)
    return Summary(
        mean=ttft.mean + decode,
        p50=ttft.p50 + decode,
        p90=ttft.p90 + decode,
        p95=ttft.p95 + decode,
        p99=ttft.p99 + decode,
    )


def _gap_summary(*, state: SteadyState, load: LoadShape) -> Summary:
    """Return gaps between tokens: plain steps, and mixed ones in the share that TPOT implies."""
    if load.output_tokens <= 1:
        return _NO_GAPS
    spread = state.mixed_step_s - state.plain_step_s
    share = (state.tpot_s - state.plain_step_s) / spread if spread > 0 else 0.0
    points = [state.mixed_step_s if share > 1 - q else state.plain_step_s for q in _GAP_POINTS]
    return Summary(mean=state.tpot_s, p50=points[0], p90=points[1], p95=points[2], p99=points[3])


_GAP_POINTS = (0.5, 0.9, 0.95, 0.99)


def _milliseconds(summary: Summary) -> Percentiles:
    return Percentiles(
        mean=summary.mean * 1e3,
        p50=summary.p50 * 1e3,
        p90=summary.p90 * 1e3,
        p95=summary.p95 * 1e3,
        p99=summary.p99 * 1e3,
    )
