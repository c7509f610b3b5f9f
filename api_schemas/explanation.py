"""Why: sources, findings, decisions."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Json, Response, Value

Severity = Literal["error", "warning", "note"]
Confidence = Literal["high", "medium", "low"]
Basis = Literal["measured", "calibrated", "modelled"]


class Source(Value, frozen=True, kw_only=True):
    """Where a statement comes from: guide section, vLLM file and version, measurement."""

    title: str
    where: str


class Location(Value, frozen=True, kw_only=True):
    """A place in a file, 1-based."""

    file: str
    line: int
    column: int


class Finding(Value, frozen=True, kw_only=True):
    """One thing to know about a configuration, with what to do about it."""

    rule: Annotated[str, Meta(description="Stable rule id such as CAP003.")]
    severity: Severity
    message: str
    setting: str | None = None
    suggestion: str | None = None
    source: list[Source] = []
    location: Location | None = None


class Decision(Response, frozen=True, kw_only=True):
    """One setting with its value and the reason for it."""

    setting: str
    value: Json
    rule: str
    reason: str
    formula: str | None
    inputs: dict[str, Json]
    source: list[Source]
    if_higher: str
    if_lower: str
    confidence: Confidence
