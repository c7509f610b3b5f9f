"""How far a prediction was off."""

import msgspec
import pytest

from api_schemas.estimate import Estimate
from api_schemas.measurement import Observed, Statistics
from service.api.examples import estimate_answer
from service.tuning.measurements.prediction_errors import COMPARED, prediction_errors


@pytest.fixture(scope="module")
def predicted() -> Estimate:
    return estimate_answer()


def test_the_error_is_relative_to_the_measurement_and_signed(predicted: Estimate) -> None:
    """Half of the measured value is -0.5, twice of it is 1."""
    assert predicted.performance is not None
    observed = Observed(
        ttft_ms=Statistics(p50=predicted.performance.ttft_ms.p50 * 2),
        output_tokens_per_s=predicted.performance.output_tokens_per_s / 2,
    )

    errors = prediction_errors(observed, predicted)

    assert errors == {
        "ttft_ms_p50": pytest.approx(-0.5),
        "output_tokens_per_s": pytest.approx(1.0),
    }


def test_a_statistic_without_a_name_is_the_mean(predicted: Estimate) -> None:
    """So it is read everywhere else."""
    assert predicted.performance is not None
    observed = Observed(tpot_ms=Statistics(unspecified=predicted.performance.tpot_ms.mean))

    assert prediction_errors(observed, predicted) == {"tpot_ms_mean": 0.0}


def test_every_figure_that_is_compared_is_known(predicted: Estimate) -> None:
    """Whoever counts errors knows how many kinds there can be."""
    values = Statistics(mean=1.0, p50=1.0, p90=1.0, p95=1.0, p99=1.0)
    observed = Observed(
        ttft_ms=values,
        tpot_ms=values,
        itl_ms=values,
        e2el_ms=values,
        requests_per_s=1.0,
        output_tokens_per_s=1.0,
        kv_cache_tokens=1,
    )

    assert set(prediction_errors(observed, predicted)) == set(COMPARED)


def test_without_a_load_only_memory_is_compared(predicted: Estimate) -> None:
    """What was not predicted has no error."""
    idle = msgspec.structs.replace(predicted, performance=None)
    observed = Observed(ttft_ms=Statistics(p50=1.0), kv_cache_tokens=1000)

    assert set(prediction_errors(observed, idle)) == {"kv_cache_tokens"}
