"""Advice over HTTP: made, stored, found, listed, removed."""

from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from litestar.testing import TestClient

from api_schemas.model import ModelRef
from api_schemas.recommendation import Recommendation, TuningRequest
from service.api.bodies import encode
from service.api.examples import estimate_request, model_registration, tuning_request
from service.app import create_app
from service.settings import Settings
from service.store.client import connect
from tests.integration.conftest import Client

_START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _request(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  # a JSON document
    request: dict[str, Any] = msgspec.to_builtins(tuning_request())
    return request | changes


def _with_inline_config() -> TuningRequest:
    """Return a request that needs the store for nothing but keeping the answer."""
    model = ModelRef(id="team/mine", config=model_registration().config)
    return msgspec.structs.replace(tuning_request(), model=model)


@pytest.fixture
def made(api: Client) -> Any:  # noqa: ANN401  # a response
    """Return the answer to a request for advice."""
    return api.post("/recommendations", json=_request())


def test_advice_is_created_with_address_and_tag(api: Client, made: Any) -> None:  # noqa: ANN401
    """201 with Location and ETag; the address answers the same bytes and tag."""
    assert made.status_code == 201
    assert made.headers["location"] == f"/recommendations/{made.json()['id']}"

    found = api.get(made.headers["location"])

    assert found.content == made.content
    assert found.headers["etag"] == made.headers["etag"]
    assert found.headers["vary"] == "Accept"


def test_the_answer_is_a_complete_recommendation(made: Any) -> None:  # noqa: ANN401
    """Every field is present and of its type, and nothing is validated yet."""
    recommendation = msgspec.json.decode(made.content, type=Recommendation)

    assert set(made.json()) == set(Recommendation.__struct_fields__)
    assert recommendation.labels == {"team": "assistant"}
    assert (recommendation.validations, recommendation.measured) == ([], None)
    assert recommendation.decisions
    assert {"serve.sh", "DECISION.md"} <= {file.path for file in recommendation.files}


def test_the_same_request_gets_the_same_advice(api: Client, made: Any) -> None:  # noqa: ANN401
    """Two answers differ in id and time alone."""
    again = api.post("/recommendations", json=_request())

    differing = {key for key, value in made.json().items() if again.json()[key] != value}
    assert differing <= {"id", "created_at"}
    assert again.json()["id"] != made.json()["id"]


def test_a_current_copy_is_not_sent_again(api: Client, made: Any) -> None:  # noqa: ANN401
    """If-None-Match with the tag answers 304 without a body; another tag gets the body."""
    address, tag = made.headers["location"], made.headers["etag"]

    for header in (tag, f'"x", {tag}', f"W/{tag}", "*"):
        current = api.get(address, headers={"If-None-Match": header})
        assert (current.status_code, current.content) == (304, b"")
        assert current.headers["etag"] == tag
    assert api.get(address, headers={"If-None-Match": '"x"'}).status_code == 200


def test_markdown_is_the_decision_record(api: Client, made: Any) -> None:  # noqa: ANN401
    """Accept: text/markdown gives DECISION.md, under a tag of its own."""
    record = api.get(made.headers["location"], headers={"Accept": "text/markdown"})

    files = {file["path"]: file["content"] for file in made.json()["files"]}
    assert record.text == files["DECISION.md"]
    assert record.headers["content-type"].startswith("text/markdown")
    assert record.headers["etag"] != made.headers["etag"]


def test_every_file_can_be_fetched(api: Client, made: Any) -> None:  # noqa: ANN401
    """Each file is served under its path with its media type; other paths are not found."""
    for file in made.json()["files"]:
        answer = api.get(f"{made.headers['location']}/files/{file['path']}")
        assert answer.text == file["content"]
        assert answer.headers["content-type"].startswith(file["media_type"].partition(";")[0])

    missing = api.get(f"{made.headers['location']}/files/../etc/passwd")
    assert missing.status_code == 404


def test_deleting_removes_it_everywhere(api: Client, made: Any) -> None:  # noqa: ANN401
    """204 once, then 404; it is in no list any more."""
    address = made.headers["location"]

    assert api.delete(address).status_code == 204
    assert api.delete(address).status_code == 404
    assert api.get(address).status_code == 404
    assert api.get("/recommendations").json() == {"items": [], "next_cursor": None}


def test_pages_follow_their_links(store_client: redis.Redis) -> None:
    """Following rel=next visits everything once, newest first, with the filters kept."""
    seconds = count()
    app = create_app(
        Settings(warm_up=False),
        store_client,
        now=lambda: _START + timedelta(seconds=next(seconds)),
    )
    with TestClient(app) as api:
        ids = [api.post("/recommendations", json=_request()).json()["id"] for _ in range(3)]

        address, seen = "/recommendations?limit=1&label=team%3Dassistant&gpu=h100", []
        while address:
            page = api.get(address)
            seen += [row["id"] for row in page.json()["items"]]
            link = page.links.get("next")
            assert (link is None) == (page.json()["next_cursor"] is None)
            address = link["url"] if link else ""

    assert seen == ids[::-1]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", True),
        ("model=meta-llama/Llama-3.1-8B-Instruct", True),
        ("model=other", False),
        ("gpu=NVIDIA H100 80GB HBM3", True),
        ("gpu=L4", False),
        ("gpu=no such thing", False),
        ("label=team", True),
        ("label=team=assistant", True),
        ("label=team=other", False),
        ("label=team&label=missing", False),
    ],
)
def test_lists_can_be_filtered(api: Client, made: Any, query: str, found: bool) -> None:  # noqa: ANN401, FBT001
    """Model, GPU under any of its names, and labels narrow the list."""
    rows = api.get(f"/recommendations?{query}").json()["items"]

    assert [row["id"] for row in rows] == ([made.json()["id"]] if found else [])


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"model": {"id": "nobody/knows"}}, "unknown-model", "/model/id"),
        ({"hardware": {"gpu": "no such thing"}}, "unknown-gpu", "/hardware/gpu"),
        ({"engine": {"version": "9.9.9"}}, "unknown-engine-version", "/engine/version"),
        (
            {"model": {"id": "a/b", "config": {"architectures": ["Nothing"]}}},
            "unsupported-architecture",
            "/model/config/architectures",
        ),
    ],
)
@pytest.mark.parametrize("path", ["/estimates", "/recommendations"])
def test_unknown_things_are_named(
    api: Client, path: str, changes: dict[str, Any], code: str, pointer: str
) -> None:
    """What is understood but not known answers 422 with its code and place."""
    body = msgspec.to_builtins(estimate_request()) if path == "/estimates" else _request()

    answer = api.post(path, json=body | changes)

    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_what_was_not_stored_is_not_acknowledged(tmp_path: Path) -> None:
    """With the store away a request for advice answers 503, never 201."""
    app = create_app(Settings(warm_up=False), connect(f"unix://{tmp_path}/none", timeout_s=0.2))
    with TestClient(app) as api:
        answer = api.post(
            "/recommendations",
            content=encode(_with_inline_config()),
            headers={"Content-Type": "application/json"},
        )

    assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")


def test_estimates_are_answered_without_storing(api: Client, store_client: redis.Redis) -> None:
    """A what-if answers 200 with the same bytes each time, and leaves nothing in the store."""
    first = api.post("/estimates", json=msgspec.to_builtins(estimate_request()))
    second = api.post("/estimates", json=msgspec.to_builtins(estimate_request()))

    assert first.status_code == 200
    assert first.content == second.content
    assert first.json()["fits"] is True
    assert list(store_client.scan_iter("*")) == []


def test_a_configuration_that_does_not_fit_is_an_answer(api: Client) -> None:
    """What vLLM would refuse is `fits: false` with an error finding, not a problem."""
    body = msgspec.to_builtins(estimate_request()) | {
        "model": {"id": "meta-llama/Llama-3.1-70B-Instruct"}
    }

    answer = api.post("/estimates", json=body)

    assert (answer.status_code, answer.json()["fits"]) == (200, False)
    assert any(finding["severity"] == "error" for finding in answer.json()["findings"])
