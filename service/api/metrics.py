"""Prometheus metrics of the API."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4"
"""Without the character set, which the framework adds to text."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters of one application in a registry of its own, beside what it shares with others.

    Where several processes serve side by side (`service.processes`), those of all are exposed.
    """

    def __init__(self, *shared: Collector) -> None:
        self._registry = CollectorRegistry()
        self._exposed = self._registry
        if values.ValueClass is not values.MutexValue:  # one of several processes
            self._exposed = CollectorRegistry()
            MultiProcessCollector(self._exposed)  # type: ignore[no-untyped-call]
        for collector in shared:
            self._exposed.register(collector)
        self._requests = Counter(
            "setpoint_http_requests",
            "Requests answered, by route, method and status.",
            ["route", "method", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "setpoint_http_request_seconds",
            "Time from a request's first byte to its answer's last, by route.",
            ["route", "method"],
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._in_flight = Gauge(
            "setpoint_http_requests_in_flight",
            "Requests in work.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._store_errors = Counter(
            "setpoint_store_errors",
            "Requests that failed because the store did not answer.",
            registry=self._registry,
        )
        self._rejected = Counter(
            "setpoint_http_requests_rejected",
            "Requests refused because too many were in flight.",
            registry=self._registry,
        )

        self._limited = Counter(
            "setpoint_rate_limited",
            "Requests refused because a key's budget was used up, by budget.",
            ["budget"],
            registry=self._registry,
        )
        self._unmetered = Counter(
            "setpoint_rate_limit_unchecked",
            "Requests let through because the store could not count them, by budget.",
            ["budget"],
            registry=self._registry,
        )

    def observe(self, *, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        known = method if method in _METHODS else "other"
        self._requests.labels(route=route, method=known, status=str(status)).inc()
        self._seconds.labels(route=route, method=known).observe(seconds)

    def set_in_flight(self, count: int) -> None:
        """Show how many requests are in work."""
        self._in_flight.set(count)

    def count_store_error(self) -> None:
        """Count a request that failed because of the store."""
        self._store_errors.inc()

    def count_rejected(self) -> None:
        """Count a request refused for want of room."""
        self._rejected.inc()

    def count_limited(self, budget: str) -> None:
        """Count a request refused because a budget was used up."""
        self._limited.labels(budget=budget).inc()

    def count_unmetered(self, budget: str) -> None:
        """Count a request that was let through uncounted."""
        self._unmetered.labels(budget=budget).inc()

    def families(self) -> list[Metric]:
        """Return every family with its samples."""
        return list(self._registry.collect())

    def expose(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._exposed)
