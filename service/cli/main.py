"""The `setpoint` command: offline on the core, or against a running service."""

import sys

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
from service.cli.exit_codes import UNREACHABLE, USAGE
from service.cli.spoken import spoken
from service.tuning.errors import TuningError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
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
    """Run the command line; errors go to standard error, one line each."""
    try:
        cli()
    except Refused as refusal:
        _fail(spoken(refusal.problem.detail), USAGE)
    except TuningError as error:
        where = f"{error.pointer}: " if error.pointer else ""
        _fail(spoken(where + error.message), USAGE)
    except Unreachable as error:
        _fail(spoken(str(error)), UNREACHABLE)
    except BrokenPipeError:
        sys.stderr.close()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(where + (error.strerror or str(error)), USAGE)


def _fail(message: str, code: int) -> None:
    click.echo(f"setpoint: {message}", err=True)
    sys.exit(code)
