"""What-if: a configuration's memory and latency."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from api_schemas.base import Request, Response
from api_schemas.engine import Engine, EngineConfig
from api_schemas.explanation import Basis, Finding
from api_schemas.hardware import Hardware
from api_schemas.measurement import CalibratedBy
from api_schemas.model import ModelRef
from api_schemas.slo import Slo, TargetOutcome
from api_schemas.workload import Workload

Band = Annotated[list[float], Meta(min_length=2, max_length=2, description="Low and high, 80 %.")]


class EstimateRequest(Request, frozen=True, kw_only=True):
    """A configuration to judge."""

    model: ModelRef
    hardware: Hardware
    engine: Engine | None = None
    workload: Workload | None = None
    slo: Slo | None = None


class MemoryBreakdown(Response, frozen=True, kw_only=True):
    """Memory of one GPU (the rank that limits), GiB, and the KV cache it leaves."""

    total_gib: float
    requested_gib: float
    weights_gib: float
    activation_gib: float
    non_torch_gib: float
    cuda_graphs_gib: float
    kv_cache_gib: float
    kv_cache_tokens: int
    kv_cache_blocks: int
    block_size: int
    kv_bytes_per_token: float
    max_concurrency: float
    max_model_len: int
    largest_max_model_len: int
    band: dict[str, Band]


class Percentiles(Response, frozen=True, kw_only=True):
    """Mean and percentiles of one latency, milliseconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


class Performance(Response, frozen=True, kw_only=True):
    """Latency and throughput of one replica under the workload."""

    ttft_ms: Percentiles
    tpot_ms: Percentiles
    itl_ms: Percentiles
    e2el_ms: Percentiles
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    goodput_requests_per_s: float
    preemptions_per_request: float
    kv_cache_usage: float
    running_requests: float
    waiting_requests: float
    saturated: bool
    band: dict[str, Band]


class Provenance(Response, frozen=True, kw_only=True):
    """What an answer was made from; same provenance and request, same answer."""

    setpoint_version: str
    engine_version: str
    catalogue_version: str
    coefficients_version: str
    seed: int
    calibration: CalibratedBy | UnsetType = UNSET
    """The measurements that the latency rests on; absent when there are none."""


class Estimate(Response, frozen=True, kw_only=True):
    """The answer to a what-if."""

    fits: bool
    memory: MemoryBreakdown | None
    performance: Performance | None
    slo: list[TargetOutcome]
    basis: Basis
    defaults_applied: EngineConfig
    findings: list[Finding]
    provenance: Provenance
