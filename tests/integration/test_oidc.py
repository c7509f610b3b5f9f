"""Tokens of a CI system, against a local issuer that speaks OpenID Connect discovery."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis
from litestar.testing import TestClient

from service.access import Caller
from service.app import create_app
from service.oidc import InvalidToken, InvalidTrust, TokenVerifier, read_trust
from service.settings import Settings

jwt = pytest.importorskip("joserfc.jwt")
jwk = pytest.importorskip("joserfc.jwk")

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = {"repository": "acme/serving", "ref": "refs/heads/main"}


class IssuerServer(ThreadingHTTPServer):
    """Publishes a discovery document and public keys."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.keys = [jwk.RSAKey.generate_key(2048, {"kid": "first"}, private=True)]
        self.requests: list[str] = []
        self.jwks_uri = f"{self.url}/keys"

    def token(self, *, key: Any = None, alg: str = "RS256", **claims: Any) -> str:  # noqa: ANN401
        """Return a token of a job, five minutes long, with these claims changed."""
        signer = key or self.keys[-1]
        base = {
            "iss": self.url,
            "aud": "setpoint",
            "sub": "repo:acme/serving",
            "iat": int(NOW.timestamp()),
            "exp": int((NOW + timedelta(minutes=5)).timestamp()),
            **JOB,
        }
        given = {name: value for name, value in (base | claims).items() if value is not None}
        token: str = jwt.encode({"alg": alg, "kid": signer.kid}, given, signer, algorithms=[alg])
        return token


class Handler(BaseHTTPRequestHandler):
    """Answers the two documents."""

    server: IssuerServer

    def do_GET(self) -> None:
        """Answer a document as JSON."""
        self.server.requests.append(self.path)
        content: dict[str, Any]
        if self.path == "/keys":
            content = {"keys": [key.as_dict(private=False) for key in self.server.keys]}
        else:
            content = {"issuer": self.server.url, "jwks_uri": self.server.jwks_uri}
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Keep the test's output clean."""


@pytest.fixture
def issuer() -> Iterator[IssuerServer]:
    with IssuerServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def trust_file(issuer: IssuerServer, tmp_path: Path) -> str:
    grants = [
        {"claims": {**JOB}, "tenant": "team-a", "scopes": ["read", "recommend", "validate"]},
        {"claims": {"repository": "acme/*"}, "tenant": "team-a", "scopes": ["read"]},
    ]
    trusted = {"issuer": issuer.url, "audience": "setpoint", "grants": grants}
    path = tmp_path / "trust.json"
    path.write_text(json.dumps({"issuers": [trusted]}))
    return str(path)


@pytest.fixture
def verifier(trust_file: str) -> TokenVerifier:
    return TokenVerifier(read_trust(trust_file), now=lambda: NOW)


def test_a_job_becomes_the_caller_that_its_claims_grant(
    issuer: IssuerServer, verifier: TokenVerifier
) -> None:
    """The first grant whose claims all match says tenant and scopes."""
    main = verifier.caller_of(issuer.token())
    branch = verifier.caller_of(issuer.token(ref="refs/heads/topic"))

    assert main.tenant == "team-a"
    assert main.may("validate")
    assert branch.scopes == {"read"}
    assert isinstance(main, Caller)
    assert "repo:acme/serving" in main.actor
    assert issuer.requests.count("/keys") == 1


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"},
        {"aud": None},
        {"exp": int((NOW - timedelta(minutes=1)).timestamp())},
        {"exp": None},
        {"nbf": int((NOW + timedelta(minutes=5)).timestamp())},
        {"iss": "https://issuer.example.org"},
        {"sub": None},
        {"repository": "evil/serving"},
        {"repository": None},
    ],
)
def test_a_token_that_was_not_meant_for_us_does_not_count(
    issuer: IssuerServer, verifier: TokenVerifier, claims: dict[str, Any]
) -> None:
    """Audience, time, issuer, subject and grant must all fit."""
    with pytest.raises(InvalidToken):
        verifier.caller_of(issuer.token(**claims))


def test_a_token_that_somebody_else_signed_does_not_count(
    issuer: IssuerServer, verifier: TokenVerifier
) -> None:
    """Neither another key under the same id, nor a shared secret, nor no signature at all."""
    forged = jwk.RSAKey.generate_key(2048, {"kid": "first"}, private=True)
    secret = jwk.OctKey.import_key("x" * 32, {"kid": "first"})
    head, payload, _ = issuer.token().split(".")

    tokens = [
        issuer.token(key=forged),
        issuer.token(key=secret, alg="HS256"),
        f"eyJhbGciOiJub25lIn0.{payload}.",
        f"{head}.{payload}.",
        "a.b.c",
        "..",
        "x" * 20_000 + "..",
    ]
    for token in tokens:
        with pytest.raises(InvalidToken) as refusal:
            verifier.caller_of(token)
        assert payload not in str(refusal.value)


def test_new_keys_of_an_issuer_are_found(issuer: IssuerServer, trust_file: str) -> None:
    """An unknown key id is looked up again, though not at once after the last time."""
    clock = iter([0.0, 1.0, 2.0, 60.0, 61.0, 62.0])
    verifier = TokenVerifier(read_trust(trust_file), now=lambda: NOW, monotonic=lambda: next(clock))
    verifier.caller_of(issuer.token())
    issuer.keys.append(jwk.RSAKey.generate_key(2048, {"kid": "second"}, private=True))

    with pytest.raises(InvalidToken):
        verifier.caller_of(issuer.token())

    assert verifier.caller_of(issuer.token()).tenant == "team-a"
    assert issuer.requests.count("/keys") == 2


def test_keys_are_not_fetched_from_where_others_can_listen(
    issuer: IssuerServer, verifier: TokenVerifier, tmp_path: Path
) -> None:
    """Plain HTTP is for this machine only, for the issuer and for its keys."""
    issuer.jwks_uri = "http://192.0.2.1/keys"
    grant = {"claims": {"a": "b"}, "tenant": "t", "scopes": ["read"]}
    trusted = {"issuer": "http://issuer.example.org", "audience": "a", "grants": [grant]}
    (tmp_path / "bad.json").write_text(json.dumps({"issuers": [trusted]}))

    with pytest.raises(InvalidToken, match="cannot be fetched"):
        verifier.caller_of(issuer.token())
    with pytest.raises(InvalidTrust, match="https"):
        read_trust(str(tmp_path / "bad.json"))


def test_the_example_can_be_used() -> None:
    """The file in the examples is one that the service takes."""
    example = Path(__file__).parents[2] / "examples" / "access" / "oidc.json"

    assert len(read_trust(str(example)).issuers) == 2


def test_the_service_takes_tokens_beside_keys(
    issuer: IssuerServer, trust_file: str, store_client: redis.Redis
) -> None:
    """A token opens what it grants; with issuers set nobody is served without one."""
    settings = Settings(warm_up=False, oidc_file=trust_file)
    valid = {"iat": int(time.time()), "exp": int(time.time()) + 60}  # noqa: TID251  # real clock
    token = issuer.token(**valid, ref="refs/heads/topic")
    with TestClient(create_app(settings, store_client)) as api:
        headers = {"Authorization": f"Bearer {token}"}
        answers = [
            api.get("/gpus", headers=headers).status_code,
            api.get("/recommendations", headers=headers).status_code,
            api.delete("/recommendations/x", headers=headers).status_code,
            api.get("/gpus").status_code,
        ]
        broken = api.get("/gpus", headers={"Authorization": f"Bearer {token}x"})

    assert answers == [200, 200, 403, 401]
    assert (broken.status_code, token in broken.text) == (401, False)
    assert 'error="invalid_token"' in broken.headers["www-authenticate"]
