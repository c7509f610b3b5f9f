"""`setpoint check`: the gate, offline or against a service."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from api_schemas.check import (
    Baseline,
    BaselineFigures,
    CheckReport,
    CheckRequest,
    Policy,
    PolicyFile,
)
from api_schemas.engine import Engine
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.workload import Workload
from service.cli import client
from service.cli.check_files import collect
from service.cli.documents import decode, read_document, refused
from service.cli.exit_codes import FAIL, INCONCLUSIVE, PASS
from service.cli.hub import ResolveModel, hub_option, resolver
from service.cli.spoken import spoken_findings
from service.reports.schemas import SCHEMA_NAMES, json_schema

_FORMATS = ("text", "json", "sarif", "junit", "markdown", "github", "gitlab")
_EXIT_CODES = {"pass": PASS, "fail": FAIL, "inconclusive": INCONCLUSIVE}
_DEFAULT_POLICY = "setpoint.yaml"


@click.command()
@click.argument("paths", nargs=-1, metavar="FILE...")
@click.option("--command", metavar="TEXT", help="Check this command instead of files.")
@click.option("--gpu", help="GPU name, alias or cloud instance; memory is judged for it.")
@click.option("--gpus-per-node", type=int, help="GPUs in the node; what the settings need if left.")
@click.option("--model", help="Model id, where the files do not name it.")
@click.option("--preset", help="Workload preset, see `setpoint presets`.")
@click.option("--engine-version", "--to", help="vLLM version that will run; else the image's tag.")
@click.option("--from", "from_version", metavar="VERSION", help="Report what changed since then.")
@click.option(
    "--policy", metavar="FILE", help=f"Policy; {_DEFAULT_POLICY} of this folder if it exists."
)
@click.option("--baseline", metavar="FILE", help="JSON report of an earlier check to compare with.")
@click.option("--require-measured", type=int, metavar="DAYS", help="Ask for a measurement.")
@click.option("--format", "output", type=click.Choice(_FORMATS), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--report", "reports", multiple=True, metavar="FORMAT=FILE", help="Write one more.")
@click.option("--fix", is_flag=True, help="Correct the files in place; comments stay.")
@click.option("--ignore-empty", is_flag=True, help="Exit with 0 where no engine is found.")
@click.option("--report-only", is_flag=True, help="Exit with 0 whatever is found.")
@click.option("--schema", type=click.Choice(SCHEMA_NAMES), help="Print a JSON Schema and end.")
@click.option("--server", metavar="URL", help="Ask a running service instead of this process.")
@hub_option
def check(  # one parameter per option
    *,
    paths: tuple[str, ...],
    command: str | None,
    output: str,
    as_json: bool,
    reports: tuple[str, ...],
    ignore_empty: bool,
    report_only: bool,
    schema: str | None,
    server: str | None,
    hub: bool,
    **options: Any,  # noqa: ANN401  # what click collected from the remaining options
) -> None:
    """Check commands, manifests and scripts before they are rolled out.

    FILE may be a folder, or - for standard input. Exit codes: 0 pass, 1 fail, 2 usage or unreadable
    input, 3 inconclusive, 4 the service cannot be reached.
    """
    if schema is not None:
        click.echo(json_schema(schema), nl=False)
        return
    wanted = [_report_target(text) for text in reports]
    request = _request(paths, command, options)
    report = _ask(request, server, resolve_model=resolver(uses_hub=hub))
    _write_fixes(report)
    for name, target in wanted:
        Path(target).write_text(_render(report, name), encoding="utf-8")
    click.echo(_render(report, "json" if as_json else output, is_shown=True), nl=False)
    is_empty = not report.engines and not report.counts.error
    is_let_pass = report_only or (ignore_empty and is_empty)
    sys.exit(PASS if is_let_pass else _EXIT_CODES[report.verdict])


def _report_target(text: str) -> tuple[str, str]:
    name, equals, target = text.partition("=")
    if not equals or name not in _FORMATS or not target:
        raise click.UsageError(f"--report takes FORMAT=FILE with one of {', '.join(_FORMATS)}")
    return name, target


def _request(paths: tuple[str, ...], command: str | None, options: dict[str, Any]) -> CheckRequest:
    if bool(paths) == bool(command):
        raise click.UsageError("give files, or one command with --command")
    policy_file = _policy_file(options["policy"])
    version = options["engine_version"] or policy_file.engine_version
    model = ModelRef(id=options["model"]) if options["model"] else policy_file.model
    workload = Workload(preset=options["preset"]) if options["preset"] else policy_file.workload
    request = CheckRequest(
        files=collect(paths) if paths else None,
        command=command,
        model=model,
        hardware=_hardware(options, policy_file),
        workload=workload,
        slo=policy_file.slo,
        engine=Engine(version=version) if version else None,
        from_version=options["from_version"],
        policy=_policy(policy_file, options),
        baseline=_baseline(options["baseline"]),
        fix=options["fix"],
    )
    # Through the wire's own checks: options are held to the same bounds as requests.
    return decode(msgspec.json.encode(request), CheckRequest)


def _policy_file(path: str | None) -> PolicyFile:
    if path is None and not Path(_DEFAULT_POLICY).is_file():
        return PolicyFile()
    source = path or _DEFAULT_POLICY
    return decode(read_document(source), PolicyFile, source=source)


def _policy(file: PolicyFile, options: dict[str, Any]) -> Policy:
    policy = Policy(**{name: getattr(file, name) for name in Policy.__struct_fields__})
    days = options["require_measured"]
    if days is None:
        return policy
    return msgspec.structs.replace(policy, require_measured_within_days=days)


def _hardware(options: dict[str, Any], file: PolicyFile) -> Hardware | None:
    if options["gpu"]:
        return Hardware(gpu=options["gpu"], gpus_per_node=options["gpus_per_node"])
    if options["gpus_per_node"] and file.hardware is not None:
        return msgspec.structs.replace(file.hardware, gpus_per_node=options["gpus_per_node"])
    return file.hardware


def _baseline(path: str | None) -> Baseline | None:
    if path is None:
        return None
    earlier = decode(read_document(path), CheckReport)
    engines = [BaselineFigures(engine=e.title[:256], figures=e.figures) for e in earlier.engines]
    return Baseline(name=Path(path).name, fingerprints=earlier.fingerprints, engines=engines)


def _ask(request: CheckRequest, server: str | None, *, resolve_model: ResolveModel) -> CheckReport:
    if server:
        return client.post(server, "/checks", request, CheckReport)
    # Imported on use: the rules pull in every fact that they judge by.
    from service.tuning.check import check as check_offline  # noqa: PLC0415

    today = datetime.now(UTC).date().isoformat()
    report = check_offline(request, today=today, resolve_model=resolve_model)
    return msgspec.structs.replace(report, findings=spoken_findings(report.findings))


def _render(report: CheckReport, name: str, *, is_shown: bool = False) -> str:
    from service.reports.formats import FORMATS  # noqa: PLC0415  # needs the rules
    from service.reports.text import render_coloured_text  # noqa: PLC0415

    if name == "text" and is_shown and sys.stdout.isatty():
        return render_coloured_text(report)
    return FORMATS[name].render(report)


def _write_fixes(report: CheckReport) -> None:
    for file in report.fixed_files:
        if file.path == "-":
            continue
        try:
            Path(file.path).write_text(file.content, encoding="utf-8", newline="")
        except OSError as error:
            raise refused(f"cannot write {file.path}: {error.strerror}") from error
        click.echo(f"corrected {file.path}", err=True)
