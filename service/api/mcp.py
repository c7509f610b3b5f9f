"""The Model Context Protocol at `/mcp`: three routes as tools, for language models that call them.

A tool takes the body of its route and gives the route's answer, for whoever may call the route.
The endpoint itself is met by the same guards as every route; it knows who asks, and a tool only
looks whether that caller may.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from litestar import Request, Response, post
from litestar.connection import ASGIConnection
from litestar.exceptions import NotFoundException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.params import JSONBody
from litestar_mcp import LitestarMCP, MCPConfig, MCPToolResult, mcp_tool
from litestar_mcp.mcp.executor import require_internal_dispatch
from litestar_mcp.mcp.service import get_mcp_request_context

from api_schemas.check import CheckReport, CheckRequest
from api_schemas.estimate import EstimateRequest
from api_schemas.recommendation import TuningRequest
from service.api.access import OPERATION, OPERATION_ID, TARGET
from service.api.bodies import encode, refuse_extremes, refuse_repeated_keys
from service.api.checks import create_check
from service.api.context import Context, InjectedContext
from service.api.cors import origins_of
from service.api.estimates import create_estimate
from service.api.mcp_schemas import input_schema
from service.api.problems import problem_response
from service.api.recommendations import DECISION_FILE, create_recommendation
from service.reports.markdown import render_markdown
from service.settings import Settings

PATH = "/mcp"
ENDPOINT = "callTool"
_MOST_SUBSCRIPTIONS = 16
"""The tools never change while the service runs, so there is nothing to tell a subscriber."""
_INSTRUCTIONS = (
    "Setpoint answers how to launch a model on vLLM. `recommend` chooses settings for a model, "
    "GPUs, a load and latency targets; `estimate` predicts memory and latency of given settings; "
    "`check` judges existing commands and manifests. Latencies are milliseconds, sizes GiB. "
    "Refusals are problems (RFC 9457) with the field and what is allowed there."
)
_READS: dict[str, Any] = {"readOnlyHint": True, "openWorldHint": False}
_STORES: dict[str, Any] = {
    "readOnlyHint": False,
    "destructiveHint": False,
    "idempotentHint": False,
    "openWorldHint": False,
}

_Connection = ASGIConnection[Any, Any, Any, Any]
_Function = Callable[[bytes, Request[Any, Any, Any], Context], Response[bytes]]
_Tool = Callable[..., MCPToolResult]
_Arguments = JSONBody[dict[str, Any] | None]
"""What a tool was called with; the route says whether it is right."""


def make_plugin(settings: Settings) -> LitestarMCP:
    """Return what serves the tools at `/mcp`."""
    plugin = LitestarMCP(
        MCPConfig(
            base_path=PATH,
            name="Setpoint",
            instructions=_INSTRUCTIONS,
            allowed_origins=sorted(origins_of(settings.cors_origins)),
            guards=[refuse_bodies],
            route_opt={OPERATION_ID: ENDPOINT},
            subscription_max_streams=_MOST_SUBSCRIPTIONS,
        )
    )
    for tool in (recommend, estimate, check):
        plugin.register_dynamic_handler(tool)
    return plugin


async def refuse_bodies(connection: _Connection, _: BaseRouteHandler) -> None:
    """Refuse a message that the library would fail to parse, or read in one of two ways."""
    if isinstance(connection, Request):
        body = await connection.body()
        refuse_extremes(body)
        refuse_repeated_keys(body)


def only_as_tool(connection: _Connection, handler: BaseRouteHandler) -> None:
    """Return when the endpoint calls a tool; by itself nothing is served at a tool's path."""
    try:
        require_internal_dispatch(connection, handler)
    except PermissionDeniedException:
        raise NotFoundException from None


def answer_problem(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Return the problem as JSON that goes into a tool's result."""
    answer = problem_response(request, error)
    return Response(
        msgspec.json.decode(answer.content),
        status_code=answer.status_code,
        media_type=answer.media_type,
    )


def _tool(
    name: str,
    *,
    operation_id: str,
    takes: type[msgspec.Struct],
    annotations: dict[str, Any],
    description: str,
) -> Callable[[_Tool], HTTPRouteHandler]:
    """Return what makes a function a tool that takes the body of a route."""
    route = post(
        f"{PATH}/tools/{name}",
        operation_id=operation_id,
        guards=[only_as_tool],
        exception_handlers={Exception: answer_problem},
        sync_to_thread=True,
    )
    tool = mcp_tool(
        name,
        description=description,
        input_schema=input_schema(takes),
        annotations=annotations,
    )
    return lambda function: route(tool(function))


@_tool(
    "recommend",
    operation_id="createRecommendation",
    takes=TuningRequest,
    annotations=_STORES,
    description="Choose vLLM launch settings for a model on GPUs, with a reason for each, "
    "predicted memory and latency, and files to commit. Give load and latency targets where they "
    "are known; what is assumed otherwise is in the answer, which is stored under its id.",
)
def recommend(
    request: Request[Any, Any, Any], context: InjectedContext, data: _Arguments = None
) -> MCPToolResult:
    """Answer as `POST /recommendations` does; the text is the decision record."""
    answer = _call(create_recommendation, data, request, context)
    files = {file["path"]: file["content"] for file in answer["files"]}
    return _result(answer, text=files[DECISION_FILE])


@_tool(
    "estimate",
    operation_id="createEstimate",
    takes=EstimateRequest,
    annotations=_READS,
    description="Predict memory, latency and throughput of a model on GPUs with given vLLM "
    "settings; a configuration that does not fit is an answer too. Nothing is stored.",
)
def estimate(
    request: Request[Any, Any, Any], context: InjectedContext, data: _Arguments = None
) -> MCPToolResult:
    """Answer as `POST /estimates` does; the text is the same JSON."""
    answer = _call(create_estimate, data, request, context)
    return _result(answer, text=msgspec.json.encode(answer).decode())


@_tool(
    "check",
    operation_id="createCheck",
    takes=CheckRequest,
    annotations=_READS,
    description="Judge existing vLLM commands, compose files and Kubernetes manifests: what is "
    "wrong, where, why and what to write instead. With model and hardware it tells whether they "
    "fit. Nothing is stored or run.",
)
def check(
    request: Request[Any, Any, Any], context: InjectedContext, data: _Arguments = None
) -> MCPToolResult:
    """Answer as `POST /checks` does; the text is the report as Markdown."""
    answer = _call(create_check, data, request, context)
    return _result(answer, text=render_markdown(msgspec.convert(answer, CheckReport)))


def _call(
    route: HTTPRouteHandler,
    arguments: _Arguments,
    request: Request[Any, Any, Any],
    context: Context,
) -> dict[str, Any]:
    """Return what a route answers, and let the trail of the outer request say what was done."""
    # The router wraps copies of the handlers: this one still holds the plain function.
    function = cast("_Function", route.fn)
    response = function(encode(arguments or {}), request, context)
    outer = get_mcp_request_context().request
    if outer is not None:
        outer.scope["state"][OPERATION] = request.scope["state"][OPERATION]
        outer.scope["state"][TARGET] = response.headers.get("Location")
    answer: dict[str, Any] = msgspec.json.decode(response.content)
    return answer


def _result(answer: dict[str, Any], *, text: str) -> MCPToolResult:
    return MCPToolResult([{"type": "text", "text": text}], structured_content=answer)
