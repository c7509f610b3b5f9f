"""`setpoint validate`: prove a recommendation on a worker of a running service."""

import sys

import click
import msgspec
from rich.table import Table

from api_schemas.recommendation import Recommendation, TuningRequest
from api_schemas.validation import TERMINAL, LoadPoint, Validation, ValidationPlan
from service.cli import client
from service.cli.documents import decode, read_document
from service.cli.exit_codes import FAIL, INCONCLUSIVE, PASS
from service.cli.output import as_json_option, console, print_json, server_option
from service.cli.waiting import follow

_WAIT_S = 3
_MINUTES = 10
MODES = click.Choice(["boot", "quick", "knee", "compare", "soak"])
EXIT_CODES = {"pass": PASS, "fail": FAIL, "inconclusive": INCONCLUSIVE, None: INCONCLUSIVE}


@click.command()
@click.argument("identifier", metavar="[ID]", required=False)
@click.option(
    "-f", "--file", "source", metavar="REQUEST", help="Ask for advice on this first: JSON, YAML."
)
@click.option("--mode", type=MODES, default="quick", show_default=True, help="How thoroughly.")
@click.option(
    "--minutes", type=float, default=_MINUTES, show_default=True, help="Most it may take."
)
@click.option("--model-path", metavar="PATH", help="Folder of the model on the worker's node.")
@click.option("--node", help="Only this node.")
@click.option("--gpu", help="Any node with this GPU, whatever was recommended.")
@click.option("--queue-up", is_flag=True, help="Wait for a worker instead of being refused.")
@click.option("--wait", is_flag=True, help="Wait for the result and print it.")
@as_json_option
@server_option
def validate(
    *,
    identifier: str | None,
    source: str | None,
    server: str,
    wait: bool,
    as_json: bool,
    **options: str | float | bool | None,
) -> None:
    """Start vLLM as recommended, load it as asked, and show what was measured.

    ID is the id of a stored recommendation. Modes: boot (does it start, and is the memory as
    predicted), quick (also one load), knee (raise the load until it gives way), compare (against
    vLLM's defaults), soak (hold the load for the whole time). With --wait the exit code is 0 for a
    pass, 1 for a fail, 3 when nothing was proven; 2 is bad input and 4 a service that cannot be
    reached.
    """
    if (identifier is None) == (source is None):
        raise click.UsageError("give either the ID of a recommendation or a request with -f")
    recommendation = identifier or _recommend(server, str(source))
    validation = _start(server, recommendation, _plan(**options))
    if wait:
        validation = _follow(server, validation)
    _print(validation, as_json=as_json)
    if wait:
        sys.exit(EXIT_CODES[validation.verdict])


def prove(server: str, recommendation: str, *, mode: str) -> Validation:
    """Return the finished validation of a stored recommendation; progress goes to stderr."""
    plan = _plan(mode=mode, minutes=_MINUTES, queue_up=False, model_path=None)
    return _follow(server, _start(server, recommendation, plan))


def _start(server: str, recommendation: str, plan: ValidationPlan) -> Validation:
    path = f"/recommendations/{recommendation}/validations"
    validation = client.post(server, path, plan, Validation)
    click.echo(f"validation {validation.id}", err=True)
    return validation


def _recommend(server: str, source: str) -> str:
    request = decode(read_document(source), TuningRequest, source=source)
    made = client.post(server, "/recommendations", request, Recommendation)
    click.echo(f"recommendation {made.id}: {made.headline}", err=True)
    return made.id


def _plan(**options: str | float | bool | None) -> ValidationPlan:
    place = {name: options[name] for name in ("node", "gpu") if options.get(name)}
    body = {
        "mode": options["mode"],
        "max_minutes": options["minutes"],
        "when_no_worker": "wait" if options["queue_up"] else "reject",
    }
    if place:
        body["queue"] = place  # type: ignore[assignment]
    if options["model_path"]:
        body["model_path"] = options["model_path"]
    return decode(msgspec.json.encode(body), ValidationPlan)


def _follow(server: str, validation: Validation) -> Validation:
    path = f"/validations/{validation.id}"
    return follow(
        validation,
        ask=lambda: client.get(server, path, Validation, wait=_WAIT_S),
        is_ended=lambda record: record.status in TERMINAL,
        describe=lambda record: f"{record.status} {record.progress:.0%}",
    )


def _print(validation: Validation, *, as_json: bool) -> None:
    if as_json:
        print_json(validation)
        return
    page = console()
    page.print(f"{validation.id}: {validation.status}, verdict {validation.verdict or 'none yet'}")
    if validation.failure:
        page.print(f"{validation.failure.stage}: {validation.failure.reason}")
    for note in validation.notes:
        page.print(f"Note: {note}")
    if validation.startup:
        page.print(_startup(validation))
    if validation.load_points:
        page.print(_load_points(validation.load_points))
    if validation.slo:
        page.print(_targets(validation))
    if validation.knee:
        knee = validation.knee
        state = "confirmed" if knee.confirmed else "not confirmed"
        page.print(f"Knee: max_num_seqs {knee.max_num_seqs} ({state}): {knee.reason}")


def _startup(validation: Validation) -> Table:
    table = _table("Start-up", "", "measured", "predicted", "error %")
    startup = validation.startup
    assert startup is not None  # noqa: S101  # the caller asked
    for name in ("weights_gib", "kv_cache_gib", "kv_cache_tokens", "max_concurrency"):
        measured, predicted = getattr(startup, name), getattr(startup.predicted, name)
        table.add_row(name, *map(_cell, (measured, predicted, startup.error_percent.get(name))))
    return table


def _load_points(points: list[LoadPoint]) -> Table:
    table = _table(
        "Load", "", "requests/s", "tokens/s", "TTFT p95 ms", "TPOT p95 ms", "preemptions", "KV peak"
    )
    for point in points:
        cells = (
            point.requests_per_s,
            point.output_tokens_per_s,
            point.ttft_ms.p95,
            point.tpot_ms.p95,
            point.preemptions,
            point.kv_cache_usage_peak,
        )
        table.add_row(point.label, *map(_cell, cells))
    return table


def _targets(validation: Validation) -> Table:
    table = _table("Targets", "", "limit", "measured", "verdict")
    for outcome in validation.slo:
        target = outcome.target
        name = f"{target['metric']} {_percentile(target.get('percentile'))}".strip()
        limit = target.get("limit_ms", target.get("limit"))
        table.add_row(name, _cell(limit), _cell(outcome.measured), outcome.verdict)
    return table


def _percentile(value: object) -> str:
    """Return `p95` for 95, and what is no number as it is."""
    text = "" if value is None else str(value)
    return f"p{text}" if text.isdigit() else text


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1 else f"{value:,.1f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
