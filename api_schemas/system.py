"""What the service says of itself."""

from typing import Literal

from api_schemas.base import Response
from api_schemas.problem import ProblemCode


class Liveness(Response, frozen=True, kw_only=True):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Response, frozen=True, kw_only=True):
    """Requests can be served."""

    status: Literal["ok"]
    store: Literal["ok"]


class ProblemType(Response, frozen=True, kw_only=True):
    """What a problem's `type` stands for."""

    code: ProblemCode
    status: int
    title: str


class ServiceIndex(Response, frozen=True, kw_only=True):
    """Where to go from here."""

    name: str
    version: str
    links: dict[str, str]
