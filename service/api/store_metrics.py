"""Metrics of what all processes share: read from the store at every scrape.

Whichever process took a measurement in or sent a webhook, each one shows the same.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import accumulate

import redis
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from api_schemas.worker import QueueState
from service.store.client import StoreUnavailable
from service.store.prediction_errors import BOUNDS, OTHER, ErrorCounts, PredictionErrorStore
from service.store.queues import queue_states
from service.store.webhooks import WebhookStore
from service.store.workers import live_nodes

_ERROR_LABELS = ("gpu", "model_family", "metric", "basis")


class StoreMetrics(Collector):
    """Reads the store when it is asked; while that is away only says so."""

    def __init__(self, client: redis.Redis, *, now: Callable[[], datetime]) -> None:
        self._client = client
        self._now = now
        self._webhooks = WebhookStore(client, retention=None)
        self._errors = PredictionErrorStore(client)

    def describe(self) -> list[Metric]:
        """Return every family, so that registering asks no store."""
        return shared_families()

    def collect(self) -> Iterator[Metric]:
        """Yield every family as the store has it now."""
        try:
            nodes = live_nodes(self._client)
            listed = sorted({queue for node in nodes for queue in node.queues})
            states = queue_states(self._client, listed=listed, now=self._now())
            found = [
                *_predictions(self._errors.all()),
                *_queues(states, listed=listed),
                *_workers(len(nodes)),
                *_webhooks(self._webhooks.outcomes(), self._webhooks.pending()),
                _up(1),
            ]
        except StoreUnavailable:
            found = [_up(0)]
        yield from found


def shared_families() -> list[Metric]:
    """Return every family of an empty store."""
    return [*_predictions([]), *_queues([], listed=[]), *_workers(0), *_webhooks({}, 0), _up(1)]


def _predictions(series: list[ErrorCounts]) -> Iterator[Metric]:
    errors = HistogramMetricFamily(
        "setpoint_prediction_error_ratio",
        "Distance of predictions from what was measured afterwards, relative to the measurement, "
        "by GPU, model family, figure and basis.",
        labels=_ERROR_LABELS,
    )
    bias = GaugeMetricFamily(
        "setpoint_prediction_bias_ratio",
        "Mean signed error of predictions, relative to the measurement, by the same labels; above "
        "0 is too high.",
        labels=_ERROR_LABELS,
    )
    for item in series:
        labels = (item.group.gpu, item.group.model_family, item.metric, item.group.basis)
        bounds = (*(repr(bound) for bound in BOUNDS), "+Inf")
        buckets = list(zip(bounds, accumulate(item.buckets), strict=True))
        errors.add_metric(labels, buckets, sum_value=item.sum)
        bias.add_metric(labels, item.signed_sum / max(item.count, 1))
    yield errors
    yield bias


def _queues(states: list[QueueState], *, listed: list[str]) -> Iterator[Metric]:
    """Yield a sample for each queue of a live worker; callers name the others, so they are one."""
    waiting = GaugeMetricFamily(
        "setpoint_queue_waiting",
        "Validations and studies that no worker has taken, by queue; `other` has no live worker.",
        labels=("queue",),
    )
    oldest = GaugeMetricFamily(
        "setpoint_queue_oldest_seconds",
        "Age of the oldest run that waits, by queue; 0 when none waits.",
        labels=("queue",),
    )
    others = [state for state in states if state.queue not in listed]
    for state in states:
        if state.queue in listed:
            waiting.add_metric((state.queue,), state.waiting)
            oldest.add_metric((state.queue,), state.oldest_waiting_s or 0.0)
    waiting.add_metric((OTHER,), sum(state.waiting for state in others))
    oldest.add_metric((OTHER,), max((state.oldest_waiting_s or 0.0 for state in others), default=0))
    yield waiting
    yield oldest


def _workers(count: int) -> Iterator[Metric]:
    yield GaugeMetricFamily("setpoint_workers", "Nodes with a live heartbeat.", value=count)


def _webhooks(outcomes: dict[str, int], pending: int) -> Iterator[Metric]:
    tried = CounterMetricFamily(
        "setpoint_webhook_attempts", "Tries to deliver a webhook, by outcome.", labels=("outcome",)
    )
    for outcome, count in sorted(outcomes.items()):
        tried.add_metric((outcome,), count)
    yield tried
    yield GaugeMetricFamily(
        "setpoint_webhooks_pending", "Webhooks that are due or wait for a retry.", value=pending
    )


def _up(value: int) -> Metric:
    return GaugeMetricFamily("setpoint_store_up", "Whether the store answers.", value=value)
