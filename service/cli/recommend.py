"""`setpoint recommend`: advice for one request."""

import sys
from pathlib import Path, PurePosixPath
from typing import Any

import click
import msgspec

from api_schemas.recommendation import Advice, Recommendation, RenderedFile, TuningRequest
from service.cli import client
from service.cli.documents import decode, read_document, refused
from service.cli.exit_codes import FAIL
from service.cli.hub import ResolveModel, hub_option, resolver
from service.cli.output import console, print_advice
from service.cli.validate import EXIT_CODES, MODES, prove

_FORMATS = click.Choice(["table", "json", "markdown"])


@click.command()
@click.option("-f", "--file", "source", metavar="REQUEST", help="JSON or YAML file, - for stdin.")
@click.option("--model", help="Model id, in place of a request file.")
@click.option("--gpu", help="GPU name, alias or cloud instance.")
@click.option(
    "--gpus-per-node", type=int, help="GPUs in the node.  [default: one, or the instance's]"
)
@click.option("--preset", help="Workload, see `setpoint presets`.  [default: chat]")
@click.option("--users", type=int, help="People who will use it; converted to a request rate.")
@click.option("--ttft-ms", type=float, help="Limit of the time to first token at p95.")
@click.option("--tpot-ms", type=float, help="Limit of the time per output token at p95.")
@click.option("--engine-version", help="vLLM version that will run.")
@click.option("--format", "output", type=_FORMATS, default="table", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--write-files", metavar="DIR", help="Write the rendered files into this folder.")
@click.option("--server", metavar="URL", help="Ask a running service instead of this process.")
@click.option(
    "--wait-for-validation",
    "proof",
    type=MODES,
    help="Prove it on a worker of the service before ending; the verdict is the exit code.",
)
@hub_option
def recommend(
    *,
    source: str | None,
    output: str,
    as_json: bool,
    write_files: str | None,
    server: str | None,
    proof: str | None,
    hub: bool,
    **fields: Any,  # noqa: ANN401  # what click collected from the remaining options
) -> None:
    """Print settings with reasons, predicted memory and latency, and write files on request.

    The exit code is 0 when the targets can be met and 1 when they cannot. With
    --wait-for-validation it is 0 when the proof passes, 1 when it fails, 3 when nothing is proven.
    """
    if proof and not server:
        raise click.UsageError("--wait-for-validation needs --server: a worker proves it")
    advice = _ask(_request(source, fields), server, resolve_model=resolver(uses_hub=hub))
    if write_files:
        write(advice.files, Path(write_files))
    _print(advice, "json" if as_json else output)
    if not advice.feasible:
        sys.exit(FAIL)
    if proof and server and isinstance(advice, Recommendation):
        sys.exit(EXIT_CODES[prove(server, advice.id, mode=proof).verdict])


def write(files: list[RenderedFile], folder: Path) -> None:
    """Write rendered files below a folder; their paths can never leave it."""
    for file in files:
        relative = PurePosixPath(file.path)
        if relative.is_absolute() or ".." in relative.parts:
            raise refused(f"the file path {file.path} leaves the folder")
        target = folder.joinpath(*relative.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.content, encoding="utf-8")
        if target.suffix == ".sh":
            target.chmod(0o755)
        click.echo(f"wrote {target}", err=True)


def _request(source: str | None, fields: dict[str, Any]) -> TuningRequest:
    given = {name: value for name, value in fields.items() if value is not None}
    if source is not None:
        if given:
            raise click.UsageError("give either a request file or options, not both")
        return decode(read_document(source), TuningRequest, source=source)
    if "model" not in given or "gpu" not in given:
        raise click.UsageError("give a request with -f, or at least --model and --gpu")
    return decode(msgspec.json.encode(_body(given)), TuningRequest)


def _body(given: dict[str, Any]) -> dict[str, Any]:
    hardware = {"gpu": given["gpu"]}
    if "gpus_per_node" in given:
        hardware["gpus_per_node"] = given["gpus_per_node"]
    body: dict[str, Any] = {"model": {"id": given["model"]}, "hardware": hardware}
    workload: dict[str, Any] = {}
    if "preset" in given:
        workload["preset"] = given["preset"]
    if "users" in given:
        workload["arrivals"] = {"kind": "users", "users": given["users"]}
    if workload:
        body["workload"] = workload
    targets = [
        {"metric": metric, "percentile": 95, "limit_ms": given[f"{metric}_ms"]}
        for metric in ("ttft", "tpot")
        if f"{metric}_ms" in given
    ]
    if targets:
        body["slo"] = {"targets": targets}
    if "engine_version" in given:
        body["engine"] = {"version": given["engine_version"]}
    return body


def _ask(
    request: TuningRequest, server: str | None, *, resolve_model: ResolveModel
) -> Advice | Recommendation:
    if server:
        return client.post(server, "/recommendations", request, Recommendation)
    # Imported on use: asking a service needs no model.
    from service.tuning.recommend import recommend as recommend_offline  # noqa: PLC0415

    return recommend_offline(request, resolve_model=resolve_model)


def _print(advice: Advice | Recommendation, output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(advice)).decode())
    elif output == "markdown":
        record = next(file for file in advice.files if file.path == "DECISION.md")
        click.echo(record.content)
    else:
        print_advice(advice, console())
