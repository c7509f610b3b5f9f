"""Tenants with records of every kind, for tests that look whose data an answer holds."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx
import msgspec

from api_schemas.access import Scope
from service.api.examples import measurement_request
from service.embedded import store_url
from service.store.api_keys import ApiKeyStore
from service.store.client import connect
from tests.integration.service_process import ServiceProcess
from tests.integration.test_validations import request_for
from tests.integration.worker_process import until
from workers.tiny_model import CONFIG

SHARED_MODEL = "everyone/has-one"
"""An id under which each tenant registered a model of its own."""


class Tenant(NamedTuple):
    """A tenant with records of every kind."""

    key_id: str
    headers: dict[str, str]
    ids: dict[str, list[str]]
    """By name of the parameter that takes them."""


def make_key(service: ServiceProcess, tenant: str, scopes: list[str]) -> tuple[str, str]:
    """Return id and secret of a new key."""
    with connect(store_url(str(service.data_dir)), timeout_s=5.0) as client:
        key, secret = ApiKeyStore(client).create(
            name="test",
            tenant=tenant,
            scopes=msgspec.convert(scopes, list[Scope]),
            created_by="test",
            at=datetime.now(UTC),
        )
    return key.id, secret.text


def secret_of(tenant: str) -> str:
    """Return a text that stands in every record of a tenant."""
    return f"only-{tenant}-knows"


def furnish(service: ServiceProcess, tenant: str) -> Tenant:
    """Make a tenant with records of every kind, waiting ones and ended ones."""
    key_id, key = make_key(service, tenant, ["admin"])
    headers, known = {"Authorization": f"Bearer {key}"}, secret_of(tenant)

    def send(method: str, path: str, body: Any = None) -> httpx.Response:  # noqa: ANN401
        answer = service.client.request(method, path, json=body, headers=headers, timeout=240)
        assert answer.is_success, answer.text
        return answer

    model = {"config": {**CONFIG, "_name_or_path": known}}
    for name in (SHARED_MODEL, f"{known}/model"):
        send("PUT", f"/models/{name}", model)
    advice = send("POST", "/recommendations", request_for("tiny", labels={"of": known})).json()[
        "id"
    ]
    start, runs = f"/recommendations/{advice}/validations", {}
    hook = {"url": f"http://127.0.0.1:9/{known}", "secret_ref": "team"}
    plan = {"mode": "boot", "when_no_worker": "wait", "webhook": hook}
    study = {
        "recommendation_id": advice,
        "space": {"max_num_seqs": {"kind": "choices", "values": [2, 4]}},
        "when_no_worker": "wait",
        "labels": {"of": known},
    }
    for name, path, body in (("validations", start, plan), ("studies", "/studies", study)):
        runs[name] = [str(send("POST", path, body).json()["id"]) for _ in range(2)]
        send("DELETE", f"/{name}/{runs[name][0]}")
    measured = msgspec.to_builtins(measurement_request()) | {"reference": known}
    measurement = send("POST", "/measurements", measured).json()["items"][0]["id"]
    spare = send("POST", "/api-keys", {"name": known, "scopes": ["read"]}).json()["key"]["id"]
    until(lambda: send("GET", "/webhook-deliveries").json()["items"], "the delivery")
    ids = {
        "path.recommendation_id": [advice],
        "body.recommendation_id": [advice],
        "path.validation_id": runs["validations"],
        "query.validation_id": runs["validations"],
        "path.delivery_id": runs["validations"][:1],
        "path.study_id": runs["studies"],
        "path.measurement_id": [measurement],
        "path.key_id": [spare],
    }
    return Tenant(key_id, headers, ids)


def records_of(service: ServiceProcess, tenant: Tenant) -> list[Any]:
    """Return all that a tenant reads of its own records."""
    ids = tenant.ids
    paths = [
        *(f"/{name}" for name in ("recommendations", "studies", "measurements", "api-keys")),
        *(f"/models/{SHARED_MODEL}", f"/recommendations/{ids['path.recommendation_id'][0]}"),
        *(f"/validations/{name}" for name in ids["path.validation_id"]),
        *(f"/studies/{name}" for name in ids["path.study_id"]),
    ]
    answers = [service.client.get(path, headers=tenant.headers) for path in paths]
    assert all(answer.status_code == 200 for answer in answers)
    bodies = [answer.json() for answer in answers]
    for key in bodies[3]["items"]:
        del key["last_used_at"]
    return bodies
