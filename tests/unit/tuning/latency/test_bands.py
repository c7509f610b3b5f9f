"""How sure predictions are: which row of the table a load gets, and how it widens."""

import math

import msgspec
import pytest

from service.tuning.latency.bands import (
    BandTable,
    Predicted,
    Regime,
    log_factors,
    performance_band,
    regime_cell,
)
from service.tuning.latency.calibration import Calibration
from service.tuning.simulation.metrics import Summary

TABLE = BandTable(
    version="test",
    log_factors={"ttft": {"all": (-0.2, 0.4), "roomy": (-0.1, 0.2), "level": (-0.3, 1.0)}},
    measured_log_factors={"ttft": {"all": (-0.05, 0.06)}},
    hardware_scale={"ttft": {"hopper.datacenter": 0.5, "ada.consumer": 3.0}},
    measured_hardware_scale={"ttft": {"ada.consumer": 2.0}},
    unknown_scale={"ttft": 2.0},
    known_classes={"hopper": 9, "ada": 5},
    measured_configurations={"a model on a GPU": 12},
    unmeasured_widening=1.5,
)
USUAL = Regime(
    classes=("hopper",),
    hardware="hopper.datacenter",
    configuration="another model on a GPU",
    is_burst=False,
    is_open=False,
    demand=0.2,
)


def widths(**changes: object) -> tuple[float, float]:
    regime = msgspec.structs.replace(USUAL, **changes)
    return log_factors("ttft", regime, table=TABLE)


def test_hardware_scales_the_band_of_its_regime() -> None:
    """A class whose figures strayed less gets a narrower band, one that strayed more a wider."""
    assert widths() == pytest.approx((-0.05, 0.1))
    assert widths(hardware="ada.consumer") == pytest.approx((-0.3, 0.6))


def test_what_was_never_measured_gets_the_scale_of_the_unknown() -> None:
    """Unknown hardware and unknown formats are as unsure as a class left out."""
    assert widths(hardware="rubin.datacenter") == pytest.approx((-0.2, 0.4))
    assert widths(classes=("hopper", "mlp.fp2@hopper")) == pytest.approx((-0.2, 0.4))
    assert widths(hardware="ada.consumer", classes=("x",)) == pytest.approx((-0.3, 0.6))


def test_another_load_of_a_measured_configuration_is_surer() -> None:
    """What was measured at other loads has its own, narrower row."""
    known = {"configuration": "a model on a GPU"}
    assert widths(**known) == (-0.05, 0.06)
    assert widths(**known, hardware="ada.consumer") == pytest.approx((-0.1, 0.12))


def test_hardly_measured_parallelism_widens() -> None:
    """Speculation, several nodes and shared experts rest on physics alone."""
    assert widths(is_unmeasured=True) == pytest.approx((-0.075, 0.15))


@pytest.mark.parametrize(
    ("changes", "cell"),
    [
        ({}, "roomy"),
        ({"demand": 0.9}, "tight"),
        ({"is_burst": True}, "burst"),
        ({"is_open": True}, "open"),
        ({"is_level": True, "demand": 0.9}, "level"),
    ],
)
def test_each_load_has_its_row(changes: dict[str, object], cell: str) -> None:
    """Demand, arrivals and answers of one length decide."""
    assert regime_cell("ttft", msgspec.structs.replace(USUAL, **changes)) == cell


def test_clients_in_step_change_the_first_token_alone() -> None:
    """Throughput and time per token hardly notice whether clients stay in step."""
    level = msgspec.structs.replace(USUAL, is_level=True)
    assert regime_cell("tpot", level) == "roomy"


def test_every_statistic_gets_a_band_around_it() -> None:
    """Tails are surer of nothing than the median is, and every band holds its prediction."""
    summary = Summary(mean=1.1, p50=1.0, p90=1.5, p95=2.0, p99=3.0)
    bands = performance_band(
        Predicted(
            ttft=summary,
            tpot=summary,
            itl=summary,
            e2el=Summary(mean=12.0, p50=11.0, p90=15.0, p95=20.0, p99=30.0),
            output_tokens_per_s=100.0,
            requests_per_s=2.0,
        ),
        regime=USUAL,
    )

    for name, value in (("ttft_ms_p95", 2000.0), ("tpot_ms_p99", 3000.0), ("requests_per_s", 2.0)):
        low, high = bands[name]
        assert low < value < high
    spread = {
        p: math.log(bands[f"tpot_ms_{p}"][1] / bands[f"tpot_ms_{p}"][0]) for p in ("p50", "p99")
    }
    assert spread["p99"] > spread["p50"]


def test_bands_reach_to_clients_in_step_until_points_show_what_they_do() -> None:
    """Nobody says whether clients stay together; measured points of the configuration do."""
    summary = Summary(mean=1.1, p50=1.0, p90=1.5, p95=2.0, p99=3.0)
    predicted = Predicted(
        ttft=summary,
        tpot=summary,
        itl=summary,
        e2el=summary,
        output_tokens_per_s=100.0,
        requests_per_s=2.0,
    )
    together = msgspec.structs.replace(predicted, ttft_in_step_s=4.0)
    shown = Calibration(factors={}, points=3, log_widths={"ttft": 0.1})

    parted = performance_band(predicted, regime=USUAL)
    reaching = performance_band(together, regime=USUAL)

    assert reaching["ttft_ms_p50"][0] == parted["ttft_ms_p50"][0]
    assert reaching["ttft_ms_p50"][1] > 4000.0 > parted["ttft_ms_p50"][1]
    assert reaching["tpot_ms_p50"] == parted["tpot_ms_p50"]
    assert performance_band(together, regime=USUAL, calibration=shown) == performance_band(
        predicted, regime=USUAL, calibration=shown
    )
