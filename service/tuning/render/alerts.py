"""alerts.yaml: Prometheus rules with the metric names of that release."""

from api_schemas.base import Json
from api_schemas.recommendation import RenderedFile
from service.tuning.engine.facts import metric_name
from service.tuning.render.rendering import Rendering
from service.tuning.render.signals import Signal, label_selector, signals
from service.tuning.render.text import dump_yaml, header, one_line


def alerts(rendering: Rendering) -> RenderedFile:
    """Return alerts.yaml: one group of rules for this model."""
    found = signals(
        rendering.version,
        slo=rendering.slo,
        config=rendering.effective or rendering.config,
        model_name=rendering.metrics_model_name,
    )
    rules = [_absent(rendering), *(_rule(signal, rendering) for signal in found)]
    document = {"groups": [{"name": rendering.name, "rules": rules}]}
    return RenderedFile(
        path="alerts.yaml",
        media_type="application/yaml",
        content=dump_yaml(document, notes=header(rendering)),
    )


def _rule(signal: Signal, rendering: Rendering) -> dict[str, Json]:
    return {
        "alert": signal.alert,
        "expr": signal.condition,
        "for": f"{signal.minutes}m",
        "labels": {"severity": signal.severity, "service": rendering.name},
        "annotations": {
            "summary": _plain(f"{rendering.metrics_model_name}: {signal.meaning}"),
            "description": _plain(signal.then),
        },
    }


def _absent(rendering: Rendering) -> dict[str, Json]:
    name = metric_name("running", rendering.version)
    signal = Signal(
        alert="VllmAbsent",
        expression=f"absent({name}{label_selector(rendering.metrics_model_name)})",
        limit=0,
        unit="",
        minutes=5,
        severity="critical",
        meaning="no server reports metrics",
        then="look at the pod or container: its last log lines name the cause",
    )
    return _rule(signal, rendering)


def _plain(text: str) -> str:
    """Return text that Prometheus does not take for a template."""
    return one_line(text).replace("{{", "{ {")
