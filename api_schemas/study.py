"""Studies: a search over settings on real hardware, and what each trial brought."""

from typing import Annotated, Literal

from msgspec import Meta, field

from api_schemas.base import Json, Labels, Name, Record, Request, Response, Value
from api_schemas.engine import EngineConfig
from api_schemas.validation import (
    Environment,
    Failure,
    LoadPoint,
    QueueChoice,
    Webhook,
    WhenNoWorker,
)

StudyStatus = Literal["queued", "running", "succeeded", "failed", "cancelled", "timed_out"]
STUDY_ENDS: frozenset[str] = frozenset({"succeeded", "failed", "cancelled", "timed_out"})
TrialState = Literal["running", "complete", "failed", "pruned"]
TrialOrigin = Literal["baseline", "recommended", "prior", "search"]
StudyMetric = Literal[
    "output_tokens_per_s",
    "requests_per_s",
    "ttft_ms_p50",
    "ttft_ms_p95",
    "ttft_ms_p99",
    "tpot_ms_p50",
    "tpot_ms_p95",
    "tpot_ms_p99",
    "e2el_ms_p50",
    "e2el_ms_p95",
    "preemptions_per_request",
]


class Choices(Value, frozen=True, kw_only=True, tag_field="kind", tag="choices"):
    """One of these values, in no order."""

    values: Annotated[
        list[bool | int | float | Annotated[str, Meta(max_length=64)]],
        Meta(min_length=1, max_length=32),
    ]


class IntegerRange(Value, frozen=True, kw_only=True, tag_field="kind", tag="integers"):
    """Whole numbers from low to high; `log` spreads them evenly by ratio."""

    low: Annotated[int, Meta(ge=0, le=10**9)]
    high: Annotated[int, Meta(ge=0, le=10**9)]
    step: Annotated[int, Meta(ge=1, le=10**9)] = 1
    log: bool = False


class NumberRange(Value, frozen=True, kw_only=True, tag_field="kind", tag="numbers"):
    """Numbers from low to high."""

    low: Annotated[float, Meta(ge=0, le=1e9)]
    high: Annotated[float, Meta(ge=0, le=1e9)]


Dimension = Choices | IntegerRange | NumberRange
Space = Annotated[
    dict[
        Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9_]*$")], Dimension
    ],
    Meta(
        min_length=1,
        max_length=12,
        description="vLLM settings that may vary, each with what it may be.",
        examples=[{"max_num_seqs": {"kind": "integers", "low": 8, "high": 512, "log": True}}],
    ),
]


class Objective(Value, frozen=True, kw_only=True):
    """One figure to make large or small."""

    metric: StudyMetric
    direction: Literal["maximize", "minimize"]


_THROUGHPUT = Objective(metric="output_tokens_per_s", direction="maximize")


class StudyRequest(Request, frozen=True, kw_only=True):
    """A search around a stored recommendation, under its load and its targets.

    The targets of the recommendation are constraints: the best trial is one that meets them.
    """

    recommendation_id: Name
    space: Space
    objectives: Annotated[
        list[Objective],
        Meta(min_length=1, max_length=3, description="Two or more ask for a Pareto front."),
    ] = field(default_factory=lambda: [_THROUGHPUT])
    max_trials: Annotated[int, Meta(ge=2, le=500)] = 20
    max_minutes: Annotated[float, Meta(gt=0, le=7 * 24 * 60)] = 120
    trial_minutes: Annotated[float, Meta(gt=0, le=24 * 60)] = 10
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    queue: QueueChoice | None = None
    model_path: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    webhook: Webhook | None = None
    when_no_worker: WhenNoWorker = "reject"
    labels: Labels = {}


class StudyTrial(Record, frozen=True, kw_only=True):
    """One configuration that was tried, or that was not worth a try."""

    number: int
    origin: TrialOrigin
    state: TrialState
    parameters: dict[str, Json]
    config: EngineConfig
    reason: str | None = None
    """Why it failed or was not measured."""
    predicted: dict[str, float] = {}
    measured: dict[str, float] = {}
    meets: bool | None = None
    """Whether it meets the targets."""
    violations: dict[str, float] = {}
    """By target how far it is missed, relative to the limit."""
    load_point: LoadPoint | None = None
    seconds: float | None = None


class Study(Record, frozen=True, kw_only=True):
    """A study as it is stored and answered."""

    id: str
    created_at: str
    request: StudyRequest
    status: StudyStatus
    stage: str
    progress: float
    started_at: str | None = None
    finished_at: str | None = None
    environment: Environment | None = None
    trials: list[StudyTrial] = []
    baseline: int | None = None
    """Number of the trial with vLLM's own defaults in the space."""
    best: int | None = None
    """Number of the best trial that meets the targets; None when none does."""
    pareto: list[int] = []
    """Numbers of the trials that no other beats in every objective."""
    failure: Failure | None = None
    notes: list[str] = []
    queue: str = ""
    attempt: int = 1
    traceparent: str | None = None
    """W3C trace context of the request that asked for it; the worker's spans belong to it."""


class StudySummary(Response, frozen=True, kw_only=True):
    """A row of the list."""

    id: str
    created_at: str
    recommendation_id: str
    status: StudyStatus
    progress: float
    trials: int
    best: int | None
    url: str


class StudyPage(Response, frozen=True, kw_only=True):
    """One page of studies, newest first."""

    items: list[StudySummary]
    next_cursor: str | None
