"""What people read: tables of a recommendation, and lists of the catalogues."""

from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from api_schemas.base import Json
from api_schemas.estimate import Estimate
from api_schemas.explanation import Finding
from api_schemas.recommendation import Advice, Recommendation
from service.cli.spoken import spoken_findings

DEFAULT_SERVER = "http://127.0.0.1:8000"
server_option = click.option(
    "--server",
    metavar="URL",
    default=DEFAULT_SERVER,
    show_default=True,
    help="The running service to ask.",
)
"""For commands that only a service can carry out."""
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_MANY = 100.0
_UNBOUNDED_WIDTH = 10_000
_PIPED_WIDTH = 160
_STYLE = {"error": "bold red", "warning": "yellow", "note": "dim"}


class _Page(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main` how a command ends: rich would end with a code that is a verdict."""
        raise BrokenPipeError


def console() -> Console:
    """Return standard output for tables: brackets stay as they are, and files get wide lines."""
    found = _Page(markup=False)
    if not found.is_terminal:
        found.width = _PIPED_WIDTH
    return found


def print_json(answer: msgspec.Struct) -> None:
    """Print an answer as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())


def print_advice(advice: Advice | Recommendation, page: Console) -> None:
    """Print headline, settings with reasons, memory, latency, alternatives and findings."""
    page.print(Text(advice.headline, style="bold" if advice.feasible else "bold red"))
    if advice.binding:
        page.print(f"Binding: {advice.binding.constraint}: {advice.binding.detail}")
    if advice.nearest:
        page.print(f"Nearest: {advice.nearest.change} ({advice.nearest.detail})")
    for note in advice.request.assumptions:
        page.print(Text(f"Assumed: {note}", style="dim"))
    parts: list[RenderableType] = [_decisions(advice), _predictions(advice)]
    if advice.alternatives:
        parts.append(_alternatives(advice))
    if advice.findings:
        parts.append(_findings(advice.findings))
    page.print(Group(*parts))


def print_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a catalogue as a table on standard output."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column.replace("_", " "), overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    page = console()
    if not page.is_terminal:
        page.width = page.measure(table, options=_unbounded(page)).maximum
    page.print(table)


def _unbounded(page: Console) -> ConsoleOptions:
    return page.options.update(max_width=_UNBOUNDED_WIDTH)


def _decisions(advice: Advice | Recommendation) -> Table:
    table = Table(title="Settings", title_justify="left", show_lines=True)
    for column in ("setting", "value", "reason", "confidence"):
        table.add_column(column, overflow="fold")
    for decision in advice.decisions:
        value = "left to vLLM" if decision.value is None else _plain(decision.value)
        table.add_row(decision.setting, value, decision.reason, decision.confidence)
    return table


def _predictions(advice: Advice | Recommendation) -> Table:
    count = advice.replicas.count
    title = f"Prediction per replica: {count} recommended, vLLM's defaults over a whole node"
    table = Table(title=title if count > 1 else "Prediction", title_justify="left")
    for column in ("", "recommended", "vLLM defaults"):
        table.add_column(column)
    for name, recommended, baseline in zip(
        _figures_names(), _figures(advice.estimate), _figures(advice.baseline), strict=True
    ):
        table.add_row(name, recommended, baseline)
    return table


def _figures_names() -> list[str]:
    return [
        "fits",
        "KV cache tokens",
        "concurrency at full length",
        "TTFT p95 ms",
        "TPOT p95 ms",
        "requests/s",
        "output tokens/s",
        "preemptions per request",
    ]


def _figures(estimate: Estimate) -> list[str]:
    memory, performance = estimate.memory, estimate.performance
    cells = ["yes" if estimate.fits else "no"]
    cells += (
        [f"{memory.kv_cache_tokens:,}", f"{memory.max_concurrency:.2f}"] if memory else ["", ""]
    )
    if performance is None:
        return cells + [""] * 5
    return [
        *cells,
        f"{performance.ttft_ms.p95:,.0f}",
        f"{performance.tpot_ms.p95:,.1f}",
        _rate(performance.requests_per_s),
        _rate(performance.output_tokens_per_s),
        f"{performance.preemptions_per_request:.3f}",
    ]


def _alternatives(advice: Advice | Recommendation) -> Table:
    table = Table(title="Alternatives", title_justify="left")
    for column in ("label", "GPUs", "TTFT p95 ms", "TPOT p95 ms", "output tokens/s", "trade-off"):
        table.add_column(column, overflow="fold")
    for item in advice.alternatives:
        short = item.estimate
        table.add_row(
            item.label,
            str(item.replicas.gpus),
            _number(short.ttft_ms_p95),
            _number(short.tpot_ms_p95),
            _number(short.output_tokens_per_s),
            item.trade_off,
        )
    return table


def _findings(findings: Sequence[Finding]) -> Table:
    table = Table(title="Findings", title_justify="left", show_lines=True)
    for column in ("rule", "severity", "message", "suggestion"):
        table.add_column(column, overflow="fold")
    for finding in spoken_findings(findings):
        severity = Text(finding.severity, style=_STYLE[finding.severity])
        table.add_row(finding.rule, severity, finding.message, finding.suggestion or "")
    return table


def _rate(value: float) -> str:
    """Return a rate with what counts of it: a tiny one is not zero."""
    return f"{value:,.0f}" if value >= _MANY else f"{value:,.3g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _plain(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
