"""The tools at `/mcp`, asked by the protocol's own client, against the routes they stand for."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import httpx2
import jsonschema
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from api_schemas.access import Scope
from service.api.mcp_older import OLDER
from service.embedded import store_url
from service.store.api_keys import ApiKeyStore
from service.store.client import connect
from tests.integration.service_process import ServiceProcess

_T = TypeVar("_T")
_MODEL = {"id": "Qwen/Qwen3-8B"}
_HARDWARE = {"gpu": "H100", "gpus_per_node": 2}
_COMPOSE = {
    "path": "compose.yaml",
    "content": "services:\n  vllm:\n    image: vllm/vllm-openai:v0.33.0\n"
    '    command: ["--model", "Qwen/Qwen3-8B", "--swap-space", "4"]\n',
}
_ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "recommend": (
        "/recommendations",
        {
            "model": _MODEL,
            "hardware": _HARDWARE,
            "workload": {"preset": "chat", "arrivals": {"kind": "poisson", "requests_per_s": 4}},
            "slo": {"targets": [{"metric": "ttft", "percentile": 95, "limit_ms": 500}]},
            "labels": {"by": "test"},
        },
    ),
    "estimate": (
        "/estimates",
        {
            "model": _MODEL,
            "hardware": _HARDWARE,
            "engine": {"config": {"tensor_parallel_size": 2, "max_num_seqs": 64}},
        },
    ),
    "check": ("/checks", {"files": [_COMPOSE], "model": _MODEL, "hardware": _HARDWARE}),
}
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Return a running service that serves nobody without a key."""
    folder = tmp_path_factory.mktemp("mcp")
    with ServiceProcess(folder, LOG_LEVEL="warning", REQUIRE_KEYS="true") as running:
        yield running


def make_key(service: ServiceProcess, *scopes: str, tenant: str = "team-a") -> str:
    """Return what the Authorization header says with a new key."""
    with connect(store_url(str(service.data_dir)), timeout_s=5.0) as client:
        _, secret = ApiKeyStore(client).create(
            name="test",
            tenant=tenant,
            scopes=msgspec.convert(scopes, list[Scope]),
            created_by="test",
            at=datetime.now(UTC),
        )
    return f"Bearer {secret.text}"


def _key(service: ServiceProcess, *scopes: str, tenant: str = "team-a") -> dict[str, str]:
    return {"Authorization": make_key(service, *scopes, tenant=tenant)}


@contextlib.asynccontextmanager
async def _client(service: ServiceProcess, headers: dict[str, str]) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{service.base_url}/mcp", http_client=http)) as client,
    ):
        yield client


def _talk(
    service: ServiceProcess, headers: dict[str, str], say: Callable[[Client], Awaitable[_T]]
) -> _T:
    async def conversation() -> _T:
        async with _client(service, headers) as client:
            return await say(client)

    return asyncio.run(conversation())


def _call(
    service: ServiceProcess, headers: dict[str, str], tool: str, asked: dict[str, Any]
) -> CallToolResult:
    return _talk(service, headers, lambda client: client.call_tool(tool, asked))


def _post(
    service: ServiceProcess, method: str, headers: dict[str, str], **params: object
) -> httpx.Response:
    """Send one message as it goes over the wire."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
    named = {"Mcp-Name": str(params["name"])} if "name" in params else {}
    return service.client.post(
        "/mcp",
        json=message,
        headers={
            "MCP-Protocol-Version": _META["io.modelcontextprotocol/protocolVersion"],
            "Mcp-Method": method,
            **named,
            **headers,
        },
    )


def test_the_tools_say_what_they_take_and_what_they_change(service: ServiceProcess) -> None:
    """Three tools with schemas that take what the routes take; one of them stores."""
    listed = _talk(service, _key(service, "recommend"), lambda client: client.list_tools())
    tools = {tool.name: tool for tool in listed.tools}

    assert set(tools) == set(_ROUTES)
    for name, (_, asked) in _ROUTES.items():
        jsonschema.Draft202012Validator.check_schema(tools[name].input_schema)
        jsonschema.Draft202012Validator(tools[name].input_schema).validate(asked)
        assert tools[name].description
        assert len(json.dumps(tools[name].input_schema)) < 25_000
    assert [name for name in tools if not tools[name].annotations.read_only_hint] == ["recommend"]


def test_a_caller_is_told_whom_it_talks_to(service: ServiceProcess) -> None:
    """Name, version and instructions, and the document of the API as a resource to read."""

    async def ask(client: Client) -> tuple[str, str, str]:
        read = await client.read_resource("litestar://openapi")
        return client.server_info.version, client.instructions, read.contents[0].text

    version, instructions, document = _talk(service, _key(service, "recommend"), ask)
    served = service.client.get("/openapi.json").json()

    assert version == served["info"]["version"]
    assert "`recommend`" in instructions
    assert json.loads(document) == served


@pytest.mark.parametrize("tool", ["recommend", "estimate", "check"])
def test_a_tool_answers_what_its_route_answers(service: ServiceProcess, tool: str) -> None:
    """The structured content is the route's body, apart from the id and time of a record."""
    headers = _key(service, "recommend")
    path, asked = _ROUTES[tool]

    result = _call(service, headers, tool, asked)
    expected = service.client.post(path, json=asked, headers=headers).json()

    assert not result.is_error
    assert result.content[0].text
    own = {"id", "created_at"} if tool == "recommend" else set()
    assert {k: v for k, v in result.structured_content.items() if k not in own} == {
        k: v for k, v in expected.items() if k not in own
    }


def test_a_load_that_nothing_meets_is_an_answer(service: ServiceProcess) -> None:
    """What cannot be done comes back with the reason, not as an error."""
    asked = {"model": {"id": "deepseek-ai/DeepSeek-R1"}, "hardware": {"gpu": "L4"}}

    result = _call(service, _key(service, "recommend"), "recommend", asked)

    assert not result.is_error
    assert not result.structured_content["feasible"]
    assert result.structured_content["headline"] in result.content[0].text


def test_a_recommendation_is_stored_for_its_tenant_and_audited(service: ServiceProcess) -> None:
    """What a tool recommended is read over REST by the same tenant alone, and is in its trail."""
    mine, other = _key(service, "recommend", "read"), _key(service, "read", tenant="team-b")
    admin = _key(service, "admin")

    answer = _call(service, mine, "recommend", _ROUTES["recommend"][1]).structured_content
    path = f"/recommendations/{answer['id']}"
    trail = service.client.get("/audit-events", headers=admin).json()["items"]

    assert service.client.get(path, headers=mine).json() == answer
    assert service.client.get(path, headers=other).status_code == 404
    assert ("createRecommendation", path) in {(e["action"], e["target"]) for e in trail}
    assert "callTool" not in {event["action"] for event in trail}


@pytest.mark.parametrize(
    "asked",
    [
        {"model": {"id": "nobody/nothing"}, "hardware": _HARDWARE},
        {"model": _MODEL, "hardware": {"gpu": "H100", "gpus_per_node": "two"}},
        {"model": _MODEL, "hardware": _HARDWARE, "surprise": 1},
        {"model": _MODEL},
        {},
    ],
)
def test_a_refusal_is_a_tool_error_with_the_problem(
    service: ServiceProcess, asked: dict[str, Any]
) -> None:
    """The text is the very problem of the route, so that a caller can mend the field it names."""
    headers = _key(service, "recommend")

    result = _call(service, headers, "recommend", asked)
    problem = json.loads(result.content[0].text)
    expected = service.client.post("/recommendations", json=asked, headers=headers).json()

    assert result.is_error
    for name in ("type", "title", "status", "detail", "code", "errors"):
        assert problem[name] == expected[name]
    assert problem["request_id"]


def test_a_tool_does_no_more_than_the_key_allows(service: ServiceProcess) -> None:
    """A proof needs the scope `validate`, whichever way it is asked for."""
    asked = {**_ROUTES["recommend"][1], "validation": {"mode": "quick"}}

    result = _call(service, _key(service, "recommend"), "recommend", asked)

    assert result.is_error
    assert json.loads(result.content[0].text)["code"] == "forbidden"


def test_a_client_of_an_older_revision_calls_tools(service: ServiceProcess) -> None:
    """The handshake, the list and a call, as the protocol's own client did before 2026."""

    async def conversation() -> tuple[str | None, set[str], CallToolResult, str]:
        async with (
            httpx2.AsyncClient(headers=_key(service, "recommend"), timeout=60) as http,
            Client(
                streamable_http_client(f"{service.base_url}/mcp", http_client=http), mode="legacy"
            ) as client,
        ):
            tools = {tool.name for tool in (await client.list_tools()).tools}
            called = await client.call_tool("check", _ROUTES["check"][1])
            read = await client.read_resource("litestar://openapi")
            return client.protocol_version, tools, called, read.contents[0].text

    version, tools, called, document = asyncio.run(conversation())

    assert version == OLDER[-1]
    assert tools == set(_ROUTES)
    assert not called.is_error
    assert called.structured_content["findings"]
    assert json.loads(document)["openapi"]


def _say(
    service: ServiceProcess, headers: dict[str, str], method: str, **message: object
) -> httpx.Response:
    """Send a message of an older revision as it goes over the wire."""
    body = {"jsonrpc": "2.0", "method": method, **message}
    return service.client.post("/mcp", json=body, headers=headers)


@pytest.mark.parametrize("revision", OLDER)
def test_every_older_revision_is_answered(service: ServiceProcess, revision: str) -> None:
    """Handshake, notification and call in the revision that was asked for, without a session."""
    headers = _key(service, "recommend")
    asked = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "old"}}
    named = {**headers, "MCP-Protocol-Version": revision}
    estimate = {"name": "estimate", "arguments": _ROUTES["estimate"][1]}

    greeted = _say(service, headers, "initialize", id=0, params=asked)
    ready = _say(service, named, "notifications/initialized")
    called = _say(service, named, "tools/call", id="a", params=estimate)
    pinged = _say(service, headers, "ping", id=2)

    assert greeted.json()["id"] == 0
    greeting = greeted.json()["result"]
    assert greeting["protocolVersion"] == revision
    assert greeting["capabilities"] == {"tools": {}, "resources": {}}
    assert greeting["serverInfo"]["name"] == "Setpoint"
    assert "`recommend`" in greeting["instructions"]
    assert "mcp-session-id" not in greeted.headers
    assert (ready.status_code, ready.content) == (202, b"")
    assert called.json()["id"] == "a"
    assert called.json()["result"]["structuredContent"]["fits"]
    assert (pinged.status_code, pinged.json()["result"]) == (200, {})


def test_an_unknown_revision_is_offered_the_newest_with_a_handshake(
    service: ServiceProcess,
) -> None:
    """Whoever asks for what is not spoken here can decide whether to go on."""
    asked = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old"}}

    answer = _say(service, _key(service, "recommend"), "initialize", id=1, params=asked)

    assert answer.json()["result"]["protocolVersion"] == OLDER[-1]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/call", {"name": "none"}, -32602),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": 5}, -32602),
        ("logging/setLevel", {"level": "debug"}, -32601),
        ("tools/list", {"cursor": "none"}, -32602),
    ],
)
def test_errors_of_older_revisions_are_answers(
    service: ServiceProcess, method: str, params: dict[str, Any], code: int
) -> None:
    """Older clients take any other status than 200 for a broken connection."""
    answer = _say(service, _key(service, "recommend"), method, id=7, params=params)

    assert answer.status_code == 200
    assert answer.json()["id"] == 7
    assert answer.json()["error"]["code"] == code


@pytest.mark.parametrize("method", ["initialize", "notifications/initialized", "ping"])
@pytest.mark.parametrize(("scopes", "status"), [((), 401), (("read",), 403)])
def test_older_messages_pass_the_same_guards(
    service: ServiceProcess, method: str, scopes: tuple[str, ...], status: int
) -> None:
    """Not even the handshake is answered to whoever may not recommend."""
    headers = _key(service, *scopes) if scopes else {}

    answer = _say(service, headers, method, id=1)

    assert answer.status_code == status
    assert answer.json()["code"] in {"unauthorized", "forbidden"}


@pytest.mark.parametrize(
    ("scopes", "status"), [((), 401), (("read",), 403), (("recommend",), 200), (("admin",), 200)]
)
def test_the_endpoint_is_guarded_like_a_route(
    service: ServiceProcess, scopes: tuple[str, ...], status: int
) -> None:
    """Without a key that may recommend, not even the tools are listed."""
    headers = _key(service, *scopes) if scopes else {}

    answer = _post(service, "tools/list", headers)

    assert answer.status_code == status
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_call_takes_one_request_from_the_budget(tmp_path: Path) -> None:
    """Each message counts once, also when it calls a tool, and the last one is refused."""
    settings = {"REQUIRE_KEYS": "true", "REQUESTS_PER_MINUTE": "3", "LOG_LEVEL": "warning"}
    with ServiceProcess(tmp_path, **settings) as service:
        headers = _key(service, "recommend")
        check = {"name": "check", "arguments": {"command": "vllm serve Qwen/Qwen3-8B"}}

        first = _post(service, "tools/list", headers)
        answers = [_post(service, "tools/call", headers, **check) for _ in range(3)]

    left = [int(a.headers["x-ratelimit-remaining"]) for a in (first, *answers[:2])]
    assert left == [2, 1, 0]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1].json()["code"] == "rate-limited"
    assert int(answers[-1].headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{}", 400),
        (b"[]", 400),
        (b"[" * 5000, 413),
        (b'{"id": 1' + b"0" * 400 + b"}", 400),
        (b"\xff", 400),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": 1, "a": 2}}', 400),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', 400),
        (b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', 400),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}', 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}', 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": 1}}', 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": ' + b"[" * 99 + b"}", 413),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * 20_000_000 + b'"}', 413),
    ],
)
def test_what_is_no_message_is_refused(service: ServiceProcess, body: bytes, status: int) -> None:
    """Broken, deep and huge bodies never cause a fault of the service."""
    answer = service.client.post("/mcp", content=body, headers=_key(service, "recommend"))

    assert answer.status_code == status


def test_a_page_of_another_origin_is_refused(service: ServiceProcess) -> None:
    """A browser that was lured elsewhere cannot call tools with what it reaches."""
    headers = {**_key(service, "recommend"), "Origin": "https://elsewhere.example"}

    assert _post(service, "tools/list", headers).status_code == 403


def test_nothing_is_served_where_a_tool_would_be(service: ServiceProcess) -> None:
    """A tool has no address of its own that the guards of the endpoint would miss."""
    answer = service.client.post(
        "/mcp/tools/recommend", json=_ROUTES["recommend"][1], headers=_key(service, "admin")
    )

    assert answer.status_code == 404
