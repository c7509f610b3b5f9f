"""The published measurements, read as the service would read them, with their schedules.

In a closed loop the sequence of batches hardly depends on how fast a step is, so every measured
latency is a weighted sum of step times. The schedule of each case is simulated once at given
coefficients and kept as events with weights; a fit then only prices events.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from api_schemas.estimate import EstimateRequest
from api_schemas.workload import BatchArrivals, ClosedLoop, Workload
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import parse_version
from service.tuning.errors import TuningError
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.latency.coefficients import Coefficients
from service.tuning.latency.price import NUM_PRICES
from service.tuning.latency.work import price_array
from service.tuning.lengths import mean_tokens
from service.tuning.memory.budget import plan_memory
from service.tuning.memory.plan import KvPlan
from service.tuning.models.hf_config import read_config
from service.tuning.performance import Prediction, front_end_of, prepare
from service.tuning.simulation.metrics import missing_requests, steady_window
from service.tuning.simulation.run import FrontEnd, Run, run_scheduler
from service.tuning.simulation.traffic import OUTPUT_JITTER_TOKENS, WAVES, Traffic, draw_traffic

Floats = NDArray[np.float64]
CASES = Path(__file__).parent / "data" / "performance_cases.jsonl"
METRICS = ("tpot_ms", "ttft_ms", "output_tokens_per_s")
MAX_EVENTS = 400_000
JITTER_TOKENS = {"cloudrift": 0.0, "a10g-baseline": 0.0, "nvidia-gap-analysis": 2.0}
"""Harnesses whose answers all run to their nominal length (`vllm bench serve` with fixed lengths
and no early stop), or nearly: their clients stay in step."""
TIGHT_BUDGETS = frozenset({"nvidia-gap-analysis"})
"""Harnesses that seem to leave no room for a second prompt in a step, which they do not state: with
a budget of one prompt and all clients the errors of TTFT scatter half as much as with the default
one (0.08 against 0.16 on the log scale, at two tokens of jitter); those of TPOT hardly change."""
_MIDDLE = (0.4, 0.6)
"""The requests whose mean stands for the median."""


class Target(msgspec.Struct):
    """One measured figure: seconds for latencies, tokens per second for throughput."""

    metric: str
    statistic: str
    measured: float


class Case(msgspec.Struct):
    """One measurement with everything that its prediction needs."""

    id: str
    group: str
    row: dict[str, object]
    prepared: Prediction
    traffic: Traffic
    targets: list[Target]
    stated: dict[str, object]
    """Arguments of a prediction as the request states them."""
    workload: object


def read_rows(path: Path = CASES) -> list[dict[str, object]]:
    """Return the rows of the file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def load_cases(path: Path = CASES) -> tuple[list[Case], dict[str, str]]:
    """Return the cases that can be predicted, and why the others cannot."""
    cases, refused = [], {}
    for row in read_rows(path):
        try:
            case = _case(row)
        except TuningError as error:
            refused[str(row["id"])] = error.message
            continue
        if case is None:
            refused[str(row["id"])] = "does not fit"
        else:
            cases.append(case)
    return cases, refused


def keywords_of(request: EstimateRequest) -> dict[str, object]:
    """Return the arguments of a prediction, resolved from a request."""
    node, _ = resolve_hardware(request.hardware)
    spec = read_config(
        request.model.config or {},
        model_id=request.model.id,
        weights_bytes=request.model.weights_bytes,
    )
    engine = request.engine
    version = parse_version(engine.version if engine else None)
    config = effective_config(
        engine.config if engine else None, spec=spec, node=node, version=version
    )
    plan = plan_memory(spec=spec, node=node, config=config, version=version)
    return {"spec": spec, "node": node, "config": config, "version": version, "plan": plan}


def _case(row: dict) -> Case | None:
    request = msgspec.convert(row["request"], EstimateRequest)
    keywords = keywords_of(request)
    if keywords["plan"].kv is None:
        return None
    workload = request.workload
    prepared = prepare(**keywords, shared_prefix_tokens=workload.shared_prefix_tokens or 0)
    is_loop = isinstance(workload.arrivals, ClosedLoop)
    waves = float(row.get("waves") or WAVES) if is_loop else WAVES
    observed = (row.get("observed") or {}).get("kv_cache_tokens")
    if observed:
        prepared = _with_pool(prepared, keywords["plan"].kv, observed)
    harness = row["source"]["harness"]
    if harness in TIGHT_BUDGETS:
        prepared = _with_tight_budget(prepared, workload)
    return Case(
        id=row["id"],
        group=row["group"],
        row=row,
        prepared=prepared,
        traffic=draw_traffic(
            workload,
            replicas=prepared.replicas,
            waves=min(waves, 30.0),
            jitter_tokens=JITTER_TOKENS.get(harness, OUTPUT_JITTER_TOKENS),
        ),
        targets=list(_targets(row)),
        stated=keywords,
        workload=workload,
    )


def _with_pool(prepared: Prediction, kv: KvPlan, tokens: int) -> Prediction:
    """Return the prediction with the KV cache that the source observed, not the planned one."""
    blocks = max(round(kv.num_blocks * tokens / max(kv.tokens, 1)), 1)
    limits = msgspec.structs.replace(prepared.limits, num_blocks=blocks)
    return msgspec.structs.replace(prepared, limits=limits)


def _with_tight_budget(prepared: Prediction, workload: Workload) -> Prediction:
    """Return the prediction with a token budget of one prompt and all clients."""
    tokens = int(mean_tokens(workload.prompt_tokens)) + workload.arrivals.max_concurrency
    limits = msgspec.structs.replace(prepared.limits, token_budget=tokens)
    return msgspec.structs.replace(prepared, limits=limits)


def _targets(row: dict) -> Iterator[Target]:
    for metric in METRICS:
        expected = row["expect"].get(metric)
        if expected is None:
            continue
        if not isinstance(expected, dict):
            yield Target(metric, "value", float(expected))
            continue
        statistic = next((s for s in ("p50", "mean", "unspecified") if s in expected), None)
        if statistic:
            yield Target(metric, statistic, float(expected[statistic]) / 1e3)


class Schedule(msgspec.Struct):
    """Events of one run with the weight that each has in each target."""

    events: Floats
    """Steps and batch per event."""
    weights: Floats
    """One row per target, seconds of the metric per second of the event."""
    constants: Floats
    """One row per target: seconds of front-end latency, of latency per token, of service, of the
    start."""
    tokens: float
    """Output tokens of the whole run, all replicas."""


def schedule_of(case: Case, coefficients: Coefficients) -> Schedule | None:
    """Return the schedule of a case at these coefficients; None when it is stuck."""
    work = case.prepared.work
    front = front_end_of(work, coefficients)
    run = run_scheduler(
        price_array(work, coefficients),
        traffic=case.traffic,
        limits=case.prepared.limits,
        front_end=front,
        growth=work.tokens_per_step,
        max_events=MAX_EVENTS,
    )
    if run is None:
        return None
    spans = run.events[:, 2] - run.events[:, 1]
    is_idle = run.events[:, 0] == 0
    weights, constants = [], []
    for target in case.targets:
        weight, constant = _weights(run, target, spans=spans, front=front)
        idle = float((weight * spans)[is_idle].sum())
        begun = min(front.start_s, idle) if target.metric == "output_tokens_per_s" else 0.0
        constant = constant + np.array([idle - begun, 0.0, 0.0, begun])
        weights.append(np.where(is_idle, 0.0, weight))
        constants.append(constant)
    events = np.concatenate([run.events[:, :1], run.events[:, 3:]], axis=1)
    total = float(run.traffic.outputs.sum()) * (1 + missing_requests(run) / len(spans_of(run)))
    return Schedule(
        events=events[~is_idle],
        weights=np.array(weights)[:, ~is_idle],
        constants=np.array(constants),
        tokens=total * case.prepared.replicas,
    )


def spans_of(run: Run) -> Floats:
    """Return the time each request took in all."""
    return run.times[:, 4] - run.times[:, 0]


def _weights(run: Run, target: Target, *, spans: Floats, front: FrontEnd) -> tuple[Floats, Floats]:
    if target.metric == "output_tokens_per_s":
        return _duration_weights(run, spans), np.zeros(4)
    if target.metric == "tpot_ms":
        return _tpot_weights(run, target, len(spans)), np.zeros(4)
    return _ttft_weights(run, target, spans=spans, front=front)


def _duration_weights(run: Run, spans: Floats) -> Floats:
    weight = np.ones(len(spans))
    missing = missing_requests(run)
    if missing > 0:
        start, end, finished = steady_window(run)
        inside = (run.events[:, 1] >= start - 1e-9) & (run.events[:, 2] <= end + 1e-9)
        weight[inside] += missing / max(finished, 1)
    return weight


def _request_weights(values: Floats, run: Run, statistic: str) -> Floats:
    kept = np.isfinite(values)
    weights = np.where(kept, run.traffic.weights, 0.0)
    if statistic == "p50":
        order = np.argsort(np.where(kept, values, np.inf), kind="stable")
        position = np.empty(len(values))
        cumulative = np.cumsum(weights[order]) - weights[order] / 2
        position[order] = cumulative / weights.sum()
        middle = (position >= _MIDDLE[0]) & (position <= _MIDDLE[1])
        if not (middle & kept).any():
            middle = np.abs(position - 0.5) == np.min(np.abs(position[kept] - 0.5))
        weights = np.where(middle, weights, 0.0)
    return weights / weights.sum()


def _tpot_weights(run: Run, target: Target, count: int) -> Floats:
    gaps = np.maximum(run.traffic.outputs - 1, 1)
    values = np.where(run.traffic.outputs > 1, (run.times[:, 4] - run.times[:, 3]) / gaps, np.nan)
    weights = _request_weights(values, run, target.statistic) / gaps
    change = np.zeros(count + 1)
    np.add.at(change, run.marks[:, 1] + 1, weights)
    np.add.at(change, run.marks[:, 2] + 1, -weights)
    return np.cumsum(change)[:count]


def _ttft_weights(
    run: Run, target: Target, *, spans: Floats, front: FrontEnd
) -> tuple[Floats, Floats]:
    values = run.times[:, 3] - run.times[:, 0]
    weights = _request_weights(values, run, target.statistic)
    count = len(spans)
    change = np.zeros(count + 1)
    under_way = run.marks[:, 0]
    np.add.at(change, under_way + 1, weights)
    np.add.at(change, run.marks[:, 1] + 1, -weights)
    weight = np.cumsum(change)[:count]
    ends = run.events[under_way, 2]
    rest = np.clip(ends - run.times[:, 1], 0.0, None)
    np.add.at(weight, under_way, weights * rest / np.maximum(spans[under_way], 1e-12))
    per_token = front.latency_per_token_s * run.traffic.prompts
    is_first = (run.times[:, 0] == 0.0) & (run.traffic.offered_requests_per_s is None)
    start = np.where(is_first, np.maximum(front.start_s - front.latency_s - per_token, 0.0), 0.0)
    taken = run.times[:, 1] - run.times[:, 0]
    parts = [front.latency_s, per_token, taken - front.latency_s - per_token - start, start]
    return weight, np.array([max(float((weights * part).sum()), 0.0) for part in parts])


def is_batch(case: Case) -> bool:
    """Whether all requests of the case arrive at once."""
    return isinstance(case.workload.arrivals, BatchArrivals)


NUM_COMPONENTS = NUM_PRICES
