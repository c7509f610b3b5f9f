"""The service held to its document by generated requests, in the name of everyone who may call.

Schemathesis tries every operation: its examples, every constraint, random requests, valid and
broken, and sequences in which one answer feeds the next request. Ids of another tenant's records
are among what it tries.
"""

import base64
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from service.api.access import REQUIRED_SCOPES
from tests.integration.service_process import ServiceProcess
from tests.integration.tenants import (
    SHARED_MODEL,
    Tenant,
    furnish,
    make_key,
    records_of,
    secret_of,
)

_HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
_LIMIT_S = 600
_OWN, _OTHER = "team-a", "team-b"
_IDENTITIES: dict[str, list[str]] = {"admin": ["admin"], "narrow key": ["read"], "no key": []}
_CALLS = "calls.jsonl"
_RUNS = ("examples,coverage,fuzzing", "stateful", "stateful", "stateful")
"""Sequences run anew: a run of them ends when one, tried again, meets another state than before."""
_SEQUENCES = 40
_LEAST_FOREIGN = 30
_LEAST_LINKS = {"admin": 8, "narrow key": 2}
_OPERATIONS = frozenset(REQUIRED_SCOPES) - {"callTool"}
_KNOWN_WORDS = {
    "path.model_id": [SHARED_MODEL, "Qwen/Qwen3-8B"],
    "body.model.id": [SHARED_MODEL, "Qwen/Qwen3-8B"],
    "body.hardware.gpu": ["H100", "L4", "cpu"],
    "body.when_no_worker": ["wait"],
}
"""Without these, hardly a generated request would be one that makes a record."""
_CONFIGURATION = """
hooks = "{hooks}"

[checks.positive_data_acceptance]
# Well-formed requests may still name what nobody knows (404, 422) or contradict themselves (400).
# No worker runs here (409), and not every key may do everything (401, 403).
expected-statuses = ["2xx", 304, 400, 401, 403, 404, 406, 409, 422]

[[operations]]
include-operation-id = [{with_settings}]
# Covering each of their hundreds of settings by itself would take many minutes.
phases.coverage.enabled = false

[[operations]]
include-operation-id = "getValidation"
parameters = {{ "query.wait" = 0 }}

[[operations]]
include-operation-id = ["followStudy", "followValidation"]
# What waits for a worker streams on: read its first events, and no longer than this.
max-stream-events = 2
request-timeout = 1

[generation]
max-examples = {max_examples}

[phases.stateful]
max-steps = 8
generation.max-examples = {stateful}

[dictionaries]
{dictionaries}

[parameters]
{parameters}
"""


class Call(NamedTuple):
    """One call that schemathesis made."""

    operation: str
    status: int
    is_foreign: bool
    """Whether its address names a record of another tenant."""


@pytest.mark.slow
@pytest.mark.parametrize("identity", _IDENTITIES)
def test_every_operation_keeps_the_document_and_the_tenant(
    identity: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """No 5xx, no answer off the document, nothing of another tenant's, whoever calls."""
    with _service(tmp_path) as service:
        tenants = [furnish(service, name) for name in (_OWN, _OTHER)]
        before = records_of(service, tenants[1])
        secret = make_key(service, _OWN, _IDENTITIES[identity]) if _IDENTITIES[identity] else None
        said = [
            _explore(service, secret, *tenants, folder=tmp_path, phases=phases, seed=seed)
            for seed, phases in enumerate(_RUNS)
        ]
        after = records_of(service, tenants[1])

    calls = _calls(tmp_path)
    record_property(f"calls of schemathesis with {identity}", _summary(calls))
    record_property(f"links that it followed with {identity}", max(map(_links_of, said)))
    assert _OPERATIONS - {call.operation for call in calls} == set()
    assert max(call.status for call in calls) < 500
    foreign = [call for call in calls if call.is_foreign]
    assert len(foreign) >= _LEAST_FOREIGN
    assert min(call.status for call in foreign) >= 400
    assert before == after
    if identity != "no key":
        answered = {call.operation for call in calls if call.status == 200}
        assert {"followStudy", "followValidation"} <= answered
        assert max(map(_links_of, said)) >= _LEAST_LINKS[identity]


def _links_of(said: str) -> int:
    """Return how many links between operations a run followed."""
    found = re.search(r"API Links: +(\d+) covered", said)
    return int(found[1]) if found else 0


def _calls(folder: Path) -> list[Call]:
    lines = (folder / _CALLS).read_text().splitlines()
    return [Call(*json.loads(line)) for line in lines]


def _summary(calls: list[Call]) -> str:
    operations = Counter(call.operation for call in calls)
    statuses = Counter(f"{call.status // 100}xx" for call in calls)
    least = min(operations[name] for name in _OPERATIONS)
    answers = ", ".join(f"{number} {status}" for status, number in sorted(statuses.items()))
    return f"{len(calls)} of {len(_OPERATIONS)} operations, each {least} or more ({answers})"


def _service(folder: Path) -> ServiceProcess:
    (folder / "secrets").mkdir()
    secret = base64.b64encode(b"0123456789abcdef01234567").decode()
    (folder / "secrets" / "team").write_text(f"whsec_{secret}")
    return ServiceProcess(
        folder / "data",
        LOG_LEVEL="warning",
        REQUIRE_KEYS="true",
        REQUESTS_PER_MINUTE="0",
        GPU_MINUTES_PER_DAY="0",
        WEBHOOK_SECRETS_DIR=str(folder / "secrets"),
        WEBHOOK_NETWORKS="127.0.0.0/8",
    )


def _explore(
    service: ServiceProcess,
    key: tuple[str, str] | None,
    own: Tenant,
    other: Tenant,
    *,
    folder: Path,
    phases: str,
    seed: int,
    max_examples: int = 5,
) -> str:
    """Return what schemathesis said, which found nothing."""
    known = {
        "calls": _CALLS,
        "own_key_id": key and key[0],
        "spare_key_id": own.ids["path.key_id"][0],
        "secrets": [secret_of(_OTHER)],
        "foreign_ids": sorted(
            {other.key_id, *(name for ids in other.ids.values() for name in ids)}
        ),
    }
    (folder / "known.json").write_text(json.dumps(known))
    (folder / "schemathesis.toml").write_text(_configuration(service, own, other, max_examples))
    header = ["--header", f"Authorization: Bearer {key[1]}"] if key else []
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"),
            *("run", f"{service.base_url}/openapi.json", *header),
            # Without a choice, schemathesis leaves out what answers the document.
            *("--include-path-regex", "^/"),
            *("--seed", str(seed)),
            *("--phases", phases, "--checks", "all"),
            *("--request-timeout", "60", "--no-color", "--continue-on-failure"),
            *("--warnings", "off"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=_LIMIT_S,
        env={
            **os.environ,  # noqa: TID251
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _configuration(service: ServiceProcess, own: Tenant, other: Tenant, max_examples: int) -> str:
    """Return the configuration in which ids of both tenants are tried now and then."""
    values = {name: [*ids, *other.ids[name]] for name, ids in own.ids.items()}
    values |= _KNOWN_WORDS
    named = {name: name.replace(".", "-") for name in values}
    return _CONFIGURATION.format(
        max_examples=max_examples,
        stateful=_SEQUENCES,
        hooks=_HOOKS,
        with_settings=", ".join(map(json.dumps, _with_settings(service))),
        dictionaries="\n".join(
            f"{named[name]} = {{ values = {json.dumps(ids)} }}" for name, ids in values.items()
        ),
        parameters="\n".join(
            f'"{name}" = {{ dictionary = "{named[name]}", probability = 0.4 }}' for name in values
        ),
    )


def _with_settings(service: ServiceProcess) -> list[str]:
    """Return the operations whose body may hold the hundreds of engine settings."""
    document = service.client.get("/openapi.json").json()
    return [
        operation["operationId"]
        for item in document["paths"].values()
        for operation in item.values()
        if "EngineConfig" in _referenced(operation.get("requestBody", {}), document)
    ]


def _referenced(node: object, document: dict[str, Any]) -> set[str]:
    """Return the names of all schemas that a part of the document leads to."""
    seen: set[str] = set()
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, list):
            todo += part
        elif isinstance(part, dict):
            todo += part.values()
            name = str(part.get("$ref", "")).rpartition("/schemas/")[2]
            if name and name not in seen:
                seen.add(name)
                todo.append(document["components"]["schemas"][name])
    return seen
