"""Examples of the OpenAPI document: requests, and the answers that this version really gives."""

import msgspec

from api_schemas.catalogue import ModelRegistration
from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import Estimate, EstimateRequest
from api_schemas.hardware import Hardware
from api_schemas.measurement import MeasurementRequest, Observed, Statistics
from api_schemas.model import ModelRef
from api_schemas.problem import Problem, ProblemCode
from api_schemas.recommendation import Recommendation, RenderedFile, TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.study import Choices, IntegerRange, StudyRequest
from api_schemas.validation import ValidationPlan
from api_schemas.workload import ClosedLoop, FixedLength, PoissonArrivals, Workload
from service.advice import as_recommendation
from service.problems import make_problem

_MODEL = ModelRef(id="meta-llama/Llama-3.1-8B-Instruct")
_HARDWARE = Hardware(gpu="H100-SXM5-80GB")
_CHAT = Workload(preset="chat", arrivals=PoissonArrivals(requests_per_s=4.0))
_TARGETS = Slo(
    targets=[
        LatencyTarget(metric="ttft", percentile=95, limit_ms=500),
        LatencyTarget(metric="tpot", percentile=95, limit_ms=50),
    ]
)
RECOMMENDATION_ID = "019acfb4-5c00-7a2b-8c11-0242ac120002"
VALIDATION_ID = "019acfb4-5c01-7d10-9a35-0242ac120002"
STUDY_ID = "019acfb4-5c03-7e31-a2c4-0242ac120002"
MEASUREMENT_ID = "019acfb4-5c02-7c45-b0f1-0242ac120002"
CREATED_AT = "2025-11-29T12:00:00.000Z"
_SHOWN = 2
_SHOWN_LINES = 6
REQUEST_ID = "0af7651916cd43dd8448eb211c80319c"


def estimate_request() -> EstimateRequest:
    """Return a what-if that people paste first."""
    return EstimateRequest(
        model=_MODEL,
        hardware=_HARDWARE,
        engine=Engine(config=EngineConfig(max_model_len=8192, gpu_memory_utilization=0.9)),
        workload=Workload(
            prompt_tokens=FixedLength(tokens=1024),
            output_tokens=FixedLength(tokens=256),
            arrivals=PoissonArrivals(requests_per_s=4.0),
        ),
        slo=_TARGETS,
    )


def estimate_answer() -> Estimate:
    """Return the answer to `estimate_request`."""
    from service.tuning.estimate import estimate  # noqa: PLC0415  # compiles code, so on use

    return estimate(estimate_request())


def tuning_request() -> TuningRequest:
    """Return a request for advice that people paste first."""
    return TuningRequest(
        model=_MODEL,
        hardware=_HARDWARE,
        workload=_CHAT,
        slo=_TARGETS,
        labels={"team": "assistant"},
    )


def recommendation() -> Recommendation:
    """Return the answer to `tuning_request`, cut short so that the document stays readable."""
    from service.tuning.recommend import recommend  # noqa: PLC0415  # compiles code, so on use

    request = tuning_request()
    advice = recommend(request)
    shortened = msgspec.structs.replace(
        advice,
        decisions=advice.decisions[:_SHOWN],
        alternatives=advice.alternatives[:_SHOWN],
        compared=advice.compared[:_SHOWN],
        watch=advice.watch[:_SHOWN],
        files=[_first_lines(file) for file in advice.files[:_SHOWN]],
    )
    return as_recommendation(
        shortened, identifier=RECOMMENDATION_ID, created_at=CREATED_AT, labels=request.labels
    )


def validation_plan() -> ValidationPlan:
    """Return a plan that offers the workload once as it was asked for."""
    return ValidationPlan(mode="quick", max_minutes=10)


def study_request() -> StudyRequest:
    """Return a search over the two settings that matter most under load."""
    return StudyRequest(
        recommendation_id=RECOMMENDATION_ID,
        space={
            "max_num_seqs": IntegerRange(low=16, high=512, log=True),
            "max_num_batched_tokens": Choices(values=[2048, 4096, 8192, 16384]),
        },
        max_trials=12,
    )


def measurement_request() -> MeasurementRequest:
    """Return a measured load in our own shape."""
    return MeasurementRequest(
        model=_MODEL,
        hardware=_HARDWARE,
        engine=Engine(version="0.33.0", config=EngineConfig(max_model_len=8192)),
        workload=Workload(
            prompt_tokens=FixedLength(tokens=1024),
            output_tokens=FixedLength(tokens=256),
            arrivals=ClosedLoop(max_concurrency=16),
        ),
        observed=Observed(
            ttft_ms=Statistics(mean=92.0, p50=80.0, p99=210.0),
            tpot_ms=Statistics(mean=8.4, p50=8.3, p99=9.6),
            output_tokens_per_s=1780.0,
            completed=160,
        ),
        reference="run 42 of the nightly benchmark",
    )


def bench_report_request() -> MeasurementRequest:
    """Return a result of `vllm bench serve` (some of its keys) with what it ran on."""
    return MeasurementRequest(
        model=_MODEL,
        hardware=_HARDWARE,
        engine=Engine(version="0.33.0", config=EngineConfig(max_model_len=8192)),
        report={
            "num_prompts": 160,
            "request_rate": "inf",
            "burstiness": 1.0,
            "max_concurrency": 16,
            "duration": 23.0,
            "completed": 160,
            "failed": 0,
            "total_input_tokens": 163840,
            "total_output_tokens": 40960,
            "request_throughput": 6.95,
            "output_throughput": 1780.0,
            "mean_ttft_ms": 92.0,
            "median_ttft_ms": 80.0,
            "mean_tpot_ms": 8.4,
            "median_tpot_ms": 8.3,
        },
    )


def _first_lines(file: RenderedFile) -> RenderedFile:
    lines = file.content.splitlines(keepends=True)[:_SHOWN_LINES]
    return msgspec.structs.replace(file, content="".join(lines))


def model_registration() -> ModelRegistration:
    """Return the config of a Llama-like model with two billion parameters."""
    return ModelRegistration(
        config={
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
            "max_position_embeddings": 8192,
            "torch_dtype": "bfloat16",
        }
    )


def problem(code: ProblemCode) -> Problem:
    """Return what a problem of this code looks like."""
    return make_problem(
        code, "What was given and what is allowed.", instance="/estimates", request_id=REQUEST_ID
    )


def curl_command(base_url: str) -> str:
    """Return a request to this service, ready to paste into a shell."""
    body = {
        "model": {"id": _MODEL.id},
        "hardware": {"gpu": _HARDWARE.gpu},
        "workload": {"preset": "chat"},
    }
    text = msgspec.json.encode(body).decode()
    return f"curl -s {base_url}/recommendations -H 'Content-Type: application/json' -d '{text}'"
