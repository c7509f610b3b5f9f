"""Spans of requests, by the framework's own OpenTelemetry plugin; imported only when on.

The plugin works outside the router, so that a span gets its name when the route is known.
"""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.plugins.opentelemetry import OpenTelemetryConfig, OpenTelemetryPlugin
from litestar.types import Scope
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, get_current_span

_NOT_TRACED = [r"^/livez$", r"^/readyz$", r"^/metrics$"]
_ADDRESSES = ("http.target", "http.url", "url.full")
_QUERY = "url.query"


def tracing_plugin(provider: TracerProvider) -> OpenTelemetryPlugin:
    """Return the plugin that makes a span of every request but health checks and scrapes."""
    return OpenTelemetryPlugin(
        OpenTelemetryConfig(
            tracer_provider=provider,
            meter_provider=NoOpMeterProvider(),  # metrics are at /metrics
            exclude=_NOT_TRACED,
            exclude_spans=["receive", "send"],
            scope_span_details_extractor=_unmatched,
            server_request_hook_handler=_leave_out_the_query,
        )
    )


async def name_span(
    connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
) -> None:
    """Name the span by the route's template: a path would be a name for every single record."""
    del handler
    route = str(connection.scope.get("path_template", ""))
    span = get_current_span()
    span.update_name(f"{connection.scope.get('method', '')} {route}")
    span.set_attribute("http.route", route)


def _unmatched(scope: Scope) -> tuple[str, dict[str, Any]]:
    return f"{scope.get('method', '')} unmatched", {}


def _leave_out_the_query(span: Span, scope: dict[str, Any]) -> None:
    """Keep what was asked for, such as labels, out of the span."""
    del scope
    known = getattr(span, "attributes", None) or {}
    for name in _ADDRESSES:
        if name in known:
            span.set_attribute(name, str(known[name]).partition("?")[0])
    if _QUERY in known:
        span.set_attribute(_QUERY, "")
