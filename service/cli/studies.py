"""`setpoint studies`: searches over settings that measure every trial on a worker."""

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from api_schemas.base import Json
from api_schemas.study import STUDY_ENDS, Study, StudyPage, StudyRequest, StudyTrial
from service.cli import client
from service.cli.documents import decode, read_document
from service.cli.exit_codes import FAIL, INCONCLUSIVE, PASS
from service.cli.output import as_json_option, print_json, print_rows, server_option
from service.cli.waiting import PAUSE_S, follow


@click.group()
def studies() -> None:
    """Start searches over settings on real hardware, and follow them.

    Where a command waits for the end, its exit code is 0 when a trial meets the targets, 1 when
    none does, and 3 when the study failed, was cancelled or ran out of time.
    """


@studies.command()
@click.option(
    "-f",
    "--file",
    "source",
    metavar="STUDY",
    required=True,
    help="JSON or YAML with the space and the budget, - for stdin.",
)
@click.option(
    "--recommendation", metavar="ID", help="Stored recommendation to start from, if not in it."
)
@click.option("--model-path", metavar="PATH", help="Folder of the model on the worker's node.")
@click.option("--queue-up", is_flag=True, help="Wait for a worker instead of being refused.")
@click.option("--wait", "waits", is_flag=True, help="Wait for the end.")
@as_json_option
@server_option
def create(
    *, source: str, waits: bool, as_json: bool, server: str, **options: str | bool | None
) -> None:
    """Start a study around a stored recommendation, under its load and its targets."""
    study = client.post(server, "/studies", _request(source, **options), Study)
    click.echo(f"study {study.id}", err=True)
    _end(_followed(server, study) if waits else study, as_json=as_json, decides=waits)


@studies.command()
@click.argument("identifier", metavar="ID")
@as_json_option
@server_option
def get(*, identifier: str, as_json: bool, server: str) -> None:
    """Show a study as far as it is."""
    _end(client.get(server, f"/studies/{identifier}", Study), as_json=as_json, decides=False)


@studies.command()
@click.argument("identifier", metavar="ID")
@as_json_option
@server_option
def wait(*, identifier: str, as_json: bool, server: str) -> None:
    """Wait for the end of a study, and show it."""
    study = client.get(server, f"/studies/{identifier}", Study)
    _end(_followed(server, study), as_json=as_json, decides=True)


@studies.command(name="list")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@as_json_option
@server_option
def list_studies(*, limit: int, as_json: bool, server: str) -> None:
    """Show the studies, newest first."""
    page = client.get(server, "/studies", StudyPage, limit=limit)
    if as_json:
        print_json(page)
        return
    print_rows(
        "studies",
        ("id", "created", "status", "progress", "trials", "best", "recommendation"),
        (
            (
                row.id,
                row.created_at,
                row.status,
                f"{row.progress:.0%}",
                row.trials,
                row.best,
                row.recommendation_id,
            )
            for row in page.items
        ),
    )


def _request(source: str, **options: str | bool | None) -> StudyRequest:
    document = decode(read_document(source), dict[str, Json], source=source)
    given = {"recommendation_id": options["recommendation"], "model_path": options["model_path"]}
    body: dict[str, Any] = document | {name: value for name, value in given.items() if value}
    if options["queue_up"]:
        body["when_no_worker"] = "wait"
    return decode(msgspec.json.encode(body), StudyRequest, source=source)


def _followed(server: str, study: Study) -> Study:
    return follow(
        study,
        ask=lambda: client.get(server, f"/studies/{study.id}", Study),
        is_ended=lambda record: record.status in STUDY_ENDS,
        describe=lambda record: f"{record.status} {record.progress:.0%}, {record.stage}",
        pause_s=PAUSE_S,
    )


def _end(study: Study, *, as_json: bool, decides: bool) -> None:
    """Print a study; a command that waited for it ends with what came of it."""
    if as_json:
        print_json(study)
    else:
        _print(study)
    if decides:
        sys.exit(_exit_code(study))


def _exit_code(study: Study) -> int:
    if study.status != "succeeded":
        return INCONCLUSIVE
    return FAIL if study.best is None else PASS


def _print(study: Study) -> None:
    click.echo(f"{study.id}: {study.status}, {study.progress:.0%}")
    if study.failure:
        click.echo(f"{study.failure.stage}: {study.failure.reason}")
    for note in study.notes:
        click.echo(f"Note: {note}")
    settings = sorted(study.request.space)
    metrics = [objective.metric for objective in study.request.objectives]
    print_rows(
        "trials",
        ("trial", "from", "state", *settings, *metrics, "meets", "remark"),
        (_row(trial, study, settings=settings, metrics=metrics) for trial in study.trials),
    )


def _row(
    trial: StudyTrial, study: Study, *, settings: Sequence[str], metrics: Sequence[str]
) -> tuple[object, ...]:
    measured = (trial.measured.get(metric) for metric in metrics)
    return (
        trial.number,
        trial.origin,
        trial.state,
        *(_set(trial, name) for name in settings),
        *(None if value is None else f"{value:,.4g}" for value in measured),
        {True: "yes", False: "no", None: None}[trial.meets],
        trial.reason or ("best" if trial.number == study.best else None),
    )


def _set(trial: StudyTrial, name: str) -> object:
    """Return the value that the trial ran with: its point of the space is only near a seed's."""
    value = getattr(trial.config, name)
    return "left to vLLM" if value is None else value
