"""The search of a study, told by a fake measurer: it ends, resumes, and learns."""

import math
from collections.abc import Callable

import msgspec
import pytest

from api_schemas.engine import EngineConfig
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.study import Choices, IntegerRange, Objective, StudyRequest, StudyTrial
from service.tuning.studies.outcome import best_trial, pareto_front, violations_of
from service.tuning.studies.prior import Prior
from workers.study_search import Candidate, StudySearch, suggest

_SPACE = {
    "max_num_seqs": IntegerRange(low=8, high=512, log=True),
    "max_num_batched_tokens": Choices(values=[2048, 4096, 8192, 16384]),
}
_SLO = Slo(targets=[LatencyTarget(metric="tpot", percentile=95, limit_ms=30)])
_RECOMMENDED = EngineConfig(max_num_seqs=64, max_num_batched_tokens=8192, max_model_len=4096)
_EFFECTIVE = EngineConfig(max_num_seqs=256, max_num_batched_tokens=8192, max_model_len=4096)
_RATE = "output_tokens_per_s"


def _request(**changes: object) -> StudyRequest:
    fields = {
        "recommendation_id": "r",
        "space": _SPACE,
        "objectives": [Objective(metric="output_tokens_per_s", direction="maximize")],
        "max_trials": 12,
    }
    return StudyRequest(**fields | changes)  # type: ignore[arg-type]  # fields by name


def _truth(config: EngineConfig) -> dict[str, float]:
    """Return figures of a machine that is best near 128 sequences and 4096 tokens."""
    seqs = config.max_num_seqs or _EFFECTIVE.max_num_seqs or 0
    tokens = config.max_num_batched_tokens or _EFFECTIVE.max_num_batched_tokens or 0
    rate = 1000 * math.exp(-(math.log(seqs / 128) ** 2)) - 20 * abs(math.log2(tokens / 4096))
    return {_RATE: rate, "tpot_ms_p95": 10 + seqs / 8, "ttft_ms_p95": 4e5 / rate}


def _silent(_: EngineConfig) -> Prior | None:
    return None


def _search(
    request: StudyRequest,
    trials: list[StudyTrial] | None = None,
    predict: Callable[[EngineConfig], Prior | None] = _silent,
) -> StudySearch:
    return StudySearch(
        request,
        recommended=_RECOMMENDED,
        effective=_EFFECTIVE,
        slo=_SLO,
        predict=predict,
        trials=trials or [],
    )


def _measured(candidate: Candidate) -> StudyTrial:
    figures = _truth(candidate.config)
    missed = violations_of(figures, _SLO)
    return StudyTrial(
        number=candidate.number,
        origin=candidate.origin,
        state="pruned" if candidate.skip else "complete",
        reason=candidate.skip,
        parameters=candidate.parameters,
        config=candidate.config,
        predicted=candidate.predicted,
        measured={} if candidate.skip else figures,
        meets=None if candidate.skip else not missed,
        violations={} if candidate.skip else missed,
    )


def _run(
    search: StudySearch,
    measure: Callable[[Candidate], StudyTrial] = _measured,
    *,
    most: int = 1000,
) -> list[StudyTrial]:
    for _ in range(most):
        candidate = search.ask()
        if candidate is None:
            break
        search.tell(measure(candidate))
    return search.trials


def test_a_study_finds_a_better_configuration_than_the_defaults() -> None:
    """A dozen trials beat the first advice, and vLLM's defaults, which miss the target."""
    trials = _run(_search(_request()))

    best = next(t for t in trials if t.number == best_trial(trials, _request().objectives))
    baseline, advised = trials[0], trials[1]
    assert [t.origin for t in trials[:2]] == ["baseline", "recommended"]
    assert len(trials) == 12
    assert baseline.meets is False
    assert best.meets
    assert best.measured[_RATE] > advised.measured[_RATE]
    assert best.measured[_RATE] > 0.95 * _truth(EngineConfig(max_num_seqs=128))[_RATE]


@pytest.mark.parametrize("interrupted_after", [0, 1, 3, 7, 11])
def test_an_interrupted_study_goes_on_as_if_nothing_had_happened(interrupted_after: int) -> None:
    """The trials that are stored are all it needs: the same ones follow."""
    whole = _run(_search(_request()))

    first = _run(_search(_request()), most=interrupted_after)
    resumed = _run(_search(_request(), list(first)))

    assert [t.config for t in resumed] == [t.config for t in whole]


def test_a_failed_trial_keeps_its_reason_and_is_not_tried_again() -> None:
    """What did not start counts, is avoided, and never ends the study."""

    def measure(candidate: Candidate) -> StudyTrial:
        trial = _measured(candidate)
        if (candidate.config.max_num_seqs or 0) > 200:
            trial = msgspec.structs.replace(
                trial, state="failed", reason="out of memory", measured={}, meets=None
            )
        return trial

    trials = _run(_search(_request()), measure)

    failed = [t for t in trials if t.state == "failed"]
    assert all(t.reason == "out of memory" for t in failed)
    assert len({msgspec.json.encode(t.config) for t in trials}) == len(trials) == 12
    assert best_trial(trials, _request().objectives) is not None


def test_the_model_seeds_the_search() -> None:
    """What the analytic model expects most of is tried before anything is guessed."""

    def predict(config: EngineConfig) -> Prior:
        figures = _truth(config)
        at_best = {name: value * (1.3 if name == _RATE else 0.7) for name, value in figures.items()}
        return Prior(fits=True, reason=None, figures=figures, at_best=at_best)

    trials = _run(_search(_request(), predict=predict), most=5)

    seeds = [t for t in trials if t.origin == "prior"]
    assert len(seeds) == 3
    assert max(t.measured[_RATE] for t in seeds) > 800


def test_what_cannot_start_or_win_is_not_measured() -> None:
    """The model prunes with a reason, and what it prunes takes nothing from the budget."""

    def predict(config: EngineConfig) -> Prior:
        figures = _truth(config)
        at_best = {**figures, _RATE: figures[_RATE] * 1.05}
        fits = (config.max_num_seqs or 0) < 300
        return Prior(
            fits=fits, reason=None if fits else "no room", figures=figures, at_best=at_best
        )

    trials = _run(_search(_request(max_trials=10), predict=predict))

    pruned = [t for t in trials if t.state == "pruned"]
    assert pruned
    assert all(t.reason and not t.measured for t in pruned)
    assert all("no room" in (t.reason or "") for t in pruned if (t.config.max_num_seqs or 0) >= 300)
    assert len(trials) - len(pruned) <= 10


def test_a_small_space_is_tried_whole_and_once() -> None:
    """When every point is known the study ends, whatever is left of the budget."""
    space = {"max_num_batched_tokens": Choices(values=[2048, 4096])}

    trials = _run(_search(_request(space=space, max_trials=50)))

    assert len(trials) <= 4
    assert {t.config.max_num_batched_tokens for t in trials} >= {2048, 4096}
    assert len({msgspec.json.encode(t.config) for t in trials}) == len(trials)


def test_several_objectives_give_a_front() -> None:
    """No trial of the front beats another in everything."""
    objectives = [
        Objective(metric="output_tokens_per_s", direction="maximize"),
        Objective(metric="tpot_ms_p95", direction="minimize"),
    ]
    request = _request(objectives=objectives, max_trials=15)

    trials = _run(_search(request))
    front = [t for t in trials if t.number in pareto_front(trials, objectives)]

    assert len(front) >= 2
    for one in front:
        for other in front:
            better = (
                one.measured[_RATE] > other.measured[_RATE],
                one.measured["tpot_ms_p95"] < other.measured["tpot_ms_p95"],
            )
            assert one is other or better != (True, True)


def test_the_same_trials_suggest_the_same_point() -> None:
    """The search depends on nothing but its trials and its seed."""
    trials = _run(_search(_request()), most=6)

    assert suggest(_request(), trials) == suggest(_request(), list(trials))
    assert suggest(_request(seed=1), trials) != suggest(_request(seed=2), trials)


def test_a_model_that_expects_too_little_stops_no_search() -> None:
    """Half of what is measured is expected, and the advice beats every band: better is found."""

    def pessimist(config: EngineConfig) -> Prior:
        figures = {_RATE: _truth(config)[_RATE] / 2}
        return Prior(fits=True, reason=None, figures=figures, at_best={_RATE: 1.2 * figures[_RATE]})

    advised = _truth(_RECOMMENDED)[_RATE]
    space = {"max_num_seqs": Choices(values=[72, 80, 96])}
    trials = _run(_search(_request(space=space, max_trials=5), predict=pessimist))

    assert all(1.2 * t.predicted[_RATE] < advised for t in trials)
    tried = {t.config.max_num_seqs for t in trials if t.state == "complete"}
    assert {80, 96} <= tried
