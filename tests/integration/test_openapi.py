"""The OpenAPI document, and the service held to it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from api_schemas.access import Scope
from api_schemas.engine import EngineConfig
from api_schemas.recommendation import Recommendation
from service.embedded import store_url
from service.problems import PROBLEMS
from service.store.api_keys import ApiKeyStore
from service.store.client import connect
from tests.integration.conftest import Client
from tests.integration.service_process import ServiceProcess

_METHODS = ("get", "put", "post", "delete", "patch")
_LIMIT_S = 300
_STREAMS = frozenset({"followStudy", "followValidation"})
"""Answers that end when the caller has seen enough."""
_OWN_KEY = frozenset({"revokeApiKey", "rotateApiKey"})
"""An administrator who tries everything would end the own key."""
_STRICT = {
    "LOG_LEVEL": "warning",
    "REQUIRE_KEYS": "true",
    "REQUESTS_PER_MINUTE": "0",
    "GPU_MINUTES_PER_DAY": "0",
}
_CONFIGURATION = """
[checks.positive_data_acceptance]
# Well-formed requests may still name what nobody knows (422) or contradict themselves (400).
# No worker runs here (409), and not every key may do everything (401, 403).
expected-statuses = ["2xx", 304, 400, 401, 403, 404, 406, 409, 422]

[[operations]]
include-operation-id = "followValidation"
# A stream that lasts as long as its validation.
enabled = false

[[operations]]
include-operation-id = "followStudy"
# As long as its study.
enabled = false

[[operations]]
include-operation-id = "getValidation"
parameters = { "query.wait" = 0 }
"""


@pytest.fixture
def document(api: Client) -> dict[str, Any]:
    document: dict[str, Any] = api.get("/openapi.json").json()
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield f"{method} {path}", item[method]


def test_the_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    """The official schema of OpenAPI 3.1 accepts it, and every component is a JSON Schema."""
    assert document["openapi"].startswith("3.1")
    OPENAPI_31_VALIDATOR.validate(document)
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    """No $ref points at nothing."""

    def walk(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            for child in node.values():
                yield from walk(child)
        elif isinstance(node, list):
            for child in node:
                yield from walk(child)

    for reference in set(walk(document)):
        node = document
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]


def test_every_operation_explains_itself(document: dict[str, Any]) -> None:
    """Each has a unique id, a summary, a description, a tag, and its problems."""
    operations = dict(_operations(document))
    ids = [operation["operationId"] for operation in operations.values()]
    tags = {tag["name"] for tag in document["tags"]}

    assert len(ids) == len(set(ids)) == len(operations)
    for name, operation in operations.items():
        assert operation["summary"], name
        assert operation["description"], name
        assert set(operation["tags"]) <= tags, name
        assert {"400", "406", "429", "500"} <= set(operation["responses"]), name
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (name, parameter["name"])


def test_operation_ids_are_stable(document: dict[str, Any]) -> None:
    """Generated clients carry these names: changing one breaks callers."""
    ids = {operation["operationId"] for _, operation in _operations(document)}

    assert ids >= {
        "createEstimate",
        "createRecommendation",
        "listRecommendations",
        "getRecommendation",
        "deleteRecommendation",
        "getRecommendationFile",
        "listModels",
        "getModel",
        "registerModel",
        "listGpus",
        "getGpu",
        "listPresets",
        "listEngineVersions",
        "getEngineVersion",
        "listEngineSettings",
        "listRules",
        "getRule",
        "getLiveness",
        "getReadiness",
        "getMetrics",
        "getOpenApiDocument",
        "getProblemType",
        "getIndex",
        "createValidation",
        "getValidation",
        "followValidation",
        "cancelValidation",
        "listWorkers",
    }


def test_problems_are_shared_and_shown(document: dict[str, Any]) -> None:
    """Each status with problems has one reusable response with an example per code."""
    for code, kind in PROBLEMS.items():
        response = document["components"]["responses"][f"Problem{kind.status}"]
        content = response["content"]["application/problem+json"]
        assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
        assert content["examples"][code]["value"]["status"] == kind.status


def test_bodies_and_main_answers_have_examples_that_match(document: dict[str, Any]) -> None:
    """Every request body has an example, and examples are valid for their own schema."""
    for name, operation in _operations(document):
        if "requestBody" in operation:
            media = operation["requestBody"]["content"]["application/json"]
            assert media["examples"], name
            for example in media["examples"].values():
                _validate(example["value"], media["schema"], document)
    for name in ("createEstimate", "createRecommendation"):
        operation = next(o for _, o in _operations(document) if o["operationId"] == name)
        success = next(r for status, r in operation["responses"].items() if status < "300")
        media = success["content"]["application/json"]
        _validate(media["example"], media["schema"], document)


def _validate(instance: object, schema: dict[str, Any], document: dict[str, Any]) -> None:
    whole = {**schema, "components": document["components"]}
    jsonschema.Draft202012Validator(whole).validate(instance)


def test_requests_are_strict_and_answers_complete(document: dict[str, Any]) -> None:
    """Requests refuse unknown fields; every field of an answer is required."""
    schemas = document["components"]["schemas"]

    for name in ("EstimateRequest", "TuningRequest", "Workload", "Hardware", "EngineConfig"):
        assert schemas[name]["additionalProperties"] is False
    assert set(schemas["Recommendation"]["required"]) == set(Recommendation.__struct_fields__)


def test_bounds_and_descriptions_reach_the_document(document: dict[str, Any]) -> None:
    """What the nouns state is what callers read."""
    schemas = document["components"]["schemas"]

    assert set(schemas["EngineConfig"]["properties"]) == set(EngineConfig.__struct_fields__)
    nodes = schemas["Hardware"]["properties"]["nodes"]
    assert (nodes["minimum"], nodes["maximum"]) == (1, 1024)
    assert schemas["Hardware"]["properties"]["gpu"]["examples"]
    assert schemas["ModelRef"]["properties"]["id"]["pattern"]


def test_the_document_is_the_same_every_time(api: Client) -> None:
    """Two requests answer the same bytes, so that a diff shows only real changes."""
    assert api.get("/openapi.json").content == api.get("/openapi.json").content


def _takes_settings(operation: dict[str, Any], document: dict[str, Any]) -> bool:
    """Tell whether a body of this operation may hold the hundreds of engine settings."""
    names, seen = _references(operation.get("requestBody", {})), set[str]()
    while names:
        name = names.pop()
        if name not in seen:
            seen.add(name)
            names |= _references(document["components"]["schemas"][name])
    return "EngineConfig" in seen


def _references(node: object) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"].rsplit("/", 1)[1]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(_references(child) for child in node.values()))
    return set().union(*map(_references, node)) if isinstance(node, list) else set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phases", "max_examples", "takes_settings"),
    [
        # Covering each of the hundreds of settings one by one would take many minutes.
        ("examples,coverage,fuzzing,stateful", 5, False),
        ("examples,fuzzing", 25, True),
    ],
)
def test_the_service_keeps_the_document(
    tmp_path: Path,
    phases: str,
    max_examples: int,
    takes_settings: bool,  # noqa: FBT001
) -> None:
    """Generated valid and broken requests never cause a 5xx, nor an answer off the document.

    Schemathesis tries examples, every constraint, random and stateful runs, with methods and
    headers that the document does not have.
    """
    with ServiceProcess(tmp_path / "data", **_STRICT) as service:
        admin = _key(tmp_path / "data", "admin")
        document = service.client.get("/openapi.json").json()
        chosen = [
            operation["operationId"]
            for _, operation in _operations(document)
            if _takes_settings(operation, document) == takes_settings
            and operation["operationId"] not in _STREAMS | _OWN_KEY
        ]
        done = _explore(
            service,
            chosen,
            folder=tmp_path,
            secret=admin,
            max_examples=max_examples,
            phases=phases,
        )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("scope", [None, "read"])
def test_strangers_and_narrow_keys_are_answered_by_the_document(
    tmp_path: Path, scope: str | None
) -> None:
    """Without a key, or with one that allows little, every answer is still in the document."""
    with ServiceProcess(tmp_path / "data", **_STRICT) as service:
        secret = scope and _key(tmp_path / "data", scope)
        document = service.client.get("/openapi.json").json()
        chosen = [
            operation["operationId"]
            for _, operation in _operations(document)
            if operation["operationId"] not in _STREAMS and not _takes_settings(operation, document)
        ]
        done = _explore(
            service,
            chosen,
            folder=tmp_path,
            secret=secret,
            max_examples=3,
            phases="examples,fuzzing",
        )

    assert done.returncode == 0, done.stdout + done.stderr


def _key(data_dir: Path, scope: str) -> str:
    """Return a key of a running service."""
    with connect(store_url(str(data_dir)), timeout_s=5.0) as client:
        made = ApiKeyStore(client).create(
            name="test",
            tenant="team-a",
            scopes=msgspec.convert([scope], list[Scope]),
            created_by="test",
            at=datetime.now(UTC),
        )
    return made[1].text


def _explore(
    service: ServiceProcess,
    operation_ids: list[str],
    *,
    folder: Path,
    secret: str | None,
    max_examples: int,
    phases: str,
) -> subprocess.CompletedProcess[str]:
    configuration = folder / "schemathesis.toml"
    configuration.write_text(_CONFIGURATION)
    chosen = [f"--include-operation-id={name}" for name in operation_ids]
    key = ["--header", f"Authorization: Bearer {secret}"] if secret else []
    return subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli"),
            *("--config-file", str(configuration)),
            *("run", f"{service.base_url}/openapi.json", *chosen, *key),
            *("--seed", "20260102", "--max-examples", str(max_examples)),
            *("--phases", phases, "--checks", "all", "--request-timeout", "60"),
            *("--no-color", "--continue-on-failure", "--warnings", "off"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=_LIMIT_S,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder)},  # noqa: TID251
    )
