"""Event streams over a real connection."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import jsonschema
import pytest
import redis

from api_schemas.validation import Validation, ValidationPlan
from service.app import create_app
from service.settings import Settings
from service.store.validations import ValidationStore
from tests.integration.service_process import ServiceProcess
from tests.integration.test_validations import request_for

_WAITING = Validation(
    id="019acfb4-5c01-7d10-9a35-0242ac120002",
    recommendation_id="019acfb4-5c00-7a2b-8c11-0242ac120002",
    mode="boot",
    plan=ValidationPlan(mode="boot"),
    status="queued",
    stage="queued",
    progress=0.0,
    created_at="2026-01-02T03:04:05.000Z",
    queue="validate.gpu.CPU",
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture(scope="module")
def recommendation(service: ServiceProcess) -> str:
    """Return the id of a stored recommendation."""
    made = service.client.post("/recommendations", json=request_for("tiny"), timeout=300)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


@pytest.fixture(scope="module", params=["validation", "study"])
def run(request: pytest.FixtureRequest, service: ServiceProcess, recommendation: str) -> str:
    """Return the address of something that waits for a worker."""
    if request.param == "validation":
        plan = {"mode": "boot", "when_no_worker": "wait"}
        made = service.client.post(f"/recommendations/{recommendation}/validations", json=plan)
    else:
        study = {
            "recommendation_id": recommendation,
            "space": {"max_num_seqs": {"kind": "choices", "values": [2, 4]}},
            "when_no_worker": "wait",
        }
        made = service.client.post("/studies", json=study)
    assert made.status_code == 202, made.text
    return str(made.headers["location"])


def test_head_on_a_stream_ends_at_once(service: ServiceProcess, run: str) -> None:
    """HEAD has the headers of the stream and no body, though the stream itself goes on."""
    with httpx.Client(base_url=service.base_url, timeout=10) as client:
        answers = [client.head(f"{run}/events") for _ in range(3)]
        after = client.get(run)

    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].headers["content-type"].startswith("text/event-stream")
    assert answers[0].headers["cache-control"] == "no-store"
    assert all(answer.content == b"" for answer in answers)
    assert after.json()["status"] == "queued"


def test_a_stream_goes_on_until_the_end_and_resumes(service: ServiceProcess, run: str) -> None:
    """The first event comes at once, the last one with the end; Last-Event-ID skips what was."""
    with service.client.stream("GET", f"{run}/events") as answer:
        lines = answer.iter_lines()
        first = next(line for line in lines if line.startswith("id: "))
        assert service.client.delete(run).status_code == 202
        rest = list(lines)
    resumed = service.client.get(
        f"{run}/events", headers={"Last-Event-ID": first.removeprefix("id: ")}
    )

    assert any('"cancelled"' in line for line in rest)
    assert first not in resumed.text
    assert [line for line in resumed.text.splitlines() if line.startswith("id: ")] == [
        line for line in rest if line.startswith("id: ")
    ]


def test_streams_leave_room_for_requests(store_client: redis.Redis) -> None:
    """However many follow their runs, others are answered; one stream too many is told to wait."""
    store = ValidationStore(store_client, retention=None)
    store.create(_WAITING)
    settings = Settings(warm_up=False, max_concurrent_requests=1)
    app = create_app(settings, store_client)
    events = f"/validations/{_WAITING.id}/events"

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            both = [asyncio.create_task(client.get(events)) for _ in range(2)]
            refused, followed = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            answered = await client.get("/gpus/L4")
            await client.delete(f"/validations/{_WAITING.id}")
            return [await followed.pop(), await refused.pop(), answered]

    followed, refused, answered = asyncio.run(run())

    assert (followed.status_code, refused.status_code, answered.status_code) == (200, 429, 200)


def test_a_stream_tells_what_the_document_says(service: ServiceProcess, run: str) -> None:
    """Each event, and the JSON in its data, are of the shape that its name has in the document."""
    service.client.delete(run)
    document = service.client.get("/openapi.json").json()
    noun = run.split("/")[1]
    shapes = {"components": document["components"]}
    (described,) = [
        item["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
        for path, item in document["paths"].items()
        if path.startswith(f"/{noun}/") and path.endswith("/events")
    ]

    blocks = service.client.get(f"{run}/events").text.split("\n\n")
    events = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks if block]

    assert events[0] == {"retry": "2000"}
    assert len(events) > 2
    for event in events[1:]:
        jsonschema.Draft202012Validator(described | shapes).validate(event)
        (kind,) = [
            option["properties"]["data"]["contentSchema"]
            for option in described["anyOf"]
            if event["event"] in option.get("properties", {}).get("event", {}).get("enum", [])
        ]
        told = json.loads(event["data"])
        jsonschema.Draft202012Validator(kind | shapes).validate(told)
        assert told["id"] == run.rpartition("/")[2]


@pytest.mark.parametrize("given", ["yesterday", "\u0663", "9" * 20, "1-" + "9" * 20, "1-"])
def test_a_malformed_event_id_is_refused(service: ServiceProcess, run: str, given: str) -> None:
    """What is no id of an event is not guessed at, nor asked of a store that counts to 64 bits."""
    headers = {"Last-Event-ID": given.encode()}

    answer = service.client.get(f"{run}/events", headers=headers)  # type: ignore[arg-type]

    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "last_event_id"


def test_there_is_no_stream_of_what_is_not_there(service: ServiceProcess, run: str) -> None:
    """An unknown id is a 404, not an empty stream."""
    unknown = run.rpartition("/")[0] + "/none/events"

    assert service.client.get(unknown).status_code == 404
