"""`setpoint measurements` and `setpoint calibrations`: what was measured, and what it taught."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from api_schemas.base import Json
from api_schemas.measurement import (
    Calibration,
    CalibrationList,
    Measurement,
    MeasurementPage,
    MeasurementRequest,
    MeasurementsCreated,
    Statistics,
)
from service.cli import client
from service.cli.documents import decode, read_document, refused
from service.cli.output import as_json_option, print_json, print_rows, server_option

_FIGURES = frozenset({"observed", "report"})
_STATED = ("model", "hardware", "engine", "workload")
"""What a document says of the thing that was measured; all else in it is left aside."""
_TOOLS = click.Choice(["stated", "vllm_bench", "guidellm", "validation"])
_COLUMNS = (
    "id",
    "model",
    "gpu",
    "vLLM",
    "load",
    "TTFT ms",
    "TPOT ms",
    "output tokens/s",
    "from",
)


@click.group()
def measurements() -> None:
    """Add measured loads to a service, and show those it has."""


@measurements.command(name="list")
@click.option("--model", help="Only of this model id.")
@click.option("--gpu", help="Only of this GPU.")
@click.option("--engine-version", help="Only of this vLLM version.")
@click.option("--tool", type=_TOOLS, help="Only figures that came from this.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@as_json_option
@server_option
def list_measurements(*, as_json: bool, server: str, **filters: str | int | None) -> None:
    """Show what was measured, newest first."""
    page = client.get(server, "/measurements", MeasurementPage, **filters)
    if as_json:
        print_json(page)
        return
    print_rows("measurements", _COLUMNS, map(_row, page.items))


@measurements.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "-f",
    "--file",
    "source",
    metavar="WHAT",
    help="JSON or YAML with model, hardware, engine and, if need be, workload that were measured.",
)
@click.option("--model", help="Id of the measured model, in place of a document.")
@click.option("--gpu", help="GPU name, alias or cloud instance.")
@click.option("--gpus-per-node", type=int, help="GPUs in the node.")
@click.option("--engine-version", help="vLLM version that ran.")
@click.option("--reference", help="Where the figures come from, for people.")
@as_json_option
@server_option
def add(
    *,
    files: Sequence[str],
    source: str | None,
    reference: str | None,
    as_json: bool,
    server: str,
    **options: Any,  # noqa: ANN401  # what click collected of the measured thing
) -> None:
    """Post the result of `vllm bench serve --save-result` or a GuideLLM report, as JSON.

    A report does not say what it ran on: -f or the options do. A FILE may also be a whole request
    as the service takes it. Two or more loads of one configuration calibrate its next estimates.
    """
    stated = _stated(source, options)
    requests = [_request(file, stated, reference=reference) for file in files]
    answers = [
        client.post(server, "/measurements", request, MeasurementsCreated) for request in requests
    ]
    found = {row.configuration: row for answer in answers for row in answer.calibrations}
    stored = [item for answer in answers for item in answer.items]
    if as_json:
        print_json(MeasurementsCreated(items=stored, calibrations=list(found.values())))
        return
    print_rows("measurements", _COLUMNS, map(_row, stored))
    _print_calibrations(list(found.values()))


@click.command()
@click.option("--gpu", help="Only of this GPU.")
@click.option("--model", help="Only of this model id.")
@click.option("--status", type=click.Choice(["used", "refused"]), help="Only with this status.")
@as_json_option
@server_option
def calibrations(*, as_json: bool, server: str, **filters: str | None) -> None:
    """Show what the measurements of each configuration changed, and whether answers use it."""
    found = client.get(server, "/calibrations", CalibrationList, **filters)
    if as_json:
        print_json(found)
        return
    _print_calibrations(found.items)


def _stated(source: str | None, options: Mapping[str, Any]) -> dict[str, Json]:
    """Return what the caller says of the measured thing; options win over the document."""
    stated: dict[str, Json] = {}
    if source is not None:
        document = decode(read_document(source), dict[str, Json], source=source)
        stated = {name: document[name] for name in _STATED if name in document}
    if options["model"]:
        stated["model"] = {"id": options["model"]}
    if options["gpu"]:
        stated["hardware"] = {"gpu": options["gpu"]}
    if options["gpus_per_node"]:
        stated["hardware"] = {
            **_object(stated, "hardware"),
            "gpus_per_node": options["gpus_per_node"],
        }
    if options["engine_version"]:
        stated["engine"] = {**_object(stated, "engine"), "version": options["engine_version"]}
    return stated


_OPTION_OF = {"model": "--model", "hardware": "--gpu", "engine": "--engine-version"}


def _object(stated: Mapping[str, Json], name: str) -> dict[str, Json]:
    value = stated.get(name)
    return value if isinstance(value, dict) else {}


def _request(file: str, stated: Mapping[str, Json], *, reference: str | None) -> MeasurementRequest:
    document = decode(read_document(file), dict[str, Json], source=file)
    is_whole = bool(_FIGURES & document.keys())
    body: dict[str, Json] = {**document, **stated} if is_whole else {**stated, "report": document}
    missing = [name for name in _OPTION_OF if name not in body]
    if missing:
        options = " ".join(_OPTION_OF[name] for name in missing)
        what = " and ".join(missing)
        raise refused(f"{file} does not say {what}: state it with {options}, or in a file with -f")
    if reference is not None or not is_whole:
        body["reference"] = reference or file
    return decode(msgspec.json.encode(body), MeasurementRequest, source=file)


def _row(item: Measurement) -> tuple[str | None, ...]:
    observed = item.observed
    rate = observed.output_tokens_per_s
    return (
        item.id,
        item.model.id,
        item.hardware.gpu,
        item.engine.version,
        _load(item),
        _typical(observed.ttft_ms),
        _typical(observed.tpot_ms),
        None if rate is None else f"{rate:,.1f}",
        item.source.tool,
    )


def _load(item: Measurement) -> str:
    arrivals = item.workload.arrivals
    if arrivals is None:
        return ""
    fields = msgspec.to_builtins(arrivals)
    kind = str(fields.pop("kind", "")).replace("_", " ")
    plain = {name: value for name, value in fields.items() if not isinstance(value, list)}
    return " ".join([kind, *(f"{name}={value}" for name, value in plain.items())])


def _typical(values: Statistics | None) -> str | None:
    if values is None:
        return None
    value = values.mean or values.p50 or values.unspecified
    return None if value is None else f"{value:,.1f}"


def _print_calibrations(found: Sequence[Calibration]) -> None:
    print_rows(
        "calibrations",
        ("configuration", "model", "gpu", "vLLM", "TP", "points", "status", "reason"),
        (
            (
                row.configuration,
                row.model,
                row.gpu,
                row.engine_version,
                row.tensor_parallel_size,
                len(row.measurement_ids),
                row.status,
                row.reason,
            )
            for row in found
        ),
    )
