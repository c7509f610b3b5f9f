"""DECISION.md: what was decided and why, for people who review the change."""

import json
import re
import shlex
from collections.abc import Sequence
from functools import lru_cache

from api_schemas.base import Json
from api_schemas.estimate import MemoryBreakdown, Performance
from api_schemas.explanation import Decision, Finding, Source
from api_schemas.recommendation import RenderedFile
from api_schemas.slo import TargetOutcome
from service.tuning.hardware.spec import Node
from service.tuning.render.image import why_not_in_a_container
from service.tuning.render.rendering import Rendering
from service.tuning.render.signals import watch_list
from service.tuning.render.text import one_line

_SHORT = 512
"""Characters of texts that are remembered: reasons and sources repeat."""
_UNSAFE = re.compile(r"[\\|`*_<>\[\]#]")
_ESCAPED = str.maketrans({mark: f"\\{mark}" for mark in "\\|`*_<>[]#"})


def decision_record(rendering: Rendering) -> RenderedFile:
    """Return DECISION.md; parts that nothing is known of are left out.

    What would not start gets no command to copy and nothing to watch.
    """
    starts = rendering.estimate is None or rendering.estimate.fits
    parts = [
        _title(rendering),
        _command(rendering) if starts else "",
        _settings(rendering.decisions),
        _memory(rendering),
        _prediction(rendering),
        _targets(rendering),
        _findings(rendering.findings),
        _watch(rendering) if starts else "",
        _not_rendered(rendering),
        _provenance(rendering),
    ]
    content = "\n\n".join(part for part in parts if part) + "\n"
    return RenderedFile(path="DECISION.md", media_type="text/markdown", content=content)


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return _escaped(text) if len(text) <= _SHORT else _escaped.__wrapped__(text)


@lru_cache(maxsize=4096)
def _escaped(text: str) -> str:
    line = one_line(text)
    return line.translate(_ESCAPED) if _UNSAFE.search(line) else line


def _hardware(node: Node) -> str:
    gpus = f"{node.gpus_per_node} x {node.gpu.name}"
    return gpus if node.nodes == 1 else f"{node.nodes} machines of {gpus}"


def _title(rendering: Rendering) -> str:
    node = rendering.node
    lines = [
        f"# {escape(rendering.headline or rendering.model_id)}",
        "",
        *_table(
            ("what", "value"),
            [
                ("model", rendering.model_id),
                ("vLLM", rendering.version.text),
                ("hardware", _hardware(node)),
                ("GPUs per server", str(rendering.gpus_per_replica)),
                ("servers", str(rendering.replicas)),
            ],
        ),
    ]
    if rendering.assumptions:
        lines += ["", "Assumed, since not said:", ""]
        lines += [f"- {escape(assumption)}" for assumption in rendering.assumptions]
    return "\n".join(lines)


def _command(rendering: Rendering) -> str:
    command = shlex.join(rendering.argv)
    fence = "````" if "```" in command else "```"
    return f"## Command\n\n{fence}sh\n{command}\n{fence}"


def _settings(decisions: tuple[Decision, ...]) -> str:
    if not decisions:
        return ""
    columns = (
        "setting",
        "value",
        "reason",
        "formula",
        "inputs",
        "source",
        "confidence",
        "if higher",
        "if lower",
    )
    rows = [
        (
            decision.setting,
            _value(decision.value),
            decision.reason,
            decision.formula or "",
            ", ".join(f"{name} = {_value(value)}" for name, value in decision.inputs.items()),
            _sources(decision.source),
            decision.confidence,
            decision.if_higher,
            decision.if_lower,
        )
        for decision in decisions
    ]
    return "\n".join(["## Settings", "", *_table(columns, rows)])


def _memory(rendering: Rendering) -> str:
    memory = None if rendering.estimate is None else rendering.estimate.memory
    if memory is None:
        return ""
    rows = [(name, f"{gib:.2f} GiB") for name, gib in _memory_parts(memory).items()]
    rows += [
        ("KV cache tokens", f"{memory.kv_cache_tokens:,}"),
        ("KV bytes per token", f"{memory.kv_bytes_per_token:,.0f}"),
        ("longest request", f"{memory.max_model_len:,} tokens"),
        ("requests of that length at once", f"{memory.max_concurrency:.2f}"),
    ]
    return "\n".join(["## Memory of one GPU", "", *_table(("part", "size"), rows)])


def _memory_parts(memory: MemoryBreakdown) -> dict[str, float]:
    return {
        "total": memory.total_gib,
        "claimed by vLLM": memory.requested_gib,
        "weights": memory.weights_gib,
        "activations": memory.activation_gib,
        "outside PyTorch": memory.non_torch_gib,
        "CUDA graphs": memory.cuda_graphs_gib,
        "KV cache": memory.kv_cache_gib,
    }


def _prediction(rendering: Rendering) -> str:
    performance = None if rendering.estimate is None else rendering.estimate.performance
    if rendering.estimate is None or performance is None:
        return ""
    rows = [
        (name, *(f"{value:.1f}" for value in (p.mean, p.p50, p.p90, p.p95, p.p99)))
        for name, p in {
            "TTFT": performance.ttft_ms,
            "TPOT": performance.tpot_ms,
            "ITL": performance.itl_ms,
            "E2E": performance.e2el_ms,
        }.items()
    ]
    columns = ("ms", "mean", "p50", "p90", "p95", "p99")
    return "\n".join(
        [
            f"## Prediction of one server (basis: {rendering.estimate.basis})",
            "",
            *_table(columns, rows),
            "",
            _throughput(performance),
        ]
    )


def _throughput(performance: Performance) -> str:
    state = "saturated" if performance.saturated else "not saturated"
    return (
        f"{performance.requests_per_s:.2f} requests/s, {performance.output_tokens_per_s:.0f} output"
        f" tokens/s, {performance.running_requests:.1f} requests running,"
        f" {performance.waiting_requests:.1f} waiting, KV cache {performance.kv_cache_usage:.0%} in"
        f" use, {performance.preemptions_per_request:.3f} preemptions per request; {state}."
    )


def _targets(rendering: Rendering) -> str:
    outcomes = [] if rendering.estimate is None else rendering.estimate.slo
    if not outcomes:
        return ""
    rows = [(_target(o), _predicted(o), f"{o.margin:+.0%}", o.verdict) for o in outcomes]
    return "\n".join(
        ["## Targets", "", *_table(("target", "predicted", "margin", "verdict"), rows)]
    )


def _target(outcome: TargetOutcome) -> str:
    return ", ".join(f"{name} {value}" for name, value in outcome.target.items())


def _predicted(outcome: TargetOutcome) -> str:
    if outcome.predicted_ms is not None:
        return f"{outcome.predicted_ms:.1f} ms"
    return "" if outcome.predicted is None else f"{outcome.predicted:.3g}"


def _findings(findings: tuple[Finding, ...]) -> str:
    if not findings:
        return ""
    rows = [
        (f.rule, f.severity, f.setting or "", f.message, f.suggestion or "", _sources(f.source))
        for f in findings
    ]
    columns = ("rule", "severity", "setting", "finding", "suggestion", "source")
    return "\n".join(["## Findings", "", *_table(columns, rows)])


def _watch(rendering: Rendering) -> str:
    watches = watch_list(
        rendering.version,
        slo=rendering.slo,
        config=rendering.effective or rendering.config,
        model_name=rendering.metrics_model_name,
    )
    rows = [(w.metric, w.threshold, w.meaning, w.then) for w in watches]
    return "\n".join(
        ["## Watch", "", *_table(("expression", "threshold", "meaning", "then"), rows)]
    )


def _not_rendered(rendering: Rendering) -> str:
    reason = why_not_in_a_container(rendering)
    return f"## No container files\n\n{escape(reason)}." if reason else ""


def _provenance(rendering: Rendering) -> str:
    if rendering.estimate is None:
        return ""
    made = rendering.estimate.provenance
    return (
        f"Made by Setpoint {made.setpoint_version}: catalogue {made.catalogue_version},"
        f" coefficients {made.coefficients_version}, seed {made.seed}."
    )


def _sources(sources: list[Source]) -> str:
    return "; ".join(f"{source.title} ({source.where})" for source in sources)


def _value(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a Markdown table; every cell is escaped."""
    return [
        f"| {' | '.join(columns)} |",
        f"|{' --- |' * len(columns)}",
        *(f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows),
    ]
