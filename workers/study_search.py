"""Which configuration a study tries next: ask and tell, whoever measures.

The state is the list of trials alone, so that a study goes on after any interruption. First come
vLLM's defaults and the recommendation, then what the analytic model expects most of; after that a
tree-structured Parzen estimator (Optuna's TPE) with the targets as constraints.
"""

import warnings
from collections.abc import Mapping, Sequence

import msgspec
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState, create_trial

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.slo import Slo
from api_schemas.study import (
    Choices,
    Dimension,
    IntegerRange,
    NumberRange,
    StudyRequest,
    StudyTrial,
    TrialOrigin,
)
from service.tuning.studies.outcome import values_of
from service.tuning.studies.prior import Predict, hopeless, promising
from service.tuning.studies.space import Parameters, configuration, projected, scan, size_of

_PRIOR_TRIALS = 3
_PRIOR_POINTS = 64
"""Points of the space that the analytic model is asked about before the first trial."""
_NEW_POINT_TRIES = 20
_FAILED = 1.0
"""Violation of a trial that did not run."""
_SKIPPED_PER_TRIAL = 5
"""Pruned configurations per trial after which the search ends."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure next."""

    number: int
    origin: TrialOrigin
    parameters: Parameters
    config: EngineConfig
    skip: str | None
    """Why it needs no measurement."""
    predicted: dict[str, float]


class StudySearch:
    """The search of one study; told of every trial, it says what comes next."""

    def __init__(
        self,
        request: StudyRequest,
        *,
        recommended: EngineConfig,
        effective: EngineConfig,
        slo: Slo,
        predict: Predict,
        trials: Sequence[StudyTrial] = (),
    ) -> None:
        """Go on after `trials`.

        Args:
            request: Space, objectives, budget and seed.
            recommended: The settings of the recommendation.
            effective: The same with the settings of the space left to vLLM, defaults filled in.
            slo: The targets, taken as constraints.
            predict: The analytic model.
            trials: What is known already.
        """
        self._request = request
        self._recommended = recommended
        self._base = _without(recommended, request.space)
        self._effective = effective
        self._slo = slo
        self._predict = predict
        self.trials = list(trials)
        self._seeds: list[tuple[TrialOrigin, Parameters, EngineConfig]] | None = None

    @property
    def measured(self) -> int:
        """How many trials took or are taking time on hardware."""
        return sum(trial.state != "pruned" for trial in self.trials)

    def ask(self) -> Candidate | None:
        """Return the next candidate; None when the budget or the space is used up."""
        skipped = len(self.trials) - self.measured
        limit = self._request.max_trials
        if self.measured >= limit or skipped >= limit * _SKIPPED_PER_TRIAL:
            return None
        return self._next_seed() or self._next_point()

    def tell(self, trial: StudyTrial) -> None:
        """Learn how a trial went, in place of what was known of it."""
        self.trials = [known for known in self.trials if known.number != trial.number]
        self.trials.append(trial)

    def _next_seed(self) -> Candidate | None:
        if self._seeds is None:
            self._seeds = self._all_seeds()
        known = {_mark(trial.config) for trial in self.trials}
        for origin, parameters, config in self._seeds:
            if _mark(config) not in known:
                return self._candidate(origin, parameters, config, may_skip=origin == "prior")
        return None

    def _all_seeds(self) -> list[tuple[TrialOrigin, Parameters, EngineConfig]]:
        space = self._request.space
        defaults = projected(self._base, space, otherwise=self._effective)
        own = projected(self._recommended, space, otherwise=self._effective)
        points = scan(space, seed=self._request.seed)
        expected = promising(
            points[:: max(1, len(points) // _PRIOR_POINTS)],
            base=self._base,
            predict=self._predict,
            objectives=self._request.objectives,
            slo=self._slo,
            number=_PRIOR_TRIALS,
        )
        return [
            ("baseline", defaults, self._base),
            ("recommended", own, self._recommended),
            *(("prior", point, configuration(self._base, point)) for point in expected),
        ]

    def _next_point(self) -> Candidate | None:
        known = {_mark(trial.config) for trial in self.trials}
        if len(known) >= size_of(self._request.space) + len(self._seeds or ()):
            return None
        for attempt in range(_NEW_POINT_TRIES):
            parameters = suggest(self._request, self.trials, attempt=attempt)
            config = configuration(self._base, parameters)
            if _mark(config) not in known:
                return self._candidate("search", parameters, config, may_skip=True)
        left = (
            (point, configuration(self._base, point))
            for point in scan(self._request.space, seed=self._request.seed)
        )
        unseen = next(((p, c) for p, c in left if _mark(c) not in known), None)
        return None if unseen is None else self._candidate("search", *unseen, may_skip=True)

    def _candidate(
        self, origin: TrialOrigin, parameters: Parameters, config: EngineConfig, *, may_skip: bool
    ) -> Candidate:
        prior = self._predict(config)
        skip = hopeless(
            prior, trials=self.trials, objectives=self._request.objectives, slo=self._slo
        )
        return Candidate(
            number=1 + max((trial.number for trial in self.trials), default=-1),
            origin=origin,
            parameters=parameters,
            config=config,
            skip=skip if may_skip else None,
            predicted=prior.figures if prior is not None else {},
        )


def suggest(request: StudyRequest, trials: Sequence[StudyTrial], *, attempt: int = 0) -> Parameters:
    """Return the point that TPE proposes after these trials; the same trials, the same point."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study = optuna.create_study(
            directions=[objective.direction for objective in request.objectives],
            sampler=optuna.samplers.TPESampler(
                seed=request.seed + len(trials) * _NEW_POINT_TRIES + attempt,
                n_startup_trials=2,
                multivariate=True,
            ),
        )
        distributions = {name: _distribution(dim) for name, dim in request.space.items()}
        worst = _worst(request, trials)
        for trial in trials:
            told = _told(trial, request, distributions, worst=worst)
            if told is not None:
                study.add_trial(told)
        asked = study.ask(distributions)
    return {name: _plain(request.space[name], value) for name, value in asked.params.items()}


def _told(
    trial: StudyTrial,
    request: StudyRequest,
    distributions: Mapping[str, BaseDistribution],
    *,
    worst: list[float] | None,
) -> FrozenTrial | None:
    """Return a trial in Optuna's words; None for one that says nothing yet."""
    figures = trial.measured if trial.state == "complete" else trial.predicted
    values = values_of(figures, request.objectives) or worst
    if trial.state == "running" or values is None:
        return None
    missed = sum(trial.violations.values())
    if trial.state in {"failed", "pruned"}:
        missed += _FAILED
    return create_trial(
        state=TrialState.COMPLETE,
        params={
            name: _optuna_value(request.space[name], value)
            for name, value in trial.parameters.items()
        },
        distributions=dict(distributions),
        values=values,
        constraints={"targets": missed if missed > 0 else -1.0},
    )


def _worst(request: StudyRequest, trials: Sequence[StudyTrial]) -> list[float] | None:
    """Return the worst measured value of each objective, for trials of which nothing is known."""
    known = [values_of(t.measured, request.objectives) for t in trials if t.state == "complete"]
    rows = [row for row in known if row is not None]
    if not rows:
        return None
    return [
        (max if objective.direction == "minimize" else min)(column)
        for objective, column in zip(request.objectives, zip(*rows, strict=True), strict=True)
    ]


def _distribution(dimension: Dimension) -> BaseDistribution:
    match dimension:
        case Choices():
            return CategoricalDistribution(range(len(dimension.values)))
        case IntegerRange():
            steps = (dimension.high - dimension.low) // dimension.step
            high = dimension.low + steps * dimension.step
            if dimension.log:
                return IntDistribution(dimension.low, high, log=True)
            return IntDistribution(dimension.low, high, step=dimension.step)
        case NumberRange():
            return FloatDistribution(dimension.low, dimension.high)


def _optuna_value(dimension: Dimension, value: Json) -> Json:
    return dimension.values.index(value) if isinstance(dimension, Choices) else value


def _plain(dimension: Dimension, value: Json) -> Json:
    """Return what Optuna proposed as the setting has it."""
    if isinstance(dimension, Choices):
        return dimension.values[int(value)]
    if isinstance(dimension, IntegerRange):
        steps = round((int(value) - dimension.low) / dimension.step)
        return min(dimension.low + steps * dimension.step, dimension.high)
    return round(float(value), 6)


def _without(config: EngineConfig, space: Mapping[str, Dimension]) -> EngineConfig:
    """Return the settings with those of the space left to vLLM."""
    kept = {name: v for name, v in msgspec.to_builtins(config).items() if name not in space}
    return msgspec.convert(kept, EngineConfig)


def _mark(config: EngineConfig) -> bytes:
    return msgspec.json.encode(config)
