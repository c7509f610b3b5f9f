"""How far a calibration speaks: within twice the measured loads and lengths."""

import pytest

from api_schemas.measurement import CalibratedRange
from api_schemas.workload import Arrivals, BatchArrivals, ClosedLoop, PoissonArrivals, Workload
from service.tuning.calibrations.key import ConfigurationKey
from service.tuning.calibrations.known import KnownCalibration
from service.tuning.latency.calibration import Calibration

_WIDTHS = {"ttft": 0.2, "tpot": 0.1, "output_tokens_per_s": 0.1}
_KEY = ConfigurationKey(
    model="m",
    gpu="g",
    link="none",
    precision="bfloat16",
    dtype="bfloat16",
    kv_cache_dtype="auto",
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    data_parallel_size=1,
    decode_context_parallel_size=1,
    enable_expert_parallel=False,
    enforce_eager=False,
    drafted_tokens=0,
    release="0.33",
)


def _narrowed(
    arrivals: Arrivals, *, prompt: int = 1000, rates: tuple[float, float] | None = None
) -> set[str]:
    """Return the metrics whose band stays narrow; loops of 1 to 64 clients were measured."""
    known = KnownCalibration(
        key=_KEY,
        calibration=Calibration(factors={}, points=3, log_widths=_WIDTHS),
        version="1",
        measurement_ids=("a",),
        range=CalibratedRange(
            in_flight=(1.0, 64.0),
            requests_per_s=rates,
            prompt_tokens=(256.0, 4096.0),
            output_tokens=(128.0, 256.0),
        ),
    )
    workload = Workload(prompt_tokens=prompt, output_tokens=200, arrivals=arrivals)
    return set(known.under(workload).log_widths)


@pytest.mark.parametrize(
    ("arrivals", "prompt", "narrow"),
    [
        (ClosedLoop(max_concurrency=16), 1000, True),
        (ClosedLoop(max_concurrency=128), 1000, True),
        (ClosedLoop(max_concurrency=200), 1000, False),
        (BatchArrivals(num_requests=64), 1000, True),
        (ClosedLoop(max_concurrency=16), 9000, False),
        (ClosedLoop(max_concurrency=16), 100, False),
    ],
)
def test_bands_stay_narrow_within_reach_of_what_was_measured(
    arrivals: Arrivals,
    prompt: int,
    narrow: bool,  # noqa: FBT001
) -> None:
    """Beyond twice the measured loads and lengths the band is that of the model again."""
    assert _narrowed(arrivals, prompt=prompt) == (set(_WIDTHS) if narrow else set())


def test_loops_say_little_of_queues_under_a_rate() -> None:
    """Under arrivals at a rate, measured loops narrow TPOT and throughput, but not TTFT."""
    arrivals = PoissonArrivals(requests_per_s=3.0)

    assert _narrowed(arrivals) == {"tpot", "output_tokens_per_s"}
    assert _narrowed(arrivals, rates=(2.0, 8.0)) == set(_WIDTHS)
    assert _narrowed(arrivals, rates=(10.0, 20.0)) == set()


def test_without_a_load_everything_is_kept() -> None:
    """A question without a load has no band to widen."""
    known = KnownCalibration(
        key=_KEY,
        calibration=Calibration(factors={}, points=3, log_widths=_WIDTHS),
        version="1",
        measurement_ids=(),
    )

    assert known.under(None).log_widths == _WIDTHS
