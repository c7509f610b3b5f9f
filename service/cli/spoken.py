"""What core and service say in the words of the API, said with what the command line has."""

import re
import sys
from collections.abc import Iterable

import msgspec

from api_schemas.explanation import Finding
from api_schemas.problem import FieldError, Problem

_PROVING = "--wait-for-validation"
_INLINE = "Give its config.json as model.config in a request file"
_PHRASES = {
    "Send its config.json as model.config, register it with PUT /models, or switch on the Hub "
    "look-up.": f"{_INLINE}, or look it up with --hub.",
    "Send its config.json as model.config, or register it with PUT /models.": f"{_INLINE}.",
    "Give its config.json in model.config, or register it.": (
        "Give its config.json as model.config in the policy file, or look it up with --hub."
    ),
    "GET /gpus lists them; hardware.spec describes a part that is missing.": (
        "`setpoint gpus` lists them; hardware.spec in a request file describes one that is missing."
    ),
    'Or let it wait: "when_no_worker": "wait".': "Or let it wait: --queue-up.",
    "State it as engine.version, or": "State it with --engine-version, or",
    "GET /workers lists what there is.": "The service's page lists the workers that there are.",
    "GET /rules lists them.": "`setpoint rules` lists them.",
}
_OF_A_SERVICE = ("PUT /models", "register it")
"""A service that is asked has these; `--hub` looks up in this process only."""
_OPTIONS = {
    "/model/id": ("--model",),
    "/hardware/gpu": ("--gpu",),
    "/hardware/gpus_per_node": ("--gpus-per-node",),
    "/workload/preset": ("--preset",),
    "/workload/arrivals/users": ("--users",),
    "/engine/version": ("--engine-version", "--to"),
    "/from_version": ("--from",),
    "/model_path": ("--model-path",),
    "/max_minutes": ("--minutes",),
    "/queue/node": ("--node",),
    "/queue/gpu": ("--gpu",),
    "/policy/require_measured_within_days": ("--require-measured",),
}
_LIMIT = re.compile(r"^/slo/targets/(\d)/limit_ms: ")
_LIMITS = ("--ttft-ms", "--tpot-ms")


def spoken(text: str, *, arguments: Iterable[str] | None = None) -> str:
    """Return a message that names options where it named fields and routes of the API.

    `arguments` are those of this process when not given: a field is called by an option that the
    caller wrote, and by its place in the request where it came from a file.
    """
    written = {word.partition("=")[0] for word in arguments or sys.argv[1:]}
    for said, better in _PHRASES.items():
        if "--server" not in written or not any(word in said for word in _OF_A_SERVICE):
            text = text.replace(said, better)
    if _PROVING in written:
        text = text.replace("--queue-up", "`setpoint validate ID --queue-up`")
    return _with_option(text, written)


def spoken_problem(problem: Problem) -> Problem:
    """Return a problem whose sentences name options."""
    return msgspec.structs.replace(
        problem,
        detail=spoken(problem.detail),
        errors=[
            FieldError(pointer=error.pointer, message=spoken(error.message))
            for error in problem.errors
        ],
    )


def spoken_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings whose sentences name options."""
    return [
        msgspec.structs.replace(
            finding,
            message=spoken(finding.message),
            suggestion=None if finding.suggestion is None else spoken(finding.suggestion),
        )
        for finding in findings
    ]


def _with_option(text: str, written: set[str]) -> str:
    """Return a message that begins with the option in place of the field it stands for."""
    pointer, colon, rest = text.partition(": ")
    named = next((name for name in _OPTIONS.get(pointer, ()) if name in written), None)
    if colon and named is not None:
        return f"{named}: {rest}"
    limits = [name for name in _LIMITS if name in written]
    found = _LIMIT.match(text)
    if found is not None and int(found[1]) < len(limits):
        return f"{limits[int(found[1])]}: {text[found.end() :]}"
    return text
