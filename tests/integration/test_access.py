"""Keys, scopes, tenants, limits and the trail over HTTP."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest
import redis
from litestar.testing import TestClient

from api_schemas.access import Scope
from service.api.access import PUBLIC, REQUIRED_SCOPES
from service.api.bodies import encode
from service.api.examples import (
    bench_report_request,
    model_registration,
    tuning_request,
    validation_plan,
)
from service.api.metrics import Metrics
from service.api.routes import _HANDLERS
from service.app import create_app
from service.settings import InvalidSettings, Settings, read_settings
from service.store.api_keys import ApiKeyStore
from service.store.client import connect
from tests.integration.conftest import Client

Headers = dict[str, str]
MakeKey = Callable[..., Headers]
ADVICE = encode(tuning_request())


@pytest.fixture
def make_key(store_client: redis.Redis) -> MakeKey:
    """Return a function that makes a key and answers the header to send."""

    def make(*scopes: Scope, tenant: str = "team-a", lifetime: timedelta | None = None) -> Headers:
        now = datetime.now(UTC)
        _, secret = ApiKeyStore(store_client).create(
            name="test",
            tenant=tenant,
            scopes=list(scopes),
            created_by="test",
            at=now,
            expires_at=None if lifetime is None else now + lifetime,
        )
        return {"Authorization": f"Bearer {secret.text}"}

    return make


@contextmanager
def _app(client: redis.Redis, **settings: int | str) -> Iterator[Client]:
    with TestClient(
        create_app(msgspec.convert({"warm_up": False, **settings}, Settings), client)
    ) as api:
        yield api


@pytest.fixture
def strict_api(store_client: redis.Redis) -> Iterator[Client]:
    """Return a client of a service that serves nobody without a key."""
    with _app(store_client, require_keys=True) as api:
        yield api


def test_every_route_has_its_scope() -> None:
    """The table names every route that there is; one that it lacks would need `admin`."""
    assert {str(handler.operation_id) for handler in _HANDLERS} <= set(REQUIRED_SCOPES)


def _operations(api: Client) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in api.get("/openapi.json").json()["paths"].items():
        for method, operation in item.items():
            yield (
                method,
                re.sub(r"\{[^}]*\}", "019acfb4-5c00-7a2b-8c11-0242ac120002", path),
                operation,
            )


def test_no_route_but_the_public_ones_answers_without_a_key(strict_api: Client) -> None:
    """Each is 401 with a challenge; the public ones are not."""
    for method, path, operation in _operations(strict_api):
        answer = strict_api.request(method, path)
        is_public = REQUIRED_SCOPES[operation["operationId"]] is PUBLIC
        assert (answer.status_code != 401) == is_public, (method, path, answer.text)
        if not is_public:
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["code"] == "unauthorized"


@pytest.mark.parametrize("scope", ["read", "recommend", "validate"])
def test_a_narrow_key_opens_its_own_routes_only(
    strict_api: Client, make_key: MakeKey, scope: Scope
) -> None:
    """Each route of another scope is 403 and names what is missing."""
    headers = make_key(scope)

    for method, path, operation in _operations(strict_api):
        needed = REQUIRED_SCOPES[operation["operationId"]]
        if needed in (scope, PUBLIC):
            continue
        answer = strict_api.request(method, path, headers=headers)
        assert answer.status_code == 403, (method, path)
        assert str(needed) in answer.json()["detail"]
        assert f'scope="{needed}"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize(
    "value",
    ["Bearer", "Bearer x", "Basic abc", "Bearer sp_aaaaaaaaaaaa_" + "a" * 43, "Bearer \xff"],
)
def test_what_is_no_key_is_unauthorized(strict_api: Client, value: str) -> None:
    """Malformed and unknown credentials are refused alike, and not repeated."""
    answer = strict_api.get("/gpus", headers={"Authorization": value.encode("latin-1")})

    assert answer.status_code == 401
    assert "aaaaa" not in answer.text


def test_an_expired_key_is_told_so(strict_api: Client, make_key: MakeKey) -> None:
    """A key ends at its time."""
    answer = strict_api.get("/gpus", headers=make_key("read", lifetime=timedelta(seconds=-1)))

    assert (answer.status_code, "expired" in answer.text) == (401, True)


def test_without_keys_this_machine_is_served(api: Client) -> None:
    """Everything but the administration works, which names the command for the first key."""
    assert api.get("/gpus").status_code == 200
    refused = api.get("/api-keys")
    assert refused.status_code == 403
    assert "setpoint keys create" in refused.json()["detail"]


def test_without_keys_other_machines_are_not_served(store_client: redis.Redis) -> None:
    """Foreign addresses, names and pages need a key, whatever server listens for us."""
    app = create_app(Settings(warm_up=False), store_client)

    def ask(path: str, *, client: str = "127.0.0.1", **headers: str) -> int:
        async def send() -> int:
            here = httpx.ASGITransport(app, client=(client, 1234))
            async with httpx.AsyncClient(transport=here, base_url="http://127.0.0.1:8000") as web:
                return (await web.get(path, headers=headers)).status_code

        return asyncio.run(send())

    assert ask("/gpus") == ask("/gpus", host="localhost:8000", origin="http://[::1]:80") == 200
    assert ask("/livez", client="192.0.2.7") == 200
    assert ask("/gpus", client="192.0.2.7") == 401
    assert ask("/gpus", host="setpoint.example.org") == 401
    for origin in ("https://evil.example.org", "null", "http://[", "http://localhost.evil.org"):
        assert ask("/gpus", origin=origin) == 401


def test_the_first_key_closes_the_service(api: Client, make_key: MakeKey) -> None:
    """From then on a caller without one is refused, in the same process, also after revocation."""
    assert api.get("/gpus").status_code == 200
    headers = make_key("admin", tenant="default")
    api.app.state.context.authenticator._any_made = None  # what half a second does

    (listed,) = api.get("/api-keys", headers=headers).json()["items"]
    revoked = api.delete(f"/api-keys/{listed['id']}", headers=headers)
    api.app.state.context.authenticator._known.clear()

    assert api.get("/gpus").status_code == 401
    assert revoked.json()["revoked_at"]
    assert "revoked" in api.get("/gpus", headers=headers).json()["detail"]


def test_keys_are_made_shown_once_and_used(strict_api: Client, make_key: MakeKey) -> None:
    """An administrator makes, sees, replaces and revokes keys of the own tenant."""
    admin, other = make_key("admin"), make_key("admin", tenant="team-b")
    body = {"name": "ci", "scopes": ["read"], "expires_in_s": 60}

    made = strict_api.post("/api-keys", json=body, headers=admin)
    secret, location = made.json()["secret"], made.headers["location"]
    used = strict_api.get("/gpus", headers={"Authorization": f"Bearer {secret}"})
    shown = strict_api.get(location, headers=admin)
    rotated = strict_api.post(f"{location}/rotations", json={"overlap_s": 60}, headers=admin)
    strict_api.delete(location, headers=admin)

    assert (made.status_code, used.status_code, rotated.status_code) == (201, 200, 201)
    assert secret not in shown.text
    assert shown.json()["last_used_at"]
    assert strict_api.get(location, headers=other).status_code == 404
    assert strict_api.delete(location, headers=other).status_code == 404
    again = strict_api.post(f"{location}/rotations", json={}, headers=admin)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


def test_tenants_see_their_own_records_only(strict_api: Client, make_key: MakeKey) -> None:
    """Recommendations, measurements, calibrations and models of another tenant do not exist."""
    mine, theirs = make_key("admin"), make_key("admin", tenant="team-b")
    made = strict_api.post("/recommendations", content=ADVICE, headers=mine)
    plan = json.loads(encode(validation_plan())) | {"when_no_worker": "wait"}
    address = made.headers["location"]
    started = strict_api.post(f"{address}/validations", json=plan, headers=mine)
    report = encode(bench_report_request())
    measured = strict_api.post("/measurements", content=report, headers=mine)
    registered = strict_api.put(
        "/models/team/own", content=encode(model_registration()), headers=mine
    )
    own = [answer.headers["location"] for answer in (made, started, measured, registered)]

    for place in own:
        assert strict_api.get(place, headers=mine).status_code == 200
        assert strict_api.get(place, headers=theirs).status_code == 404
        assert strict_api.delete(place, headers=theirs).status_code == 404
    followed = strict_api.get(f"{own[1]}/events", headers=theirs)
    file = strict_api.get(f"{address}/files/serve.sh", headers=theirs)
    again = strict_api.post(f"{address}/validations", json=plan, headers=theirs)
    assert {followed.status_code, file.status_code, again.status_code} == {404}
    for listing in ("/recommendations", "/measurements", "/calibrations"):
        assert strict_api.get(listing, headers=theirs).json()["items"] == []
        assert strict_api.get(listing, headers=mine).json()["items"]
    same = strict_api.post("/measurements", content=report, headers=theirs)
    assert same.status_code == 201
    assert same.headers["location"] != measured.headers["location"]


def test_a_recommendation_with_a_proof_needs_both_scopes(
    strict_api: Client, make_key: MakeKey
) -> None:
    """A key for advice alone cannot take GPU time by the side door."""
    body = json.loads(ADVICE) | {"validation": json.loads(encode(validation_plan()))}

    answer = strict_api.post("/recommendations", json=body, headers=make_key("recommend"))

    assert (answer.status_code, "validate" in answer.json()["detail"]) == (403, True)


def test_the_trail_says_who_did_what(strict_api: Client, make_key: MakeKey) -> None:
    """Changes and refusals are there with key, address and request; reading is not."""
    admin = make_key("admin")
    made = strict_api.post("/recommendations", content=ADVICE, headers=admin)
    strict_api.get("/gpus", headers=admin)
    strict_api.get("/api-keys", headers=make_key("read"))

    events = strict_api.get("/audit-events?limit=10", headers=admin).json()["items"]

    actions = [(event["action"], event["status"]) for event in events]
    assert actions == [("listApiKeys", 403), ("createRecommendation", 201)]
    assert events[1]["target"] == made.headers["location"]
    assert events[1]["request_id"] == made.headers["x-request-id"]
    assert events[1]["actor"] in admin["Authorization"]
    others = strict_api.get("/audit-events", headers=make_key("admin", tenant="team-b"))
    assert others.json()["items"] == []


def test_a_removed_model_stands_in_the_trail(strict_api: Client, make_key: MakeKey) -> None:
    """Registering and removing a model are told with its address; a vain try is not."""
    key, admin, address = make_key("recommend"), make_key("admin"), "/models/team/own"
    strict_api.put(address, content=encode(model_registration()), headers=key)
    for _ in range(2):
        strict_api.delete(address, headers=key)

    events = strict_api.get("/audit-events", headers=admin).json()["items"]

    trail = [(event["action"], event["target"], event["status"]) for event in events]
    assert trail == [("deleteModel", address, 204), ("registerModel", address, 201)]


def test_a_key_that_asks_too_often_is_told_when(
    store_client: redis.Redis, make_key: MakeKey
) -> None:
    """Within the budget each answer says what is left; beyond it, when to come back."""
    headers, other = make_key("read"), make_key("read")

    with _app(store_client, requests_per_minute=2) as api:
        answers = [api.get("/gpus?limit=x", headers=headers) for _ in range(3)]
        fine = api.get("/gpus", headers=other)
        metrics = api.get("/metrics", headers=other)

    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["1", "0", "0"]
    assert [answer.status_code for answer in answers] == [400, 400, 429]
    assert answers[2].headers["ratelimit-policy"] == '"requests";q=2;w=60'
    assert 25 <= int(answers[2].headers["retry-after"]) <= 30
    assert answers[2].json()["code"] == "rate-limited"
    assert fine.status_code == 200
    assert 'setpoint_rate_limited_total{budget="requests"} 1.0' in metrics.text


def test_gpu_minutes_are_counted_by_the_plan(store_client: redis.Redis, make_key: MakeKey) -> None:
    """Plans are charged minutes times devices, apart from requests, and refused beyond the day."""
    headers = make_key("admin")
    plan = {"mode": "boot", "max_minutes": 10, "when_no_worker": "wait"}

    with _app(store_client, require_keys=True, gpu_minutes_per_day=15) as api:
        made = api.post("/recommendations", content=ADVICE, headers=headers)
        address = f"{made.headers['location']}/validations"
        first = api.post(address, json=plan, headers=headers)
        second = api.post(address, json=plan, headers=headers)
        impossible = api.post(address, json=plan | {"max_minutes": 30}, headers=headers)

    assert first.status_code == 202
    assert second.status_code == 429
    assert int(second.headers["retry-after"]) > 1000
    assert (impossible.status_code, "max_minutes" in impossible.text) == (400, True)


def test_requests_pass_uncounted_while_the_store_is_away(
    strict_api: Client, make_key: MakeKey
) -> None:
    """The analytic side fails open and counts it; a key that cannot be checked is refused."""
    api, headers = strict_api, make_key("read")
    api.get("/gpus", headers=headers)
    context = api.app.state.context
    with connect("redis://127.0.0.1:1", timeout_s=0.2) as dead:
        context.budgets._take.registered_client = dead
        open_ = api.get("/gpus", headers=headers)
        context.authenticator._known.clear()
        context.authenticator._store = ApiKeyStore(dead)
        closed = api.get("/gpus", headers=headers)

    assert open_.status_code == 200
    assert isinstance(context.metrics, Metrics)
    assert b'setpoint_rate_limit_unchecked_total{budget="requests"} 1.0' in context.metrics.expose()
    assert (closed.status_code, closed.json()["code"]) == (503, "store-unavailable")


def test_pages_of_listed_origins_may_call(store_client: redis.Redis) -> None:
    """Listed origins are let in by name, preflights too; all others get no such header."""
    good, other = "https://portal.example.org", "https://portal.example.org.evil"
    asked = {"Access-Control-Request-Method": "POST"}
    with _app(store_client, cors_origins=f"{good},http://localhost:3000") as api:
        answer = api.get("/gpus", headers={"Origin": good})
        preflight = api.options("/recommendations", headers={"Origin": good, **asked})
        refused = api.options("/recommendations", headers={"Origin": other, **asked})
        plain = api.get("/gpus")

    assert answer.headers["access-control-allow-origin"] == good
    assert "etag" in answer.headers["access-control-expose-headers"].lower()
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == good
    assert "idempotency-key" in preflight.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in preflight.headers
    for blocked in (refused, plain):
        assert "access-control-allow-origin" not in blocked.headers
        assert "origin" in blocked.headers["vary"].lower()


@pytest.mark.parametrize("origins", ["*", "https://*.example.org", "example.org", "https://a/b"])
def test_wildcards_are_no_origins(origins: str) -> None:
    """The list names origins exactly."""
    with pytest.raises(InvalidSettings, match="SETPOINT_CORS_ORIGINS"):
        read_settings({"SETPOINT_CORS_ORIGINS": origins})
