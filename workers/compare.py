"""Mode `compare`: vLLM's defaults against the recommendation under the same load.

Starts alternate (defaults, recommended, recommended, defaults, ...), so that a machine that warms
up or gets busy spoils both alike; each start gives one value, and only an interval of their ratio
that excludes 1 counts as a difference.
"""

import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.validation import ComparedFigure, Comparison, LoadPoint
from workers.experiment import Experiment
from workers.points import Measurement
from workers.run import OutOfTime
from workers.statistics import ratio_interval

_MOST_STARTS = 8
_FEWEST_STARTS = 4
_KEPT = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "dtype",
    "enable_lora",
    "max_loras",
    "max_lora_rank",
    "speculative_config",
    "trust_remote_code",
)
"""What the model and the devices ask for is no tuning."""
_FIGURES = (
    "requests_per_s",
    "output_tokens_per_s",
    "ttft_ms.p50",
    "ttft_ms.p95",
    "tpot_ms.p50",
    "tpot_ms.p95",
    "e2el_ms.p95",
)
Side = Literal["defaults", "recommended"]


def compare(experiment: Experiment) -> None:
    """Measure both, start after start, while the minutes last."""
    found: dict[Side, list[LoadPoint]] = {"defaults": [], "recommended": []}
    longest_s = 0.0
    for number in range(_MOST_STARTS):
        if number >= _FEWEST_STARTS and experiment.run.remaining_s < 2.2 * longest_s:
            break
        side: Side = "recommended" if number % 4 in (1, 2) else "defaults"
        started_s = time.monotonic()
        try:
            measured = _measure(experiment, side, number=number)
        except OutOfTime:
            if not all(found.values()):
                raise
            experiment.run.note(f"The minutes ended after {number} starts.")
            break
        found[side].append(measured.point)
        if side == "recommended":
            experiment.findings.judged.append(measured)
        experiment.findings.comparison = comparison_of(found["defaults"], found["recommended"])
        longest_s = max(longest_s, time.monotonic() - started_s)


def comparison_of(
    defaults: Sequence[LoadPoint], recommended: Sequence[LoadPoint]
) -> Comparison | None:
    """Return every figure of the recommendation relative to the defaults; None without both."""
    if not defaults or not recommended:
        return None
    figures = [_compared(name, defaults, recommended) for name in _FIGURES]
    return Comparison(starts_each=min(len(defaults), len(recommended)), figures=figures)


def default_config(recommended: EngineConfig) -> EngineConfig:
    """Return what `vllm serve` gets without advice, on the same devices."""
    return EngineConfig(**{name: getattr(recommended, name) for name in _KEPT})


def _measure(experiment: Experiment, side: Side, *, number: int) -> Measurement:
    progress = 0.1 + 0.8 * number / _MOST_STARTS
    seconds = experiment.run.remaining_s / (_MOST_STARTS - number)
    if side == "recommended":
        with experiment.recommended(progress=progress) as session:
            return experiment.measure(
                session, experiment.arrivals, label=side, seconds=seconds, progress=progress
            )
    baseline = experiment.subject.recommendation.baseline
    config = default_config(experiment.config)
    with experiment.server(config, planned=baseline, progress=progress) as session:
        return experiment.measure(
            session, experiment.arrivals, label=side, seconds=seconds, progress=progress
        )


def _compared(
    metric: str, defaults: Sequence[LoadPoint], recommended: Sequence[LoadPoint]
) -> ComparedFigure:
    old = [_figure(point, metric) for point in defaults]
    new = [_figure(point, metric) for point in recommended]
    before, after = sum(old) / len(old), sum(new) / len(new)
    interval = ratio_interval(new, old)
    return ComparedFigure(
        metric=metric.replace(".", "_"),
        defaults=round(before, 4),
        recommended=round(after, 4),
        ratio=round(after / before, 4) if before else 0.0,
        interval=None if interval is None else (round(interval[0], 4), round(interval[1], 4)),
        outcome=_outcome(interval, more_is_better=metric.endswith("_per_s")),
    )


def _outcome(
    interval: tuple[float, float] | None, *, more_is_better: bool
) -> Literal["better", "worse", "no_difference_shown"]:
    if interval is None or interval[0] <= 1 <= interval[1]:
        return "no_difference_shown"
    return "better" if (interval[0] > 1) == more_is_better else "worse"


def _figure(point: LoadPoint, name: str) -> float:
    value: object = point
    for part in name.split("."):
        value = getattr(value, part)
    return msgspec.convert(value, float)
