"""The OpenAPI document."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from api_schemas.engine import EngineConfig
from api_schemas.recommendation import Recommendation
from service.problems import PROBLEMS
from tests.integration.conftest import Client

_METHODS = ("get", "put", "post", "delete", "patch")


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
        "deleteModel",
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


def test_bounds_of_headers_reach_the_document(document: dict[str, Any]) -> None:
    """What is refused in a header is said of it."""
    for name, operation in _operations(document):
        for parameter in operation.get("parameters", []):
            if parameter["name"] == "Idempotency-Key":
                assert parameter["schema"]["maxLength"] == 255, name
                assert not re.fullmatch(parameter["schema"]["pattern"], "two words"), name


def test_the_document_is_the_same_every_time(api: Client) -> None:
    """Two requests answer the same bytes, so that a diff shows only real changes."""
    assert api.get("/openapi.json").content == api.get("/openapi.json").content


def test_events_are_described_by_name(document: dict[str, Any]) -> None:
    """A stream is text to who reads the whole, and events with JSON of a known shape else."""
    for noun, names in (("validation", {"status", "load_point"}), ("study", {"status", "trial"})):
        (operation,) = [
            operation
            for _, operation in _operations(document)
            if operation["operationId"] == f"follow{noun.capitalize()}"
        ]
        schema = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]
        whole, *events = schema["anyOf"]
        described = {event["properties"]["event"]["enum"][0]: event for event in events}
        (last_event_id,) = [p for p in operation["parameters"] if p["in"] == "header"]

        assert whole["type"] == "string"
        assert described.keys() == names
        for event in described.values():
            assert event["properties"]["data"]["contentMediaType"] == "application/json"
            assert event["properties"]["data"]["contentSchema"]["$ref"]
        assert last_event_id["schema"]["pattern"].startswith("^[0-9]")


def test_answers_lead_to_what_takes_their_ids(document: dict[str, Any]) -> None:
    """Each link names an operation and its parameter; whatever is made is found from its answer."""
    operations = {operation["operationId"]: operation for _, operation in _operations(document)}
    links = [
        (name, link)
        for name, operation in operations.items()
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]

    for _, link in links:
        taken = {p["name"] for p in operations[link["operationId"]]["parameters"]}
        assert set(link["parameters"]) <= taken
    assert {name for name, _ in links} == {
        "createRecommendation",
        "createValidation",
        "createStudy",
        "createMeasurement",
        "createApiKey",
        "rotateApiKey",
    }
