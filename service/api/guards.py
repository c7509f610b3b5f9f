"""What every route refuses before it runs: unknown parameters, media types out of its reach."""

from email.message import Message
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter
from litestar.typing import FieldDefinition

from api_schemas.problem import FieldError
from service.api.access import authorize
from service.api.describe import KEY, Description
from service.api.negotiation import choose_media_type
from service.api.problems import Refusal, refuse_field

_Connection = ASGIConnection[Any, Any, Any, Any]
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
"""ASCII is UTF-8 as well."""
_PLAIN = frozenset({"", "identity"})
"""Content codings that change nothing."""


async def refuse_unknown_parameters(connection: _Connection, handler: BaseRouteHandler) -> None:
    """Refuse a query parameter that the route does not have: a misspelt filter must not pass."""
    allowed = query_parameters(handler)
    unknown = [
        name for name in dict.fromkeys(connection.query_params.keys()) if name not in allowed
    ]
    if unknown:
        hint = f"allowed are {', '.join(sorted(allowed))}" if allowed else "none is allowed here"
        errors = [
            FieldError(pointer=name, message=f"unknown parameter; {hint}") for name in unknown
        ]
        raise Refusal("invalid-request", f"{unknown[0]}: {errors[0].message}", errors=errors)


async def refuse_ambiguous_parameters(connection: _Connection, handler: BaseRouteHandler) -> None:
    """Refuse one value given twice, and the word null where no text is taken.

    The framework would take one of the two, and read null as if the parameter were absent.
    """
    for name, field in query_parameters(handler).items():
        kinds = [field, *field.inner_types]
        values = connection.query_params.getall(name, [])
        if len(values) > 1 and not any(kind.is_non_string_collection for kind in kinds):
            raise refuse_field(name, "given more than once")
        takes_text = any(kind.is_subclass_of(str) for kind in kinds)
        if not takes_text and any(str(value).lower() == "null" for value in values):
            raise refuse_field(name, "null is no value; leave the parameter out")


async def refuse_unacceptable(connection: _Connection, handler: BaseRouteHandler) -> None:
    """Refuse a request whose Accept header rules out everything that the route can answer."""
    offered = _description(handler).media_types
    accept = ",".join(connection.headers.getall("accept", []))
    if offered and choose_media_type(accept, offered) is None:
        raise Refusal("not-acceptable", f"This can be answered as {', '.join(offered)}.")


async def refuse_other_bodies(connection: _Connection, handler: BaseRouteHandler) -> None:
    """Refuse a body that is not plain JSON in UTF-8 where the route reads one."""
    if _description(handler).body is None:
        return
    content_type = connection.headers.get("content-type", "application/json")
    essence = content_type.partition(";")[0].strip().lower()
    if essence != "application/json" and not essence.endswith("+json"):
        raise _unsupported(
            f"The body is {essence or 'of no type'}; send Content-Type: application/json."
        )
    charset = _charset_of(content_type)
    if charset.lower() not in _CHARSETS:
        raise _unsupported(f"The body is in {charset[:32]!r}; JSON is read in UTF-8 alone.")
    encodings = ",".join(connection.headers.getall("content-encoding", []))
    coded = [name.strip() for name in encodings.split(",")]
    if any(name.lower() not in _PLAIN for name in coded):
        raise _unsupported(
            f"The body is encoded as {encodings[:64]!r}; send it without Content-Encoding."
        )


def _charset_of(content_type: str) -> str:
    header = Message()
    header["Content-Type"] = content_type
    return header.get_content_charset("utf-8")


def _unsupported(detail: str) -> Refusal:
    return Refusal("unsupported-media-type", detail)


GUARDS = [
    authorize,
    refuse_unknown_parameters,
    refuse_ambiguous_parameters,
    refuse_unacceptable,
    refuse_other_bodies,
]


def query_parameters(handler: BaseRouteHandler) -> dict[str, FieldDefinition]:
    """Return a route's query parameters by name."""
    parameters = handler.parsed_fn_signature.parameters
    return {
        name: field
        for name, field in parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    }


def _description(handler: BaseRouteHandler) -> Description:
    described: Description = handler.opt.get(KEY) or Description(answers=())
    return described
