"""Load points of validations: measurements of what really ran, or left out."""

import msgspec
import pytest

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Percentiles
from api_schemas.hardware import Hardware
from api_schemas.measurement import Statistics
from api_schemas.model import ModelRef
from api_schemas.validation import LoadPoint
from api_schemas.workload import ClosedLoop, PoissonArrivals, Workload
from service.tuning.measurements.load_points import Proven, accepted_load_point


def _percentiles(mean: float) -> Percentiles:
    return Percentiles(mean=mean, p50=mean, p90=mean + 1, p95=mean + 2, p99=mean + 3)


def _point(**changes: object) -> LoadPoint:
    """Return 4 clients with 16 tokens each: 15 ms to the first token, 3 ms for each further one."""
    point = LoadPoint(
        label="quick-1",
        config=EngineConfig(max_num_seqs=64),
        offered=ClosedLoop(max_concurrency=4),
        num_requests=60,
        seed=1,
        duration_s=1.0,
        completed=60,
        failed=0,
        ttft_ms=_percentiles(15.0),
        tpot_ms=_percentiles(3.0),
        itl_ms=_percentiles(3.0),
        e2el_ms=_percentiles(60.0),
        requests_per_s=66.0,
        output_tokens_per_s=1056.0,
        goodput_requests_per_s=None,
        preemptions=0,
        preemptions_per_request=0.0,
        kv_cache_usage_peak=0.25,
        running_peak=4,
        waiting_peak=0,
        prefix_cache_hit_ratio=0.0,
        queue_time_mean_ms=None,
        predicted={},
        error_percent={},
    )
    return msgspec.structs.replace(point, **changes)


def _proven(*, cpu: bool = False) -> Proven:
    return Proven(
        validation_id="v",
        model=ModelRef(id="team/tiny"),
        hardware=Hardware(gpu="cpu" if cpu else "L4"),
        engine_version="0.32.0",
        workload=Workload(
            preset="chat",
            prompt_tokens=64,
            output_tokens=16,
            arrivals=PoissonArrivals(requests_per_s=1.0),
        ),
        cpu=cpu,
    )


def test_a_load_point_is_a_measurement_of_what_ran() -> None:
    """Its own load and settings, and every figure, with the validation that it came from."""
    accepted = accepted_load_point(_point(), _proven())

    assert accepted is not None
    assert accepted.workload.arrivals == ClosedLoop(max_concurrency=4)
    assert accepted.workload.preset is None
    assert accepted.engine.config == EngineConfig(max_num_seqs=64)
    assert accepted.observed.tpot_ms == Statistics(mean=3.0, p50=3.0, p90=4.0, p95=5.0, p99=6.0)
    assert (accepted.source.tool, accepted.source.validation_id) == ("validation", "v")


def test_a_processor_is_marked_as_such() -> None:
    """What vLLM's CPU backend measured never looks like a GPU's."""
    accepted = accepted_load_point(_point(), _proven(cpu=True))

    assert accepted is not None
    assert accepted.cpu


@pytest.mark.parametrize(
    "changes",
    [{"failed": 1}, {"completed": 0}, {"e2el_ms": _percentiles(0.06)}],
)
def test_a_point_that_cannot_be_believed_is_left_out(changes: dict[str, object]) -> None:
    """Failed requests, no request, or figures that contradict each other teach nothing."""
    assert accepted_load_point(_point(**changes), _proven()) is None
