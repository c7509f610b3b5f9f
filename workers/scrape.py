"""vLLM's Prometheus metrics before, during and after a load, in one vocabulary.

Old names are read too: `gpu_cache_usage_perc` until 0.10, counters with and without `_total`
(the client library adds it), the process restart that sets counters back to zero.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

_COUNTERS = {
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "requests": ("vllm:request_success_total",),
    "queue_time_s": ("vllm:request_queue_time_seconds_sum",),
    "queued_requests": ("vllm:request_queue_time_seconds_count",),
}
_GAUGES = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}
_CONFIG = "vllm:cache_config_info"
SERIES = tuple(
    {name for spellings in (*_COUNTERS.values(), *_GAUGES.values()) for name in spellings}
    | {_CONFIG}
)


class Scrape(msgspec.Struct, frozen=True, kw_only=True):
    """One reading: counters and gauges by our names; what the release lacks is absent."""

    counters: dict[str, float]
    gauges: dict[str, float]
    cache_config: dict[str, str]


class LoadMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What a load did to the engine; None is what the release does not expose."""

    preemptions: int | None
    kv_cache_usage_peak: float | None
    running_peak: int | None
    waiting_peak: int | None
    prefix_cache_hit_ratio: float | None
    queue_time_mean_ms: float | None
    counters_were_reset: bool


def read_metrics(text: str) -> Scrape:
    """Return one reading of a `/metrics` text; engines of one server are summed.

    Gauges of usage are averaged over engines, since each counts its own pool.
    """
    text = _wanted_lines(text)
    series = _series(text)
    counters = {
        name: sum(values)
        for name, spellings in _COUNTERS.items()
        if (values := _first(series, spellings)) is not None
    }
    gauges = {
        name: sum(values) / (len(values) if name == "kv_cache_usage" else 1)
        for name, spellings in _GAUGES.items()
        if (values := _first(series, spellings))
    }
    return Scrape(counters=counters, gauges=gauges, cache_config=_cache_config(text))


def summarise(before: Scrape, during: Iterable[Scrape], after: Scrape) -> LoadMetrics:
    """Return the differences over a load and the peaks within it."""
    readings = [before, *during, after]
    reset = any(
        later.counters.get(name, 0.0) < value
        for earlier, later in itertools.pairwise(readings)
        for name, value in earlier.counters.items()
    )
    rise = {name: _rise(readings, name) for name in _COUNTERS}
    queries, hits = rise["prefix_queries"], rise["prefix_hits"]
    queued, queue_time_s = rise["queued_requests"], rise["queue_time_s"]
    preemptions, running = rise["preemptions"], _peak(readings, "running")
    waiting = _peak(readings, "waiting")
    return LoadMetrics(
        preemptions=None if preemptions is None else round(preemptions),
        kv_cache_usage_peak=_peak(readings, "kv_cache_usage"),
        running_peak=None if running is None else round(running),
        waiting_peak=None if waiting is None else round(waiting),
        prefix_cache_hit_ratio=hits / queries if queries and hits is not None else None,
        queue_time_mean_ms=(
            1000 * queue_time_s / queued if queued and queue_time_s is not None else None
        ),
        counters_were_reset=reset,
    )


def _wanted_lines(text: str) -> str:
    """Return the lines of the series that are read: a scrape must not cost what it measures."""
    return "".join(
        line for line in text.splitlines(keepends=True) if line.startswith(SERIES) or line == "\n"
    )


def _rise(readings: list[Scrape], name: str) -> float | None:
    """Return the growth of a counter; after a reset it starts again from zero."""
    values = [reading.counters.get(name) for reading in readings]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    steps = itertools.pairwise(known)
    return sum(later - earlier if later >= earlier else later for earlier, later in steps)


def _peak(readings: list[Scrape], name: str) -> float | None:
    values = [reading.gauges[name] for reading in readings if name in reading.gauges]
    return max(values, default=None)


def _series(text: str) -> dict[str, list[float]]:
    series: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, []).append(sample.value)
    return series


def _first(series: Mapping[str, list[float]], names: Iterable[str]) -> list[float] | None:
    return next((series[name] for name in names if name in series), None)


def _cache_config(text: str) -> dict[str, str]:
    samples: list[Any] = [
        sample
        for family in text_string_to_metric_families(text)
        if family.name == _CONFIG
        for sample in family.samples
    ]
    return dict(samples[0].labels) if samples else {}
