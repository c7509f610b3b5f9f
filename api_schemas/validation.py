"""Proof: what a validation measures and what came out."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Name, Record, Value
from api_schemas.engine import EngineConfig
from api_schemas.estimate import Percentiles
from api_schemas.slo import TargetVerdict
from api_schemas.worker import WorkerDevice
from api_schemas.workload import Arrivals

ValidationMode = Literal["boot", "quick", "knee", "compare", "soak"]
ValidationStatus = Literal[
    "queued",
    "leasing",
    "starting",
    "warming_up",
    "measuring",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
]
TERMINAL: frozenset[str] = frozenset({"succeeded", "failed", "cancelled", "timed_out"})
FailureStage = Literal["no-worker", "lease", "start", "ready", "load", "parse", "lost"]
"""no-worker: it was queued, and no live worker could take it any more."""
WhenNoWorker = Annotated[
    Literal["reject", "wait"],
    Meta(
        description="reject: refused when no live worker can take it, and ended as failed (stage "
        "no-worker) when none could for 300 s while it was queued. wait: queued until one can."
    ),
]
Verdict = Literal["pass", "fail", "inconclusive"]


class QueueChoice(Value, frozen=True, kw_only=True):
    """Where a validation may run."""

    node: Name | None = None
    gpu: Name | None = None


class Webhook(Value, frozen=True, kw_only=True):
    """Where the outcome is sent, signed with the secret that is stored under this name."""

    url: Annotated[str, Meta(min_length=8, max_length=2048, pattern=r"^https?://")]
    secret_ref: Name


class ValidationPlan(Value, frozen=True, kw_only=True):
    """How a recommendation is to be proven on real hardware."""

    mode: ValidationMode
    max_minutes: Annotated[float, Meta(gt=0, le=24 * 60)] = 10
    queue: QueueChoice | None = None
    model_path: (
        Annotated[
            str,
            Meta(
                max_length=4096,
                pattern=r"^/[^\x00-\x1f]*$",
                description="Folder of the model on the worker's node; absolute.",
            ),
        ]
        | None
    ) = None
    webhook: Webhook | None = None
    when_no_worker: WhenNoWorker = "reject"


class Environment(Record, frozen=True, kw_only=True):
    """What produced the figures."""

    node: str
    gpus: list[WorkerDevice]
    driver: str | None
    vllm_version: str
    setpoint_version: str
    cpu: bool
    as_asked: bool
    """Whether hardware, release and model are those that the recommendation is for."""


class StartupFigures(Record, frozen=True, kw_only=True):
    """What a server says of its memory when it starts; None is what it does not say."""

    seconds: float | None = None
    weights_gib: float | None = None
    kv_cache_gib: float | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    cuda_graphs_gib: float | None = None


class Startup(StartupFigures, frozen=True, kw_only=True):
    """Start-up figures beside their prediction."""

    predicted: StartupFigures
    error_percent: dict[str, float]


class LoadPoint(Record, frozen=True, kw_only=True):
    """One load that was offered, and what the server did with it.

    `predicted` is for this very run, of one replica: its requests, when the client sent them (in an
    open loop), its beginning and its end. `error_percent` is how far that is off, relative to the
    measurement.
    """

    label: str
    config: EngineConfig
    offered: Arrivals
    num_requests: int
    seed: int
    duration_s: float
    completed: int
    failed: int
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    itl_ms: Percentiles
    e2el_ms: Percentiles
    requests_per_s: float
    output_tokens_per_s: float
    goodput_requests_per_s: float | None
    preemptions: int | None
    preemptions_per_request: float | None
    kv_cache_usage_peak: float | None
    running_peak: int | None
    waiting_peak: int | None
    prefix_cache_hit_ratio: float | None
    queue_time_mean_ms: float | None
    predicted: dict[str, float]
    error_percent: dict[str, float]


class MeasuredOutcome(Record, frozen=True, kw_only=True):
    """One target against what was measured.

    The interval holds the true value with 90 % confidence; a target is met or missed only when all
    of it lies on that side of the limit. Latencies are milliseconds.
    """

    target: dict[str, float | str]
    measured: float
    interval: tuple[float, float | None]
    """Low and high; no high end when too few requests were measured to know it."""
    predicted: float | None
    verdict: TargetVerdict


class ComparedFigure(Record, frozen=True, kw_only=True):
    """One figure of the recommendation relative to vLLM's defaults, over interleaved starts.

    `interval` holds the true ratio with 95 % confidence; without it no difference is claimed.
    """

    metric: str
    defaults: float
    recommended: float
    ratio: float
    interval: tuple[float, float] | None
    outcome: Literal["better", "worse", "no_difference_shown"]


class Comparison(Record, frozen=True, kw_only=True):
    """vLLM's defaults against the recommendation under the same load."""

    starts_each: int
    figures: list[ComparedFigure]


class Knee(Record, frozen=True, kw_only=True):
    """Where the walk up the admission cap ended, and why."""

    max_num_seqs: int
    requests_per_s: float
    reason: str
    confirmed: bool = False
    """Whether a fresh start with this setting held without preemptions."""


class Failure(Record, frozen=True, kw_only=True):
    """Why a validation ended without a result."""

    stage: FailureStage
    reason: str
    log_tail: str


class Validation(Record, frozen=True, kw_only=True):
    """A validation as it is stored and answered."""

    id: str
    recommendation_id: str
    mode: ValidationMode
    plan: ValidationPlan
    status: ValidationStatus
    stage: str
    progress: float
    created_at: str
    started_at: str | None = None
    finished_at: str | None = None
    environment: Environment | None = None
    startup: Startup | None = None
    load_points: list[LoadPoint] = []
    knee: Knee | None = None
    suggested_config: EngineConfig | None = None
    comparison: Comparison | None = None
    slo: list[MeasuredOutcome] = []
    verdict: Verdict | None = None
    failure: Failure | None = None
    command: list[str] = []
    notes: list[str] = []
    """What differs from the recommendation as it was asked for, and what was cut short."""
    queue: str = ""
    attempt: int = 1
    """Grows when a lost run is started again."""
    traceparent: str | None = None
    """W3C trace context of the request that asked for it; the worker's spans belong to it."""


class Measured(Record, frozen=True, kw_only=True):
    """The newest finished validation in short, beside the prediction."""

    validation_id: str
    mode: ValidationMode
    status: ValidationStatus
    verdict: Verdict | None
    finished_at: str | None
    environment: Environment | None
    startup: Startup | None
    load: LoadPoint | None
    knee: Knee | None
    comparison: Comparison | None
    suggested_config: EngineConfig | None
    slo: list[MeasuredOutcome]
    failure: Failure | None
    notes: list[str]
