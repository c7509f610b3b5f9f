"""What to watch in production: expressions over the metric names of that release."""

import json

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.recommendation import Watch
from api_schemas.slo import LatencyTarget, Slo
from service.tuning.engine.facts import metric_name
from service.tuning.engine.versions import EngineVersion

_WINDOW = "5m"
_FINEST_ITL_MS = 10
"""The lowest bucket of the gap histogram: vllm/v1/metrics/loggers.py, 0.8 to 0.33."""
_DEFAULT_PREEMPTIONS_PER_REQUEST = 0.01
_FULL_CACHE = 0.95


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """One condition that asks for action when it lasts."""

    alert: str
    expression: str
    limit: float
    unit: str
    minutes: int
    severity: str
    meaning: str
    then: str

    @property
    def condition(self) -> str:
        """The expression with its limit, as Prometheus reads it."""
        return f"{self.expression} > {self.limit:g}"


def watch_list(
    version: EngineVersion,
    *,
    slo: Slo | None = None,
    config: EngineConfig | None = None,
    model_name: str | None = None,
) -> list[Watch]:
    """Return what to watch on that release, most telling first.

    `config` should be the effective one, `model_name` the name that metrics carry.
    """
    return [
        Watch(
            metric=signal.expression,
            threshold=f"> {signal.limit:g}{signal.unit} for {signal.minutes} min",
            meaning=signal.meaning,
            then=signal.then,
        )
        for signal in signals(version, slo=slo, config=config, model_name=model_name)
    ]


def signals(
    version: EngineVersion,
    *,
    slo: Slo | None,
    config: EngineConfig | None,
    model_name: str | None,
) -> list[Signal]:
    """Return the conditions; figures that the release does not expose are left out."""
    selector = label_selector(model_name)
    found = [
        _preemptions(version, selector, slo=slo),
        _cache(version, selector),
        _queue(version, selector),
        _admission(version, selector, config=config),
        *(_latency(version, selector, target) for target in (slo.targets if slo else ())),
    ]
    return [signal for signal in found if signal is not None]


def label_selector(model_name: str | None) -> str:
    """Return the label matcher of one served model; empty for all models."""
    if model_name is None:
        return ""
    return f"{{model_name={json.dumps(model_name, ensure_ascii=False)}}}"


def _preemptions(version: EngineVersion, selector: str, *, slo: Slo | None) -> Signal | None:
    preempted = metric_name("preemptions", version)
    finished = metric_name("request_success", version)
    if preempted is None or finished is None:
        return None
    given = None if slo is None else slo.max_preemptions_per_request
    return Signal(
        alert="VllmPreemptions",
        expression=(
            f"sum(rate({preempted}{selector}[{_WINDOW}]))"
            f" / sum(rate({finished}{selector}[{_WINDOW}]))"
        ),
        limit=_DEFAULT_PREEMPTIONS_PER_REQUEST if given is None else given,
        unit=" per request",
        minutes=10,
        severity="warning",
        meaning="the KV cache runs out while requests run, and their work is done again",
        then="lower max_num_seqs, or give the KV cache more room (shorter max_model_len does not"
        " help running requests; fp8 KV cache, more GPUs or a higher share of memory do)",
    )


def _cache(version: EngineVersion, selector: str) -> Signal | None:
    usage = metric_name("kv_cache_usage", version)
    if usage is None:
        return None
    return Signal(
        alert="VllmKvCacheFull",
        expression=f"max({usage}{selector})",
        limit=_FULL_CACHE,
        unit="",
        minutes=10,
        severity="warning",
        meaning="the KV cache is almost full: preemptions are near",
        then="lower max_num_seqs or add a replica",
    )


def _queue(version: EngineVersion, selector: str) -> Signal | None:
    waiting = metric_name("waiting", version)
    if waiting is None:
        return None
    return Signal(
        alert="VllmQueue",
        expression=f"min_over_time(sum({waiting}{selector})[{_WINDOW}:30s])",
        limit=0,
        unit=" requests",
        minutes=10,
        severity="warning",
        meaning="requests wait all the time: the load is above what one replica admits",
        then="add a replica; raise max_num_seqs only while the KV cache has room",
    )


def _admission(
    version: EngineVersion, selector: str, *, config: EngineConfig | None
) -> Signal | None:
    running = metric_name("running", version)
    cap = None if config is None else config.max_num_seqs
    if running is None or cap is None or cap < 1:
        return None
    return Signal(
        alert="VllmAtAdmissionCap",
        expression=f"max({running}{selector})",
        limit=cap - 1,
        unit=" requests",
        minutes=10,
        severity="info",
        meaning=f"as many requests run as max_num_seqs ({cap}) admits",
        then="watch the queue: if it grows while the KV cache has room, raise max_num_seqs",
    )


def _latency(version: EngineVersion, selector: str, target: LatencyTarget) -> Signal | None:
    role = target.metric
    name = metric_name(role, version)
    note = ""
    if name is None and role == "tpot":
        role, note = "itl", " (this release has no histogram per request: gaps stand in)"
        name = metric_name(role, version)
    if name is None:
        return None
    if role == "itl" and target.limit_ms < _FINEST_ITL_MS:
        note += f" (buckets start at {_FINEST_ITL_MS} ms, so a lower limit is not resolved)"
    label = "mean" if target.percentile == "mean" else f"p{target.percentile}"
    return Signal(
        alert=f"Vllm{target.metric.capitalize()}{label.capitalize()}",
        expression=_statistic(name, selector, target),
        limit=target.limit_ms / 1000,
        unit=" s",
        minutes=10,
        severity="critical",
        meaning=f"{target.metric.upper()} {label} misses its limit of {target.limit_ms:g} ms{note}",
        then=_REMEDIES[target.metric],
    )


def _statistic(name: str, selector: str, target: LatencyTarget) -> str:
    if target.percentile == "mean":
        return (
            f"sum(rate({name}_sum{selector}[{_WINDOW}]))"
            f" / sum(rate({name}_count{selector}[{_WINDOW}]))"
        )
    quantile = target.percentile / 100
    return (
        f"histogram_quantile({quantile:g}, sum by (le) (rate({name}_bucket{selector}[{_WINDOW}])))"
    )


_REMEDIES = {
    "ttft": "look at the queue first; then raise max_num_batched_tokens, or add a replica",
    "tpot": "lower max_num_seqs or max_num_batched_tokens, or raise tensor_parallel_size",
    "itl": "lower max_num_batched_tokens (long prompts stall the others), or max_num_seqs",
    "e2el": "see which part grows: queue, TTFT or TPOT",
}
