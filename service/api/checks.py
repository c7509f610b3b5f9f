"""The gate: `POST /checks`."""

from typing import Any

from litestar import Request, Response, post
from litestar.params import RawBody
from litestar.status_codes import HTTP_200_OK

from api_schemas.check import CheckFile, CheckReport, CheckRequest
from service.api.bodies import encode, read_body
from service.api.context import Context, InjectedContext
from service.api.describe import JSON, MARKDOWN, OF_TUNING, Answer, Body, describe
from service.api.entity_tags import unless_current
from service.api.negotiation import choose_media_type
from service.reports.junit import render_junit
from service.reports.markdown import render_markdown
from service.reports.sarif import render_sarif
from service.tuning.calibrations.known import Calibrations

SARIF = "application/sarif+json"
JUNIT = "application/xml"
_OFFERED = (JSON, SARIF, JUNIT, MARKDOWN)
_RENDERERS = {SARIF: render_sarif, JUNIT: render_junit, MARKDOWN: render_markdown}
_COMPOSE = """services:
  vllm:
    image: vllm/vllm-openai:v0.33.0
    command: ["--model", "Qwen/Qwen3-8B", "--tensor-parallel-size", "2", "--swap-space", "4"]
"""


def _request() -> CheckRequest:
    return CheckRequest(files=[CheckFile(path="compose.yaml", content=_COMPOSE)])


def _answer() -> CheckReport:
    from service.tuning.check import check  # noqa: PLC0415  # loads every rule, so on use

    return check(_request(), today="2026-01-01")


def _calibrations(asked: CheckRequest, context: Context) -> Calibrations:
    """Return what was learned from measurements on the hardware; nothing where none is named."""
    if asked.hardware is None:
        return ()
    # Imported on use: the latency model compiles code, and the service starts without waiting.
    from service.calibrations import known_calibrations  # noqa: PLC0415

    return known_calibrations(
        context.measurements,
        asked.hardware,
        resolve_model=context.resolve_model,
        now=context.now,
    )


@post(
    "/checks",
    operation_id="createCheck",
    summary="Check existing configurations",
    tags=["advice"],
    status_code=HTTP_200_OK,
    sync_to_thread=True,
    opt=describe(
        Answer(
            200,
            "The verdict with findings and their places; as SARIF, JUnit XML or Markdown too.",
            media_types=_OFFERED,
            kind=CheckReport,
            headers=("ETag", "Vary"),
            example=_answer,
        ),
        Answer(304, "The caller's copy is current.", media_types=(), headers=("ETag",)),
        body=Body(
            CheckRequest,
            "Files, a command or a configuration; hardware and model where memory shall be judged.",
            {"a compose file": _request},
        ),
        problems=(*OF_TUNING, "store-unavailable"),
        request_headers=("If-None-Match",),
    ),
)
def create_check(
    body: RawBody, request: Request[Any, Any, Any], context: InjectedContext
) -> Response[bytes]:
    """Read commands and manifests, and say what is wrong where, and whether that passes.

    Nothing is stored and nothing is run. Files that cannot be read become findings.
    """
    asked = read_body(body, CheckRequest)
    # Imported on use: the rules pull in every fact, and the service starts without waiting.
    from service.tuning.check import check  # noqa: PLC0415

    today = context.now().date().isoformat()
    report = check(
        asked,
        today=today,
        resolve_model=context.resolve_model,
        calibrations=_calibrations(asked, context),
    )
    accept = ",".join(request.headers.getall("accept", []))
    media_type = choose_media_type(accept, _OFFERED) or JSON
    render = _RENDERERS.get(media_type)
    content = encode(report) if render is None else render(report).encode()
    return unless_current(request, content, media_type=media_type, Vary="Accept")
