"""The gate over HTTP: one request, four formats, problems that name the field."""

import json
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from api_schemas.check import CheckReport
from tests.integration.conftest import Client

_COMMAND = "vllm serve Qwen/Qwen3-8B --swap-space 4"
_FILE = {"path": "serve.sh", "content": f"#!/bin/sh\n{_COMMAND}\n"}


def _post(api: Client, body: dict[str, Any], accept: str = "application/json") -> Any:  # noqa: ANN401
    return api.post("/checks", json=body, headers={"accept": accept})


def test_a_command_is_judged(api: Client) -> None:
    """200 with a verdict, and findings with their places."""
    answer = _post(api, {"command": _COMMAND})
    report = msgspec.json.decode(answer.content, type=CheckReport)

    assert answer.status_code == 200
    assert report.verdict == "fail"
    assert report.findings[0].rule == "VER001"
    assert report.findings[0].location is not None


def test_files_and_configurations_are_judged_too(api: Client) -> None:
    """The three ways to say what is checked lead to the same finding."""
    for body in ({"files": [_FILE]}, {"command": _COMMAND}, {"config": {"swap_space": 4}}):
        rules = [finding["rule"] for finding in _post(api, body).json()["findings"]]

        assert "VER001" in rules


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("application/sarif+json", "application/sarif+json"),
        ("application/xml", "application/xml"),
        ("text/markdown", "text/markdown"),
        ("*/*", "application/json"),
    ],
)
def test_the_accept_header_chooses_the_format(api: Client, accept: str, media_type: str) -> None:
    """SARIF, JUnit and Markdown are made of the same verdict; Vary says so."""
    answer = _post(api, {"files": [_FILE]}, accept)

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(media_type)
    assert answer.headers["vary"] == "Accept"
    match media_type:
        case "application/sarif+json":
            assert json.loads(answer.text)["runs"][0]["properties"]["verdict"] == "fail"
        case "application/xml":
            assert ET.fromstring(answer.text).find(".//failure") is not None  # noqa: S314  # ours
        case "text/markdown":
            assert "VER001" in answer.text


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 400, "/files"),
        ({"command": _COMMAND, "config": {}}, 400, "/files"),
        ({"command": _COMMAND, "policy": {"fail_on": "note"}}, 400, "/policy/fail_on"),
        ({"command": _COMMAND, "hardware": {"gpu": "no such"}}, 422, "/hardware/gpu"),
        ({"command": _COMMAND, "from_version": "99.0.0"}, 422, "/from_version"),
        ({"command": _COMMAND, "model": {"id": "nobody/knows"}}, 422, "/model/id"),
        (
            {
                "command": _COMMAND,
                "policy": {"waivers": [{"rule": "X", "until": "soon", "reason": "y"}]},
            },
            400,
            "/policy/waivers/0/until",
        ),
    ],
)
def test_mistakes_of_the_request_are_problems(
    api: Client, body: dict[str, Any], status: int, pointer: str
) -> None:
    """What the request itself gets wrong is a problem that points at the field."""
    answer = _post(api, body)

    assert answer.status_code == status
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_hostile_files_are_findings_not_faults(api: Client) -> None:
    """Bombs and foreign objects are answered like any unreadable file."""
    for content in ("a: !!python/object/apply:os.system [id]", "[" * 50_000, "\0"):
        answer = _post(api, {"files": [{"path": "a.yaml", "content": content}]})

        assert answer.status_code == 200
        assert answer.json()["findings"][0]["rule"] == "FIL001"
