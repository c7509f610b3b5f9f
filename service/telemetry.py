"""OpenTelemetry, where the extra `telemetry` is installed and an address of a collector is set.

Spans say which operation ran for how long and how it ended: never what was asked.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import structlog

from service.log import get_logger
from service.trace_context import incoming_traceparent, trace_id_of
from service.tuning.provenance import setpoint_version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

_TRACER = "setpoint"
_TRACES_PATH = "/v1/traces"
_FLUSH_MS = 5000
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_log = get_logger(__name__)


def start_telemetry(*, endpoint: str | None, service: str) -> "TracerProvider | None":
    """Return what makes and sends spans; None when it is off or not installed.

    Args:
        endpoint: Address of an OTLP/HTTP collector, without the path of a signal.
        service: Name of this process's service, unless OTEL_SERVICE_NAME or
            OTEL_RESOURCE_ATTRIBUTES say another.
    """
    if endpoint is None:
        return None
    if not is_installed():
        _log.warning("telemetry_not_installed", hint="pip install 'setpoint[telemetry]'")
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415  # optional
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    ours = Resource({"service.name": service, "service.version": setpoint_version()})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
    exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + _TRACES_PATH)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def is_installed() -> bool:
    """Tell whether the extra is there."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in _NEEDED)
    except (ImportError, ValueError):
        return False


def current_traceparent() -> str | None:
    """Return the context that work started from here belongs to.

    That is the present span where there is one, else what the request brought along.
    """
    if "opentelemetry.trace" not in sys.modules:
        return incoming_traceparent()
    from opentelemetry.trace import get_current_span  # noqa: PLC0415  # optional

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return incoming_traceparent()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@contextlib.contextmanager
def job_span(
    name: str,
    *,
    traceparent: str | None,
    attributes: Mapping[str, str],
    endpoint: str | None,
) -> Iterator["Span | None"]:
    """Bind a job's log lines to the request that asked for it, and put them into one trace.

    The span is sent before the block ends: the job's process does not outlive it.
    """
    trace_id = None if traceparent is None else trace_id_of(traceparent)
    with structlog.contextvars.bound_contextvars(**({"trace_id": trace_id} if trace_id else {})):
        provider = start_telemetry(endpoint=endpoint, service="setpoint-worker")
        if provider is None:
            yield None
            return
        try:
            with _started(provider, name, traceparent=traceparent, attributes=attributes) as span:
                yield span
        finally:
            provider.force_flush(_FLUSH_MS)
            provider.shutdown()


@contextlib.contextmanager
def _started(
    provider: "TracerProvider",
    name: str,
    *,
    traceparent: str | None,
    attributes: Mapping[str, str],
) -> Iterator["Span"]:
    from opentelemetry.trace import SpanKind  # noqa: PLC0415  # optional
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    carrier = {} if traceparent is None else {"traceparent": traceparent}
    parent = TraceContextTextMapPropagator().extract(carrier)
    tracer = provider.get_tracer(_TRACER, setpoint_version())
    with tracer.start_as_current_span(
        name, context=parent, kind=SpanKind.CONSUMER, attributes=dict(attributes)
    ) as span:
        fields = {"trace_id": f"{span.get_span_context().trace_id:032x}"}
        with structlog.contextvars.bound_contextvars(**fields):
            yield span
