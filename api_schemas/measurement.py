"""The performance database: what was measured, and the calibrations made from it."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import (
    Fraction,
    Gib,
    Json,
    Labels,
    Milliseconds,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Record,
    Request,
    Response,
    Value,
)
from api_schemas.engine import Engine
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.workload import Workload

MeasurementTool = Literal["stated", "vllm_bench", "guidellm", "validation"]
CalibrationStatus = Literal["used", "refused"]


class Statistics(Value, frozen=True, kw_only=True):
    """One latency as its source states it, milliseconds, by the name of the statistic."""

    mean: Milliseconds | None = None
    p50: Milliseconds | None = None
    p90: Milliseconds | None = None
    p95: Milliseconds | None = None
    p99: Milliseconds | None = None
    unspecified: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1e9,
                description="The source does not say which statistic; it is read as the mean.",
            ),
        ]
        | None
    ) = None


class Observed(Value, frozen=True, kw_only=True):
    """What was measured, by the definitions of vLLM's own benchmark.

    TTFT from sending to the first token; TPOT (E2EL - TTFT) / (output tokens - 1) of a request; ITL
    every gap in the stream; E2EL from sending to the last token. Rates are over the whole run.
    """

    ttft_ms: Statistics | None = None
    tpot_ms: Statistics | None = None
    itl_ms: Statistics | None = None
    e2el_ms: Statistics | None = None
    requests_per_s: PositiveFloat | None = None
    output_tokens_per_s: PositiveFloat | None = None
    total_tokens_per_s: PositiveFloat | None = None
    duration_s: PositiveFloat | None = None
    completed: PositiveInt | None = None
    failed: NonNegativeInt | None = None
    preemptions_per_request: NonNegativeFloat | None = None
    kv_cache_usage_peak: Fraction | None = None
    kv_cache_gib: Gib | None = None
    kv_cache_tokens: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=10**12,
                description="KV cache of one engine as its start-up log states it, tokens.",
            ),
        ]
        | None
    ) = None


class MeasurementSource(Value, frozen=True, kw_only=True):
    """Where a measurement comes from."""

    tool: MeasurementTool = "stated"
    reference: (
        Annotated[
            str, Meta(max_length=2048, description="A run, a report, an address: for people.")
        ]
        | None
    ) = None
    validation_id: Name | None = None


class MeasurementRequest(Request, frozen=True, kw_only=True):
    """A measurement in our own shape (`observed`), or the report of a benchmark (`report`).

    A report lacks what it ran on: model, hardware and engine are always stated. What it does say of
    the load is read from it; a stated `workload` wins.
    """

    model: ModelRef
    hardware: Hardware
    engine: Engine
    workload: Workload | None = None
    observed: Observed | None = None
    report: (
        Annotated[
            dict[str, Json],
            Meta(
                description="The JSON that `vllm bench serve --save-result` wrote, or a GuideLLM "
                "report with one or more benchmarks; which one is told by its keys."
            ),
        ]
        | None
    ) = None
    cpu: Annotated[
        bool,
        Meta(
            description="vLLM ran on its CPU backend: `hardware.gpu` is then the processor's name. "
            "Such measurements are kept apart from those of GPUs and calibrate nothing."
        ),
    ] = False
    measured_at: Annotated[str, Meta(max_length=40, description="RFC 3339.")] | None = None
    reference: Annotated[str, Meta(max_length=2048)] | None = None
    labels: Labels = {}


class Measurement(Record, frozen=True, kw_only=True):
    """One stored measurement."""

    id: str
    created_at: str
    digest: str
    """Same content, same digest; it is stored once."""
    model: ModelRef
    hardware: Hardware
    engine: Engine
    workload: Workload
    observed: Observed
    source: MeasurementSource
    cpu: bool
    configuration: str | None = None
    """Key of the configuration that it calibrates; None on a CPU."""
    measured_at: str | None = None
    labels: dict[str, str] = {}
    notes: list[str] = []
    """What was converted, and how."""


class MeasurementPage(Response, frozen=True, kw_only=True):
    """One page of measurements, newest first."""

    items: list[Measurement]
    next_cursor: str | None


class MetricResidual(Record, frozen=True, kw_only=True):
    """How far predictions of left-out points were off, percent (median of the absolute error)."""

    points: int
    before_percent: float
    after_percent: float


class CalibratedRange(Record, frozen=True, kw_only=True):
    """The loads that were measured: between these the calibration speaks."""

    in_flight: tuple[float, float] | None
    """Requests of closed loops and bursts; None when only rates were measured."""
    requests_per_s: tuple[float, float] | None
    """Rates of open loops; None when none was measured."""
    prompt_tokens: tuple[float, float]
    output_tokens: tuple[float, float]


class Calibration(Record, frozen=True, kw_only=True):
    """What the measurements of one configuration changed, and whether it is used."""

    configuration: str
    version: str
    model: str
    gpu: str
    engine_version: str
    tensor_parallel_size: int
    precision: str
    key: dict[str, str | int | bool]
    """All that a configuration must share with the measured one."""
    status: CalibrationStatus
    reason: str
    """Why it is used or refused."""
    factors: dict[str, float]
    """Multipliers on the coefficients of the latency model."""
    band_factors: dict[str, float]
    """Half width of the 80 % band after the fit, as a factor, by metric."""
    residuals: dict[str, MetricResidual]
    """Left-out points: each predicted from the others, without and with the fit."""
    range: CalibratedRange | None
    measurement_ids: list[str]
    coefficients_version: str
    created_at: str


class CalibrationList(Response, frozen=True, kw_only=True):
    """All calibrations, used and refused."""

    items: list[Calibration]


class MeasurementsCreated(Response, frozen=True, kw_only=True):
    """What a post stored, and what became of the calibrations it touches."""

    items: list[Measurement]
    calibrations: list[Calibration]


class CalibratedBy(Value, frozen=True, kw_only=True):
    """Which measurements an answer rests on."""

    version: str
    measurement_ids: list[str]
