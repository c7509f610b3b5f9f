"""The OpenAPI 3.1 document, made from what the routes say of themselves.

Schemas come from the very types that decode and encode the bodies, so the document states exactly
what is accepted: bounds, patterns, refused unknown fields, required answers.
"""

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.params import HeaderParameter, KwargDefinition
from litestar.routes import HTTPRoute
from litestar.types import Empty
from litestar.typing import FieldDefinition
from msgspec import Meta

from api_schemas.problem import Problem, ProblemCode
from service.api import examples
from service.api.access import required_scope
from service.api.bodies import encode
from service.api.describe import JSON, KEY, Answer, Body, Description, Example, Link
from service.api.documented_headers import HEADER_BOUNDS, HEADERS, PROBLEM_HEADERS
from service.api.guards import query_parameters
from service.api.problems import PROBLEM_MEDIA_TYPE
from service.api.schemas import component_schemas, events_schema, reference
from service.log import get_logger
from service.problems import PROBLEMS
from service.tuning.provenance import setpoint_version

Json = dict[str, Any]

_log = get_logger(__name__)

_ANY_OBJECT: Json = {"type": "object", "additionalProperties": True}
_ALWAYS: tuple[ProblemCode, ...] = (
    "invalid-request",
    "not-acceptable",
    "rate-limited",
    "internal-error",
)
_BOUNDS = {
    "ge": "ge",
    "le": "le",
    "pattern": "pattern",
    "min_length": "min_length",
    "max_length": "max_length",
    "max_items": "max_length",
}
"""What a parameter's declaration may state, and the schema's word for it."""
_GUARDED: tuple[ProblemCode, ...] = ("unauthorized", "forbidden", "store-unavailable")
_SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key: `sp_` with an id and a secret. While no key was ever made, the "
    "service listens on loopback only and takes callers without one.",
}
_TAGS = {
    "advice": "What to launch, and what to expect of it.",
    "catalogues": "What Setpoint knows: models, GPUs, presets, vLLM releases, rules.",
    "access": "API keys of a tenant, and who did what with them.",
    "proof": "What a real vLLM did with a recommendation, and who can prove one.",
    "system": "Health, metrics and this document.",
}


def document(app: Litestar) -> bytes:
    """Return the document as JSON; it is made once per application."""
    cached: bytes | None = getattr(app.state, "openapi_document", None)
    if cached is None:
        cached = encode(build_document(app))
        app.state.openapi_document = cached
    return cached


def build_document(app: Litestar) -> Json:
    """Return the document of an application's routes."""
    routes = list(_described_routes(app))
    paths: Json = {}
    for path, method, handler, description in routes:
        operation = _operation(handler, description, path=path)
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": _info(),
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": _schemas([description for *_, description in routes]),
            "responses": {
                _problem_name(status): _problem_response(status) for status in _statuses()
            },
            "headers": {name: _header(name) for name in HEADERS},
            "securitySchemes": {"apiKey": _SECURITY_SCHEME},
        },
    }


def _described_routes(
    app: Litestar,
) -> Iterator[tuple[str, str, HTTPRouteHandler, Description]]:
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        for handler in route.route_handlers:
            description = handler.opt.get(KEY)
            if description is None:
                continue
            for method in sorted(handler.http_methods):
                yield route.path_format, method, handler, description


def _info() -> Json:
    return {
        "title": "Setpoint",
        "version": setpoint_version(),
        "summary": "Tuning-as-a-service for vLLM.",
        "description": (
            "One POST says which model, which GPUs, which load and which latency targets; the "
            "answer holds launch settings with a reason for each, predicted memory and latency, "
            "and files ready to commit. Latencies are milliseconds, sizes GiB (2^30 bytes). TPOT "
            "is (end-to-end latency - time to first token) / (output tokens - 1); ITL is each "
            "single gap in the stream. Errors are RFC 9457 problems."
        ),
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }


def _operation(handler: HTTPRouteHandler, description: Description, *, path: str) -> Json:
    operation: Json = {
        "operationId": handler.operation_id,
        "summary": handler.summary,
        # A handler that runs in a thread is wrapped; the function inside carries the docstring.
        "description": inspect.getdoc(getattr(handler.fn, "func", handler.fn)) or "",
        "tags": list(handler.tags or []),
    }
    if parameters := list(_parameters(handler, description, path=path)):
        operation["parameters"] = parameters
    if description.body:
        operation["requestBody"] = _request_body(description.body)
    scope = required_scope(handler)
    operation["security"] = [] if scope is None else [{"apiKey": []}, {}]
    if scope is not None:
        operation["x-required-scope"] = scope
    operation["responses"] = _responses(description, is_guarded=scope is not None)
    return operation


def _parameters(
    handler: HTTPRouteHandler, description: Description, *, path: str
) -> Iterator[Json]:
    fields = handler.parsed_fn_signature.parameters
    for part in path.split("/"):
        if part.startswith("{"):
            yield _parameter(part[1:-1], "path", fields[part[1:-1]])
    for name, field in query_parameters(handler).items():
        yield _parameter(name, "query", field)
    for field in fields.values():
        if isinstance(field.kwarg_definition, HeaderParameter):
            yield _parameter(str(field.kwarg_definition.name), "header", field)
    for name in description.request_headers:
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "description": HEADERS[name],
            "schema": {"type": "string"} | HEADER_BOUNDS.get(name, {}),
        }


def _parameter(name: str, place: str, field: FieldDefinition) -> Json:
    definition = field.kwarg_definition
    assert isinstance(definition, KwargDefinition)  # noqa: S101  # how parameters are declared here
    bounds = {
        key: getattr(definition, source)
        for source, key in _BOUNDS.items()
        if getattr(definition, source) is not None
    }
    schema = msgspec.json.schema(Annotated[_without_none(field.annotation), Meta(**bounds)])
    schema |= definition.schema_extra or {}
    schema.pop("description", None)
    if definition.examples:
        schema["examples"] = [example.value for example in definition.examples]
    required = field.default is Empty
    if not required and field.default is not None:
        schema["default"] = field.default
    return {
        "name": name,
        "in": place,
        "required": required,
        "description": definition.description or "",
        "schema": schema,
    }


def _without_none(annotation: Any) -> Any:  # noqa: ANN401  # any annotation
    """Return the type of a parameter that is given: None stands for an absent one."""
    options = [option for option in get_args(annotation) if option is not type(None)]
    is_optional = type(None) in get_args(annotation)
    return options[0] if is_optional and len(options) == 1 else annotation


def _request_body(body: Body) -> Json:
    shown = {
        name.replace(" ", "-"): {"summary": name, "value": msgspec.to_builtins(make())}
        for name, make in body.examples.items()
    }
    media: Json = {"schema": reference(body.kind)}
    if shown:
        media["examples"] = shown
    return {"required": True, "description": body.description, "content": {JSON: media}}


def _responses(description: Description, *, is_guarded: bool) -> Json:
    responses = {str(answer.status): _answer(answer) for answer in description.answers}
    codes = {*_ALWAYS, *description.problems, *(_GUARDED if is_guarded else ())}
    for status in sorted({PROBLEMS[code].status for code in codes}):
        responses[str(status)] = {"$ref": f"#/components/responses/{_problem_name(status)}"}
    return responses


def _answer(answer: Answer) -> Json:
    names = ("X-Request-Id", *answer.headers)
    response: Json = {
        "description": answer.description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names},
    }
    if answer.links:
        response["links"] = {link.operation: _link(link) for link in answer.links}
    if answer.media_types:
        response["content"] = {name: _content(answer, name) for name in answer.media_types}
    return response


def _link(link: Link) -> Json:
    """Return how an answer leads to another operation."""
    return {
        "operationId": link.operation,
        "parameters": {link.takes: f"$response.body#{link.place}"},
    }


def _content(answer: Answer, media_type: str) -> Json:
    if answer.events:
        return {"schema": events_schema(answer.events)}
    if not media_type.startswith(JSON):
        return {"schema": _ANY_OBJECT if media_type.endswith("+json") else {"type": "string"}}
    content: Json = {"schema": reference(answer.kind) if answer.kind else _ANY_OBJECT}
    if answer.example:
        content |= _example(answer.example)
    return content


def _example(make: Example) -> Json:
    """Return an answer's example; the document does without one that cannot be computed."""
    try:
        return {"example": msgspec.to_builtins(make())}
    except Exception:  # noqa: BLE001  # its own route will tell
        _log.exception("example_failed")
        return {}


def _schemas(descriptions: list[Description]) -> Json:
    kinds: list[Any] = [Problem]
    for description in descriptions:
        for answer in description.answers:
            kinds += [answer.kind] if answer.kind else answer.events.values()
        if description.body:
            kinds.append(description.body.kind)
    return component_schemas(kinds)


def _statuses() -> list[int]:
    return sorted({kind.status for kind in PROBLEMS.values()})


def _problem_name(status: int) -> str:
    return f"Problem{status}"


def _problem_response(status: int) -> Json:
    codes = [code for code, kind in PROBLEMS.items() if kind.status == status]
    headers = ["X-Request-Id", *PROBLEM_HEADERS.get(status, ())]
    return {
        "description": "; or ".join(PROBLEMS[code].title for code in codes) + ".",
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {
            PROBLEM_MEDIA_TYPE: {
                "schema": reference(Problem),
                "examples": {
                    code: {"value": msgspec.to_builtins(examples.problem(code))} for code in codes
                },
            }
        },
    }


def _header(name: str) -> Json:
    return {"description": HEADERS[name], "schema": {"type": "string"}}
