"""The `setpoint` command: offline on the core, or against a running service."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from service.cli import (
    catalogues,
    check,
    estimate,
    keys,
    measurements,
    recommend,
    serve,
    studies,
    validate,
    webhooks,
)
from service.cli.client import Unreachable
from service.cli.documents import Refused
from service.cli.exit_codes import CLOSED_PIPE, UNREACHABLE, USAGE
from service.cli.spoken import spoken
from service.tuning.errors import TuningError


class ClosedPipe(Exception):
    """Whoever read the output left early, as `head` does."""


class _Commands(click.Group):
    """Leaves closed pipes to `main`: click itself would end with 1, which is a verdict here."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:  # noqa: ANN401  # click's own
        with _naming_closed_pipes():  # help is printed while the words are read
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  # what click returns
        with _naming_closed_pipes():
            return super().invoke(ctx)


@contextmanager
def _naming_closed_pipes() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipe from error


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="setpoint", prog_name="setpoint")
def cli() -> None:
    """Tuning-as-a-service for vLLM.

    Begin with: setpoint recommend --model Qwen/Qwen3-8B --gpu L40S
    """


for command in (
    serve.serve,
    serve.worker,
    recommend.recommend,
    estimate.estimate,
    check.check,
    validate.validate,
    measurements.measurements,
    measurements.calibrations,
    studies.studies,
    webhooks.webhooks,
    keys.keys,
    *catalogues.COMMANDS,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line; errors go to standard error, one line each.

    When the reader of the output leaves early, as `head` does, it ends without a word.
    """
    try:
        cli()
    except ClosedPipe:
        _leave_closed_pipe()
    except Refused as refusal:
        _fail(spoken(refusal.problem.detail), USAGE)
    except TuningError as error:
        where = f"{error.pointer}: " if error.pointer else ""
        _fail(spoken(where + error.message), USAGE)
    except Unreachable as error:
        _fail(spoken(str(error)), UNREACHABLE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(where + (error.strerror or str(error)), USAGE)


def _fail(message: str, code: int) -> None:
    click.echo(f"setpoint: {message}", err=True)
    sys.exit(code)


def _leave_closed_pipe() -> NoReturn:
    """End, with what is still to be flushed going nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    sys.exit(CLOSED_PIPE)
