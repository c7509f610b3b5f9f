"""The look-up on the Hub, against a local server that speaks the Hub's protocol."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from api_schemas.model import ModelRef
from service.hub import HubOptions, find_on_hub, make_hub_resolver
from service.store.models import ModelRecord
from service.tuning.errors import InvalidRequest, TuningError, UnknownModel
from service.tuning.models.catalogue import resolve_model

SHA = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_aSecretThatNobodyMaySee"  # noqa: S105 - made up
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}


class Cache:
    """A store in memory with the two operations that the look-up needs."""

    def __init__(self) -> None:
        self.records: dict[str, ModelRecord] = {}

    def find_from_hub(self, model_id: str) -> ModelRecord | None:
        """Return what was remembered."""
        return self.records.get(model_id)

    def remember_from_hub(self, record: ModelRecord) -> None:
        """Remember a record for good."""
        self.records[record.id] = record


class HubServer(ThreadingHTTPServer):
    """Repositories by id: their files, or the error that the Hub answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.sizes: dict[str, dict[str, int]] = {}
        self.errors: dict[str, tuple[int, str]] = {}
        self.requests: list[str] = []
        self.tokens: list[str | None] = []
        self.silent = threading.Event()
        self.closing = threading.Event()

    @property
    def endpoint(self) -> str:
        """Return the address that stands in for the Hub's."""
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, model_id: str, config: bytes | None, **sizes: int) -> None:
        """Publish a repository; a name's double underscore stands for its dot."""
        self.files[model_id] = {} if config is None else {"config.json": config}
        names = {name.replace("__", "."): size for name, size in sizes.items()}
        self.sizes[model_id] = names


class Handler(BaseHTTPRequestHandler):
    """Answers /api/models/... and /owner/name/resolve/... as the Hub does."""

    server: HubServer

    def do_GET(self) -> None:
        """Answer a request for content."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer a request for headers only."""
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Keep the test's output clean."""
        del format, args

    def _answer(self) -> None:
        if self.server.silent.is_set():
            self.server.closing.wait()
            return
        path = urlsplit(self.path).path
        self.server.requests.append(f"{self.command} {path}")
        self.server.tokens.append(self.headers.get("Authorization"))
        words = path.strip("/").split("/")
        is_api = words[:2] == ["api", "models"]
        owner, name, *rest = words[2:] if is_api else words
        model_id = f"{owner}/{name}"
        if model_id in self.server.errors:
            self._send_error(*self.server.errors[model_id])
        elif model_id not in self.server.files:
            self._send_error(404, "RepoNotFound")
        elif is_api:
            self._send_info(model_id, rest)
        else:
            self._send_file(self.server.files[model_id].get(rest[-1]))

    def _send_info(self, model_id: str, rest: list[str]) -> None:
        if rest and rest[-1] not in {"main", SHA}:
            self._send_error(404, "RevisionNotFound")
            return
        files = self.server.files[model_id]
        sizes = {name: len(body) for name, body in files.items()} | self.server.sizes[model_id]
        siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
        body = {"id": model_id, "sha": SHA, "siblings": siblings, "tags": [], "private": False}
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _send_file(self, body: bytes | None) -> None:
        if body is None:
            self._send_error(404, "EntryNotFound")
            return
        self._send(200, body, {"ETag": '"abc"', "X-Repo-Commit": SHA})

    def _send_error(self, status: int, code: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": code} if code else {}
        self._send(status, b"{}", headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[HubServer]:
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.closing.set()
    server.shutdown()
    thread.join()
    server.server_close()


def find(
    hub: HubServer,
    model_id: str,
    *,
    revision: str | None = None,
    **options: Any,  # noqa: ANN401
) -> ModelRecord:
    return find_on_hub(
        ModelRef(id=model_id, revision=revision),
        cache=Cache(),
        options=HubOptions(endpoint=hub.endpoint, **options),
    )


def test_a_config_and_the_size_of_the_weights_are_read(hub: HubServer) -> None:
    """The record holds the config, the pinned revision and the bytes that vLLM would load."""
    hub.add(
        "acme/small",
        json.dumps(CONFIG).encode(),
        **{
            "model-00001-of-00002__safetensors": 1000,
            "model-00002-of-00002__safetensors": 500,
            "consolidated__safetensors": 1500,
            "original/model__safetensors": 1500,
            "pytorch_model__bin": 1500,
        },
    )

    record = find(hub, "acme/small")

    assert record.config == CONFIG
    assert record.weights_bytes == 1500
    assert record.revision == SHA
    assert f"GET /acme/small/resolve/{SHA}/config.json" in hub.requests


def test_a_second_look_up_asks_the_cache(hub: HubServer) -> None:
    """What was read once is not read again; another revision is another record."""
    hub.add("acme/small", json.dumps(CONFIG).encode())
    cache = Cache()
    options = HubOptions(endpoint=hub.endpoint)
    find_on_hub(ModelRef(id="acme/small"), cache=cache, options=options)
    asked = len(hub.requests)

    again = find_on_hub(ModelRef(id="acme/small"), cache=cache, options=options)
    find_on_hub(ModelRef(id="acme/small", revision="main"), cache=cache, options=options)

    assert again.config == CONFIG
    assert len(hub.requests) == 2 * asked


def test_the_resolver_asks_only_for_what_is_unknown(hub: HubServer) -> None:
    """Bundled models cause no request; an unknown one is read and resolved."""
    hub.add("acme/small", json.dumps(CONFIG).encode(), model__safetensors=4096)
    resolve = make_hub_resolver(
        resolve_model, cache=Cache(), options=HubOptions(endpoint=hub.endpoint)
    )

    bundled = resolve(ModelRef(id="Qwen/Qwen3-8B"))
    asked_for_bundled = list(hub.requests)
    found = resolve(ModelRef(id="acme/small"))

    assert bundled.num_layers == 36
    assert asked_for_bundled == []
    assert (found.id, found.num_layers, found.weights_bytes) == ("acme/small", 2, 4096)


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (401, "GatedRepo", "accepted its terms"),
        (403, "GatedRepo", "accepted its terms"),
        (404, "RepoNotFound", "no such model"),
        (401, "RepoNotFound", "no such model"),
        (403, "", "refused access"),
        (503, "", "status 503"),
    ],
)
def test_what_the_hub_does_not_show_is_unknown(
    hub: HubServer, status: int, code: str, text: str
) -> None:
    """Gated, private, missing and failing repositories are unknown models, with the reason."""
    hub.errors["acme/hidden"] = (status, code)

    with pytest.raises(UnknownModel, match=text) as refusal:
        find(hub, "acme/hidden", token=TOKEN)

    assert refusal.value.pointer == "/model/id"
    assert "model.config" in refusal.value.message


def test_an_unknown_revision_names_the_revision(hub: HubServer) -> None:
    """A revision that the repository lacks is a mistake in that field."""
    hub.add("acme/small", json.dumps(CONFIG).encode())

    with pytest.raises(InvalidRequest, match="v9") as refusal:
        find(hub, "acme/small", revision="v9")

    assert refusal.value.pointer == "/model/revision"


@pytest.mark.parametrize("body", [None, b"not json", b"[1, 2]"])
def test_a_repository_without_a_usable_config_is_refused(
    hub: HubServer, body: bytes | None
) -> None:
    """No config.json, or one that is no JSON object, is said to be so."""
    hub.add("acme/odd", body)

    with pytest.raises(InvalidRequest, match=r"config\.json"):
        find(hub, "acme/odd")


def test_a_huge_config_is_not_downloaded(hub: HubServer) -> None:
    """A config.json that claims to be huge is refused before it is fetched."""
    hub.add("acme/huge", json.dumps(CONFIG).encode(), config__json=10**9)

    with pytest.raises(InvalidRequest, match="larger"):
        find(hub, "acme/huge")

    assert not any("resolve" in request for request in hub.requests)


def test_a_silent_hub_is_given_up(hub: HubServer) -> None:
    """A Hub that accepts the connection and says nothing costs no more than the limit."""
    hub.silent.set()

    with pytest.raises(UnknownModel, match=r"within 0\.2 s"):
        find(hub, "acme/small", timeout_s=0.2)


def test_a_hub_that_is_away_is_said_to_be(hub: HubServer) -> None:
    """A refused connection is an unknown model with that reason, not a crash."""
    options = HubOptions(endpoint="http://127.0.0.1:1")

    with pytest.raises(UnknownModel, match="could not be reached"):
        find_on_hub(ModelRef(id="acme/small"), cache=Cache(), options=options)

    assert hub.requests == []


def test_offline_asks_nobody(hub: HubServer) -> None:
    """Offline reads a local cache only, and says so when it holds nothing."""
    hub.add("acme/never-downloaded", json.dumps(CONFIG).encode())

    with pytest.raises(UnknownModel, match="offline"):
        find(hub, "acme/never-downloaded", is_offline=True)

    assert hub.requests == []


@pytest.mark.parametrize("model_id", ["a/b/c", "acme/.."])
def test_an_id_that_no_repository_can_have(hub: HubServer, model_id: str) -> None:
    """An id that the Hub cannot hold is refused without a request."""
    with pytest.raises(InvalidRequest, match="owner/name"):
        find(hub, model_id)

    assert hub.requests == []


def test_the_token_is_sent_and_never_shown(hub: HubServer) -> None:
    """The token reaches the Hub; neither errors nor the options' text hold it."""
    hub.add("acme/small", json.dumps(CONFIG).encode())
    hub.errors["acme/hidden"] = (401, "GatedRepo")

    find(hub, "acme/small", token=TOKEN)
    with pytest.raises(TuningError) as refusal:
        find(hub, "acme/hidden", token=TOKEN)

    assert f"Bearer {TOKEN}" in hub.tokens
    assert TOKEN not in repr(refusal.value)
    assert TOKEN not in repr(HubOptions(token=TOKEN))
    assert refusal.value.__cause__ is None


def test_a_record_survives_the_store() -> None:
    """A record is JSON and back the same, as the store keeps it."""
    record = ModelRecord(id="acme/small", config=CONFIG, weights_bytes=1, revision=SHA)

    assert msgspec.json.decode(msgspec.json.encode(record), type=ModelRecord) == record
