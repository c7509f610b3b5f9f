"""Spans of requests, by the framework's own OpenTelemetry plugin; imported only when on."""

from typing import Any

from litestar.plugins.opentelemetry import OpenTelemetryConfig, OpenTelemetryPlugin
from litestar.types import Scope
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider

_NOT_TRACED = [r"^/livez$", r"^/readyz$", r"^/metrics$"]


def tracing_plugin(provider: TracerProvider) -> OpenTelemetryPlugin:
    """Return the plugin that makes a span of every request but health checks and scrapes."""
    return OpenTelemetryPlugin(
        OpenTelemetryConfig(
            tracer_provider=provider,
            meter_provider=NoOpMeterProvider(),  # metrics are at /metrics
            exclude=_NOT_TRACED,
            exclude_spans=["receive", "send"],
            scope_span_details_extractor=_name_and_route,
        )
    )


def _name_and_route(scope: Scope) -> tuple[str, dict[str, Any]]:
    """Return the route's template: a raw path would be a name of its own for every record."""
    route = str(scope.get("path_template") or "unmatched")
    return f"{scope.get('method', '')} {route}", {"http.route": route}
