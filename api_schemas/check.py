"""The gate: existing configurations in, a verdict with findings out."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import EngineVersionText, Name, NonNegativeFloat, Request, Response, Value
from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import Estimate, Provenance
from api_schemas.explanation import Confidence, Finding, Location
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import Workload

Verdict = Literal["pass", "fail", "inconclusive"]
FailOn = Literal["error", "warning"]
Day = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$",
        description="A day, YYYY-MM-DD.",
        examples=["2026-12-31"],
    ),
]
_LONGEST_FILE = 2_000_000


class CheckFile(Value, frozen=True, kw_only=True):
    """A file of a repository: its path and its text."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    content: Annotated[str, Meta(max_length=_LONGEST_FILE)]


class Waiver(Value, frozen=True, kw_only=True):
    """A rule that is allowed to fail until a day, and who answers for it."""

    rule: Annotated[str, Meta(min_length=1, max_length=32, description="Rule id such as MEM002.")]
    until: Annotated[Day, Meta(description="Last day on which it holds.")]
    reason: Annotated[str, Meta(min_length=1, max_length=1024)]
    owner: Name | None = None
    path: (
        Annotated[
            str,
            Meta(min_length=1, max_length=1024, description="Only in files like deploy/*.yaml."),
        ]
        | None
    ) = None


class Policy(Value, frozen=True, kw_only=True):
    """What must hold for a configuration to pass."""

    fail_on: FailOn = "error"
    targets: Annotated[list[LatencyTarget], Meta(max_length=32)] = []
    max_preemptions_per_request: NonNegativeFloat | None = None
    max_gpus: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    min_confidence: Confidence | None = None
    require_measured_within_days: Annotated[int, Meta(ge=1, le=3650)] | None = None
    allowed_engine_versions: (
        Annotated[list[EngineVersionText], Meta(min_length=1, max_length=64)] | None
    ) = None
    waivers: Annotated[list[Waiver], Meta(max_length=256)] = []


class PolicyFile(Policy, frozen=True, kw_only=True):
    """`setpoint.yaml` in a repository: the policy, and what its configurations run on."""

    model: ModelRef | None = None
    hardware: Hardware | None = None
    workload: Workload | None = None
    slo: Slo | None = None
    engine_version: EngineVersionText | None = None


class BaselineFigures(Value, frozen=True, kw_only=True):
    """What an earlier answer predicted for one engine."""

    engine: Name
    figures: dict[str, float]


class Baseline(Value, frozen=True, kw_only=True):
    """An earlier answer to compare with, under a name."""

    name: Name
    fingerprints: Annotated[list[Name], Meta(max_length=25_000)] = []
    engines: Annotated[list[BaselineFigures], Meta(max_length=10_000)] = []


class CheckRequest(Request, frozen=True, kw_only=True):
    """Files, one command, or one configuration; and what is known around them."""

    files: Annotated[list[CheckFile], Meta(min_length=1, max_length=2000)] | None = None
    command: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=_LONGEST_FILE,
                examples=["vllm serve Qwen/Qwen3-8B --swap-space 4"],
            ),
        ]
        | None
    ) = None
    config: EngineConfig | None = None
    model: ModelRef | None = None
    hardware: Hardware | None = None
    workload: Workload | None = None
    slo: Slo | None = None
    engine: Engine | None = None
    from_version: (
        Annotated[EngineVersionText, Meta(description="Report what changed since this release.")]
        | None
    ) = None
    policy: Policy | None = None
    baseline: Baseline | None = None
    fix: bool = False


class Counts(Response, frozen=True, kw_only=True):
    """Findings by severity; waived ones are not among them."""

    error: int
    warning: int
    note: int
    waived: int


class WaivedFinding(Response, frozen=True, kw_only=True):
    """A finding that a waiver covers."""

    finding: Finding
    until: str
    reason: str
    owner: str | None


class CheckedEngine(Response, frozen=True, kw_only=True):
    """One server or `LLM(...)` that was found, and what was judged of it."""

    title: str
    location: Location | None
    model: str | None
    version: str
    version_source: Literal["image", "request", "file", "newest"]
    """Where the release comes from: `file` is the header of a file that Setpoint wrote."""
    config: EngineConfig
    unresolved: list[str]
    fits: bool | None
    figures: dict[str, float]
    """Predicted figures a later check can compare with."""


class CheckReport(Response, frozen=True, kw_only=True):
    """The verdict, and all that led to it."""

    schema_version: int
    verdict: Verdict
    summary: str
    reasons: list[str]
    findings: list[Finding]
    fingerprints: list[str]
    """One for each finding, the same in every run."""
    waived: list[WaivedFinding]
    counts: Counts
    engines: list[CheckedEngine]
    estimate: Estimate | None
    """Of the first engine that could be judged on the hardware."""
    fixed_files: list[CheckFile]
    provenance: Provenance
