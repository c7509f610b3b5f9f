"""`Idempotency-Key` over HTTP, over several processes and through a crash."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import redis

from api_schemas.check import CheckRequest
from service.api.bodies import encode
from service.api.examples import (
    bench_report_request,
    estimate_request,
    tuning_request,
    validation_plan,
)
from service.embedded import EmbeddedStore
from service.store.client import connect
from service.store.idempotency import IdempotencyStore
from tests.integration.conftest import Client
from tests.integration.service_process import ServiceProcess

BODY = encode(tuning_request())
JSON = {"Content-Type": "application/json"}
KEY = JSON | {"Idempotency-Key": '"repo:commit:job"'}
_REPEATS = 50
_PROCESSES = 3
_TRIES = 10_000


def test_the_same_request_gets_the_same_answer(api: Client) -> None:
    """Status, body, Location and ETag are replayed, and there is one record."""
    first = api.post("/recommendations", content=BODY, headers=KEY)
    second = api.post("/recommendations", content=BODY, headers=KEY)

    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    for name in ("location", "etag", "content-type"):
        assert first.headers[name] == second.headers[name]
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert len(api.get("/recommendations").json()["items"]) == 1


def test_without_a_key_every_request_makes_a_record(api: Client) -> None:
    """Nobody is deduplicated who did not ask for it."""
    for _ in range(2):
        api.post("/recommendations", content=BODY)

    assert len(api.get("/recommendations").json()["items"]) == 2


def test_a_key_with_another_body_or_path_is_refused(api: Client) -> None:
    """The key stands for one request."""
    made = api.post("/recommendations", content=BODY, headers=KEY)
    other = json.loads(BODY) | {"labels": {"a": "b"}}

    answers = [
        api.post("/recommendations", content=json.dumps(other), headers=KEY),
        api.post(f"{made.headers['location']}/validations", json={"mode": "boot"}, headers=KEY),
    ]

    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency-key-reused")


@pytest.mark.parametrize("key", ["", '""', "a b", "x" * 256, "ä"])
def test_a_malformed_key_is_refused(api: Client, key: str) -> None:
    """A key is 1 to 255 visible ASCII characters, with or without quotes."""
    answer = api.post(
        "/recommendations", content=BODY, headers={"Idempotency-Key": key.encode("latin-1")}
    )

    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "Idempotency-Key"


def test_a_refused_request_does_not_use_up_its_key(api: Client) -> None:
    """Nothing was made, so the mended body may come with the same key."""
    broken = json.loads(BODY) | {"model": {"id": "nobody/knows-this"}}

    refused = api.post("/recommendations", content=json.dumps(broken), headers=KEY)
    made = api.post("/recommendations", content=BODY, headers=KEY)

    assert (refused.status_code, made.status_code) == (422, 201)


def test_validations_and_measurements_are_made_once(api: Client) -> None:
    """Every creating route follows the header."""
    made = api.post("/recommendations", content=BODY)
    plan = json.loads(encode(validation_plan())) | {"when_no_worker": "wait"}
    address = f"{made.headers['location']}/validations"
    report = encode(bench_report_request())

    proofs = [api.post(address, json=plan, headers=KEY) for _ in range(2)]
    other = {**KEY, "Idempotency-Key": "2"}
    measured = [api.post("/measurements", content=report, headers=other) for _ in range(2)]

    assert [answer.status_code for answer in proofs] == [202, 202]
    assert proofs[0].headers["location"] == proofs[1].headers["location"]
    assert len(api.get(made.headers["location"]).json()["validations"]) == 1
    assert [answer.status_code for answer in measured] == [201, 201]
    assert measured[0].content == measured[1].content


def test_a_lost_request_is_taken_over_with_its_ids(
    api: Client, store_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that died after storing its record leaves no second one behind."""
    with monkeypatch.context() as lost:
        lost.setattr(IdempotencyStore, "complete", lambda *_, **__: False)  # died before this
        first = api.post("/recommendations", content=BODY, headers=KEY)
    running = api.post("/recommendations", content=BODY, headers=KEY)
    store_client.delete(*store_client.scan_iter("*:lock"))  # what expiry does
    second = api.post("/recommendations", content=BODY, headers=KEY)

    assert (running.status_code, running.json()["code"]) == (409, "idempotency-in-progress")
    assert running.headers["retry-after"]
    assert second.headers["location"] == first.headers["location"]
    assert second.content == first.content
    assert len(api.get("/recommendations").json()["items"]) == 1


@pytest.mark.slow
def test_many_at_once_over_processes_make_one_record(tmp_path: Path) -> None:
    """Fifty identical requests to three processes: one record, and one answer for all."""
    with ExitStack() as stack:
        store = stack.enter_context(EmbeddedStore(str(tmp_path / "store")))
        services = [
            stack.enter_context(
                ServiceProcess(tmp_path / str(number), REDIS_URL=store.url, LOG_LEVEL="error")
            )
            for number in range(_PROCESSES)
        ]
        for service in services:  # so that the first one takes milliseconds, not a compilation
            service.client.post("/recommendations", content=BODY, headers=JSON)
        before = len(services[0].client.get("/recommendations").json()["items"])
        with ThreadPoolExecutor(_REPEATS) as pool:
            addresses = [services[n % _PROCESSES].base_url for n in range(_REPEATS)]
            found = list(pool.map(_post_until_answered, addresses))
        listed = services[0].client.get("/recommendations").json()["items"]
        killed = services[1].stop(signal.SIGKILL)
        replayed = services[2].client.post("/recommendations", content=BODY, headers=KEY)
        with connect(store.url, timeout_s=5.0) as client:
            locks = list(client.scan_iter("*:lock"))

    assert len(listed) - before == 1
    assert killed == -signal.SIGKILL
    assert len({(answer.status_code, answer.content) for answer in found}) == 1
    assert Counter("idempotency-replayed" in answer.headers for answer in found)[False] == 1
    assert found[0].headers["location"] == replayed.headers["location"]
    assert locks == []


def _post_until_answered(base_url: str) -> httpx.Response:
    """Send the request again while its twin still runs."""
    with httpx.Client(base_url=base_url, timeout=60) as client:
        for _ in range(_TRIES):
            answer = client.post("/recommendations", content=BODY, headers=KEY)
            if answer.status_code not in (409, 429):
                return answer
    pytest.fail("the first request did not end")


def check_request() -> CheckRequest:
    return CheckRequest(command="vllm serve Qwen/Qwen3-8B --swap-space 4")


@pytest.mark.parametrize(
    ("path", "make"), [("/estimates", estimate_request), ("/checks", check_request)]
)
def test_a_pure_answer_is_not_sent_twice(
    api: Client, path: str, make: Callable[[], object]
) -> None:
    """The same question has the same tag, and a caller who holds the answer gets none."""
    body = encode(make())
    first = api.post(path, content=body)
    held = api.post(path, content=body, headers={"If-None-Match": first.headers["etag"]})
    other = api.post(path, content=body, headers={"If-None-Match": '"0"'})

    assert (first.status_code, held.status_code, other.status_code) == (200, 304, 200)
    assert held.content == b""
    assert held.headers["etag"] == first.headers["etag"] == other.headers["etag"]
    assert not first.headers["etag"].startswith("W/")
