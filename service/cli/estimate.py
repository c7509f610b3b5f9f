"""`setpoint estimate`: what-ifs as JSON lines in and out."""

import sys

import click
import msgspec

from api_schemas.estimate import Estimate, EstimateRequest
from api_schemas.problem import Problem
from service.cli import client
from service.cli.documents import Refused, decode, standard_input
from service.cli.hub import ResolveModel, hub_option, resolver
from service.cli.spoken import spoken_problem
from service.problems import problem_of_tuning_error
from service.tuning.errors import TuningError


@click.command()
@click.option("--server", metavar="URL", help="Ask a running service instead of this process.")
@hub_option
def estimate(*, server: str | None, hub: bool) -> None:
    """Judge settings: one JSON request per line on standard input, one answer per line.

    A line has the body of POST /estimates: model, hardware, engine with its config, and, for
    latencies, workload; examples/what-ifs.jsonl has three. A refused line becomes
    {"problem": {...}} in its place; the order is kept.
    """
    resolve_model = resolver(uses_hub=hub)
    for line in standard_input():
        if line.strip():
            sys.stdout.buffer.write(_answer(line, server, resolve_model=resolve_model) + b"\n")
            sys.stdout.buffer.flush()


def _answer(line: bytes, server: str | None, *, resolve_model: ResolveModel) -> bytes:
    try:
        request = decode(line, EstimateRequest)
        return msgspec.json.encode(_estimate(request, server, resolve_model=resolve_model))
    except Refused as refusal:
        return _problem_line(refusal.problem)
    except TuningError as error:
        return _problem_line(problem_of_tuning_error(error))


def _problem_line(problem: Problem) -> bytes:
    return msgspec.json.encode({"problem": spoken_problem(problem)})


def _estimate(
    request: EstimateRequest, server: str | None, *, resolve_model: ResolveModel
) -> Estimate:
    if server:
        return client.post(server, "/estimates", request, Estimate)
    # Imported on use: listing the catalogue or asking a service needs no model.
    from service.tuning.estimate import estimate as estimate_offline  # noqa: PLC0415

    return estimate_offline(request, resolve_model=resolve_model)
