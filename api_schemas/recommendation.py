"""Advice: settings with reasons, predictions and files."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Json, Labels, Request, Response, Value
from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate, Provenance
from api_schemas.explanation import Decision, Finding
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.slo import Slo
from api_schemas.validation import ValidationPlan
from api_schemas.workload import Workload

Objective = Literal["balanced", "latency", "throughput", "cost"]
Posture = Literal["production", "aggressive"]


class TargetEngine(Value, frozen=True, kw_only=True):
    """The vLLM release that will run; the newest known when not given."""

    version: Annotated[str, Meta(min_length=3, max_length=32, examples=["0.33.0"])] | None = None


class Constraints(Value, frozen=True, kw_only=True):
    """Limits on what may be recommended."""

    pin: EngineConfig | None = None
    max_tensor_parallel_size: Annotated[int, Meta(ge=1, le=1024)] | None = None
    allow_fp8_kv_cache: bool = True
    allow_online_quantization: bool = False
    allow_enforce_eager: bool = False


class TuningRequest(Request, frozen=True, kw_only=True):
    """What to tune for."""

    model: ModelRef
    hardware: Hardware
    workload: Workload | None = None
    slo: Slo | None = None
    objective: Objective = "balanced"
    posture: Posture = "production"
    engine: TargetEngine | None = None
    constraints: Constraints | None = None
    validation: ValidationPlan | None = None
    labels: Labels = {}


class UnderstoodRequest(Response, frozen=True, kw_only=True):
    """The request as it was understood: preset filled in, load converted."""

    model: ModelRef
    hardware: Hardware
    workload: Workload
    slo: Slo
    objective: Objective
    posture: Posture
    engine: TargetEngine
    constraints: Constraints
    assumptions: list[str]


class Binding(Response, frozen=True, kw_only=True):
    """The constraint that decides."""

    constraint: str
    detail: str


class Nearest(Response, frozen=True, kw_only=True):
    """The nearest feasible change to an infeasible request."""

    change: str
    config: EngineConfig | None
    hardware: Hardware | None
    slo: Slo | None
    detail: str
    workload: Workload | None = None
    """The load to ask with instead; None leaves it as it is."""
    constraints: Constraints | None = None
    """The constraints to ask with instead; None leaves them as they are."""
    engine: TargetEngine | None = None
    """The release to ask with instead; None leaves it as it is."""


class Replicas(Response, frozen=True, kw_only=True):
    """How many copies of the configuration the load needs."""

    count: int
    gpus: int
    requests_per_s_each: float | None


class AllCopies(Response, frozen=True, kw_only=True):
    """What all copies of a configuration do together, where an estimate speaks of one."""

    count: int
    gpus: int
    requests_per_s: float | None
    output_tokens_per_s: float | None
    kv_cache_tokens: int


class ShortEstimate(Response, frozen=True, kw_only=True):
    """The figures of an alternative that decide between it and the recommendation."""

    kv_cache_tokens: int
    max_concurrency: float
    ttft_ms_p95: float | None
    tpot_ms_p95: float | None
    e2el_ms_p95: float | None
    requests_per_s: float | None
    output_tokens_per_s: float | None
    output_tokens_per_s_per_gpu: float | None
    preemptions_per_request: float | None
    meets_slo: bool | None


class Alternative(Response, frozen=True, kw_only=True):
    """Another point of the Pareto front."""

    label: str
    config: EngineConfig
    replicas: Replicas
    estimate: ShortEstimate
    trade_off: str


class Compared(Response, frozen=True, kw_only=True):
    """A layout that was compared, in the copies that fill the hardware.

    All of them are judged on equal terms, by the closed form; the recommendation's own figures in
    `estimate` are simulated.
    """

    label: str
    config: EngineConfig
    copies: int
    gpus: int
    capacity_output_tokens_per_s: Annotated[
        float,
        Meta(description="Of all copies at the most they carry within the limits."),
    ]
    answer_ms: Annotated[float, Meta(description="Mean time of a whole answer at the load.")]
    meets_slo: bool
    on_front: Annotated[
        bool, Meta(description="No other one has more capacity and faster answers.")
    ]
    chosen: bool


class Cost(Response, frozen=True, kw_only=True):
    """Money, from the price given in the request."""

    per_million_output_tokens: float | None
    per_hour: float


class Watch(Response, frozen=True, kw_only=True):
    """One Prometheus expression to watch in production."""

    metric: str
    threshold: str
    meaning: str
    then: str


class RenderedFile(Response, frozen=True, kw_only=True):
    """A file ready to commit."""

    path: str
    media_type: str
    content: str


class ValidationLink(Response, frozen=True, kw_only=True):
    """A validation of this recommendation."""

    id: str
    status: str
    verdict: str | None
    url: str


class Advice(Response, frozen=True, kw_only=True):
    """What the pure core answers; the service adds id, time and links."""

    request: UnderstoodRequest
    feasible: bool
    headline: str
    binding: Binding | None
    nearest: Nearest | None
    config: EngineConfig
    replicas: Replicas
    decisions: list[Decision]
    estimate: Estimate
    all_copies: AllCopies
    baseline: Estimate
    baseline_all_copies: AllCopies
    alternatives: list[Alternative]
    compared: list[Compared]
    cost: Cost | None
    findings: list[Finding]
    watch: list[Watch]
    files: list[RenderedFile]
    provenance: Provenance


class Recommendation(Response, frozen=True, kw_only=True):
    """A stored recommendation."""

    id: str
    created_at: str
    labels: dict[str, str]
    request: UnderstoodRequest
    feasible: bool
    headline: str
    binding: Binding | None
    nearest: Nearest | None
    config: EngineConfig
    replicas: Replicas
    decisions: list[Decision]
    estimate: Estimate
    all_copies: AllCopies
    baseline: Estimate
    baseline_all_copies: AllCopies
    alternatives: list[Alternative]
    compared: list[Compared]
    cost: Cost | None
    findings: list[Finding]
    watch: list[Watch]
    files: list[RenderedFile]
    validations: list[ValidationLink]
    measured: Json | None
    provenance: Provenance


class RecommendationSummary(Response, frozen=True, kw_only=True):
    """A row of the list."""

    id: str
    created_at: str
    labels: dict[str, str]
    model: str
    gpu: str
    feasible: bool
    headline: str
    url: str


class RecommendationPage(Response, frozen=True, kw_only=True):
    """One page of recommendations, newest first."""

    items: list[RecommendationSummary]
    next_cursor: str | None
