"""Few-shot fits: they find what is off, keep still where nothing is, and are judged."""

import math

import msgspec
import numpy as np
import pytest

from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.workload import BatchArrivals, ClosedLoop, UniformLength, Workload
from service.tuning.calibrations.directions import (
    ENGINE,
    FRONT_END,
    FRONT_END_AT,
    HYPOTHESES,
    MEMBERSHIP,
    NUM_DIRECTIONS,
    WHOLE_AT,
    factors_of,
)
from service.tuning.calibrations.fit import (
    MeasuredPoint,
    calibration_of,
    line_of,
    residuals,
)
from service.tuning.calibrations.judge import calibrate, weigh
from service.tuning.calibrations.key import configuration_key
from service.tuning.calibrations.noise import noise_of
from service.tuning.calibrations.schedule import Figure, schedule_of
from service.tuning.calibrations.spread import spread_points
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import parse_version
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.latency.coefficients import Coefficients, bundled_coefficients
from service.tuning.latency.price import NUM_PRICES
from service.tuning.memory.budget import plan_memory
from service.tuning.models.catalogue import resolve_model
from service.tuning.performance import Prediction, predict_performance, prepare
from service.tuning.simulation.traffic import draw_traffic

_LOADS = ((1, 256), (32, 1024), (8, 4096), (64, 512), (16, 2048))


def _workload(clients: int, prompt: int) -> Workload:
    return Workload(
        prompt_tokens=UniformLength(low=round(prompt * 0.8), high=prompt),
        output_tokens=UniformLength(low=103, high=128),
        arrivals=ClosedLoop(max_concurrency=clients),
    )


def _situation(gpus: int = 1) -> dict[str, object]:
    spec = resolve_model(ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"))
    node, _ = resolve_hardware(Hardware(gpu="H100-SXM5-80GB", gpus_per_node=gpus))
    version = parse_version("0.33.0")
    given = EngineConfig(max_model_len=8192, tensor_parallel_size=gpus)
    config = effective_config(given, spec=spec, node=node, version=version)
    plan = plan_memory(spec=spec, node=node, config=config, version=version)
    return {"spec": spec, "node": node, "config": config, "version": version, "plan": plan}


def _prediction(coefficients: Coefficients | None = None) -> Prediction:
    return prepare(**_situation(), coefficients=coefficients)  # type: ignore[arg-type]  # keywords of one call


def _world(**factors: float) -> Coefficients:
    """Return a world whose physics differs by these factors from the one that ships."""
    shipped = bundled_coefficients()
    changed = {name: shipped.value(name) * factor for name, factor in factors.items()}
    return msgspec.structs.replace(shipped, factors={**shipped.factors, **changed})


def _points(
    world: Coefficients, loads: tuple[tuple[int, int], ...] = _LOADS
) -> list[MeasuredPoint]:
    """Return what would be measured in that world, by the service's own simulation."""
    points = []
    for clients, prompt in loads:
        workload = _workload(clients, prompt)
        truth = predict_performance(**_situation(), workload=workload, coefficients=world)  # type: ignore[arg-type]
        points.append(
            MeasuredPoint(
                id=f"{clients}x{prompt}",
                prediction=_prediction(),
                traffic=draw_traffic(workload),
                figures=(
                    Figure(metric="ttft", value=truth.ttft_ms.mean / 1e3),
                    Figure(metric="tpot", value=truth.tpot_ms.mean / 1e3),
                    Figure(metric="output_tokens_per_s", value=truth.output_tokens_per_s),
                ),
            )
        )
    return points


def _worst(points: list[MeasuredPoint], coefficients: Coefficients) -> float:
    lines = [line_of(point, coefficients=coefficients) for point in points]
    errors = [np.abs(residuals(line, np.zeros(NUM_DIRECTIONS))).max() for line in lines if line]
    return float(max(errors))


@pytest.mark.parametrize("clients", [1, 8, 64])
def test_a_schedule_adds_up_to_what_was_simulated(clients: int) -> None:
    """Priced at its own prices, a schedule gives TTFT, TPOT and rate of the simulation itself."""
    workload = _workload(clients, 1024)
    figures = tuple(
        Figure(metric=metric, value=1.0) for metric in ("ttft", "tpot", "output_tokens_per_s")
    )
    truth = predict_performance(**_situation(), workload=workload)  # type: ignore[arg-type]

    schedule = schedule_of(_prediction(), traffic=draw_traffic(workload), figures=figures)

    assert schedule is not None
    seconds = schedule.seconds.sum(axis=1) + schedule.front_end + schedule.idle
    assert seconds[0] * 1e3 == pytest.approx(truth.ttft_ms.mean, rel=1e-6)
    assert seconds[1] * 1e3 == pytest.approx(truth.tpot_ms.mean, rel=1e-6)
    assert schedule.tokens / seconds[2] == pytest.approx(truth.output_tokens_per_s, rel=0.01)


def _burst(requests: int, *, prompt: int, output: int) -> Workload:
    return Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        arrivals=BatchArrivals(num_requests=requests),
    )


def _rate_of(workload: Workload, world: Coefficients) -> float:
    truth = predict_performance(**_situation(), workload=workload, coefficients=world)  # type: ignore[arg-type]
    return truth.output_tokens_per_s


@pytest.mark.parametrize(
    ("workload", "is_paced"),
    [(_burst(400, prompt=32, output=4), True), (_burst(8, prompt=64, output=1000), False)],
)
@pytest.mark.parametrize("slower", ["front_end", "whole"])
def test_a_burst_follows_what_it_waits_for(
    workload: Workload, slower: str, *, is_paced: bool
) -> None:
    """A burst of short requests is as slow as the front end that hands them over, others are not.

    What the schedule says of a front end, or of an engine, that is slower by a tenth is what a
    simulation says.
    """
    figure = Figure(metric="output_tokens_per_s", value=_rate_of(workload, bundled_coefficients()))
    point = MeasuredPoint(
        id="burst", prediction=_prediction(), traffic=draw_traffic(workload), figures=(figure,)
    )
    line = line_of(point, coefficients=bundled_coefficients())
    assert line is not None
    moves = np.zeros(NUM_DIRECTIONS)
    moves[FRONT_END_AT if slower == "front_end" else WHOLE_AT] = math.log(1.1)
    world = calibration_of(moves, point.prediction.work).applied_to(bundled_coefficients())

    expected = math.log(_rate_of(workload, world) / figure.value)

    assert float(residuals(line, moves)[0]) == pytest.approx(expected, abs=0.015)
    assert (expected < -0.05) == (is_paced == (slower == "front_end"))


def test_a_paced_burst_teaches_the_front_end() -> None:
    """Where short requests wait for a slow front end, the engine keeps its speed."""
    world = _world(front_end=2.0, front_end_token=2.0, burst=2.0)
    points = _points(world, ((1, 256), (32, 1024)))
    short = _burst(400, prompt=32, output=4)
    points.append(
        MeasuredPoint(
            id="short",
            prediction=_prediction(),
            traffic=draw_traffic(short),
            figures=(Figure(metric="output_tokens_per_s", value=_rate_of(short, world)),),
        )
    )

    factors = calibrate(points).calibration.factors

    assert factors["burst"] == pytest.approx(2.0, rel=0.1)
    assert factors["read"] == pytest.approx(1.0, abs=0.03)
    assert factors["step"] == pytest.approx(1.0, abs=0.06)


def test_explanations_count_as_they_hold() -> None:
    """What makes left-out loads likely counts most, and the others count with what is left."""
    lines = [
        line
        for point in _points(_world(front_end=1.8, front_end_token=1.8, burst=1.8))[:4]
        if (line := line_of(point, coefficients=bundled_coefficients())) is not None
    ]

    weights, left_out = weigh(lines)

    by_name = {h.name: weight for h, weight in zip(HYPOTHESES, weights, strict=True)}
    assert sum(weights) == pytest.approx(1.0)
    assert by_name["front_end"] > by_name["engine"]
    assert set(left_out) == {"ttft", "tpot", "output_tokens_per_s"}


def test_single_waits_of_a_burst_mean_less() -> None:
    """Of requests sent at once TPOT is noisier than throughput, and both than those of a loop."""
    figures = (Figure(metric="tpot", value=1.0), Figure(metric="output_tokens_per_s", value=1.0))
    one_wave = Workload(
        prompt_tokens=64,
        output_tokens=64,
        arrivals=ClosedLoop(max_concurrency=16, num_requests=16),
    )
    loop, burst, wave = (
        noise_of(figures, draw_traffic(workload))
        for workload in (_workload(8, 256), _burst(16, prompt=64, output=64), one_wave)
    )

    assert (burst > loop).all()
    assert burst[0] > burst[1]
    assert (wave == burst).all()


@pytest.mark.parametrize(
    "world",
    [
        {"read": 1.2},
        dict.fromkeys(FRONT_END, 1.8),
        {"layer": 2.0, "step": 2.0},
        {"read": 0.9, "compute": 1.3, "context": 1.2},
    ],
)
def test_three_loads_teach_the_others(world: dict[str, float]) -> None:
    """Where memory, arithmetic or the front end differ, the loads not shown come out right too."""
    points = _points(_world(**world))
    shown = [points[index] for index in spread_points(points, 3)]
    others = [point for point in points if point not in shown]

    fitted = calibrate(shown)

    assert fitted.is_used, fitted.reason
    learned = fitted.calibration.applied_to(bundled_coefficients())
    assert _worst(others, learned) < 0.5 * _worst(others, bundled_coefficients())


def test_right_predictions_stay_as_they_are() -> None:
    """Measurements that were predicted exactly move nothing."""
    fitted = calibrate(_points(bundled_coefficients())[:3])

    assert all(
        factor == pytest.approx(1.0, abs=1e-3) for factor in fitted.calibration.factors.values()
    )


def test_loads_that_contradict_each_other_are_refused() -> None:
    """A fit that predicts left-out loads no better is not used, and says so."""
    slow, fast = _points(_world(read=1.5, layer=1.5)), _points(_world(read=0.6, layer=0.6))

    fitted = calibrate([slow[0], fast[3], _points(bundled_coefficients())[2]])

    assert not fitted.is_used
    assert "than no calibration" in fitted.reason


@pytest.mark.parametrize("number", [0, 1])
def test_too_few_loads_are_refused(number: int) -> None:
    """Without a left-out load nothing can be judged."""
    fitted = calibrate(_points(_world(read=1.3))[:number])

    assert not fitted.is_used
    assert fitted.calibration.factors == {}


def test_a_metric_that_was_not_measured_keeps_its_band() -> None:
    """Only what left-out loads confirm is narrowed."""
    points = [
        msgspec.structs.replace(point, figures=point.figures[1:2])
        for point in _points(_world(read=1.2))[:3]
    ]

    fitted = calibrate(points)

    assert set(fitted.calibration.log_widths) == {"tpot"}


def test_every_component_moves_in_one_direction_at_most() -> None:
    """Each part of a step belongs to one group, besides the factor on all of them."""
    owners = [component for direction in ENGINE for component in direction.components]

    assert len(owners) == len(set(owners))
    assert MEMBERSHIP.shape == (NUM_PRICES, NUM_DIRECTIONS)
    assert (MEMBERSHIP.sum(axis=1) <= 2).all()


def test_factors_scale_the_prices_as_the_fit_believes() -> None:
    """The names of coefficients reach exactly the components of their direction."""
    moves = np.linspace(-0.3, 0.3, NUM_DIRECTIONS)
    work = _prediction().work
    factors = factors_of(moves, work)
    expected = np.exp(MEMBERSHIP @ moves)

    for term in work.terms:
        scale = math.prod(factors.get(name, 1.0) for name in term.factors)
        assert scale == pytest.approx(expected[term.component]), term
    assert set(FRONT_END) <= set(factors)


def test_keys_tell_apart_what_changes_a_step() -> None:
    """GPU, split, formats, kernels, release and eager mode make another key; limits do not."""
    one = _situation()
    spec, node, config, version = (one[n] for n in ("spec", "node", "config", "version"))

    def key(**changes: object) -> str:
        parts = {"spec": spec, "node": node, "config": config, "version": version} | changes
        return configuration_key(**parts).text  # type: ignore[arg-type]

    assert isinstance(config, EngineConfig)
    same = [
        {"config": msgspec.structs.replace(config, max_num_seqs=7, max_num_batched_tokens=99)},
        {"version": parse_version("0.33.0")},
        {"spec": msgspec.structs.replace(spec, id="somebody/fine-tune")},
    ]
    others = [
        {"config": msgspec.structs.replace(config, enforce_eager=True)},
        {"config": msgspec.structs.replace(config, kv_cache_dtype="fp8")},
        {"config": msgspec.structs.replace(config, attention_backend="FLASHINFER")},
        {"config": msgspec.structs.replace(config, performance_mode="throughput")},
        {"version": parse_version("0.20.0")},
        {"spec": resolve_model(ModelRef(id="Qwen/Qwen3-8B"))},
        {"node": resolve_hardware(Hardware(gpu="H200-SXM-141GB"))[0]},
    ]

    assert {key(**change) for change in same} == {key()}
    assert len({key(), *(key(**change) for change in others)}) == len(others) + 1
