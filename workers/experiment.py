"""What every mode needs: starts, loads sized to the minutes that are left, and the prediction."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate
from api_schemas.validation import Comparison, Knee, Startup
from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    PoissonArrivals,
    Trace,
)
from workers.points import Measurement
from workers.run import Failed, Run
from workers.session import Session, started
from workers.statistics import requests_needed
from workers.subject import Subject
from workers.traffic import Load, make_load, mean_request_tokens, share_of

CLIENT_START_S = 15.0
"""What one run of the benchmark client costs beside its load (8 to 10 s of imports, vllm 0.32)."""
_USUAL_PERCENTILE = 0.95
_USABLE_SHARE = 0.7
_WAVES = 3
_FEWEST_REQUESTS = 8
_SHORTEST_LOAD_S = 5.0
"""A shorter load is mostly its own beginning and end."""


class Findings(msgspec.Struct, kw_only=True):
    """What a mode found out so far; what is there when time runs out still counts."""

    startup: Startup | None = None
    startup_prediction: Estimate | None = None
    judged: list[Measurement] = []
    """The measurements of the recommended setting under the asked load."""
    knee: Knee | None = None
    comparison: Comparison | None = None
    suggested_config: EngineConfig | None = None


class Experiment:
    """A run with its subject: the modes are functions over it."""

    def __init__(self, run: Run, subject: Subject, folder: Path) -> None:
        self.run = run
        self.subject = subject
        self.findings = Findings()
        self._folder = folder
        self._labels = 0

    @property
    def config(self) -> EngineConfig:
        """The recommended settings."""
        return self.subject.recommendation.config

    @property
    def arrivals(self) -> Arrivals:
        """The load of one replica."""
        try:
            return share_of(self.subject.workload.arrivals, replicas=self.subject.replicas)
        except ValueError as error:
            raise Failed("load", str(error)) from error

    @contextmanager
    def server(
        self, config: EngineConfig, *, planned: Estimate, progress: float
    ) -> Iterator[Session]:
        """Yield a ready server of a configuration whose plan (and pool) is known."""
        with started(
            self.run,
            self.subject,
            config,
            predicted=planned,
            folder=self._folder,
            progress=progress,
        ) as session:
            self.run.report("warming_up", progress + 0.05, to="warming_up")
            session.warm_up()
            yield session

    @contextmanager
    def recommended(self, *, progress: float = 0.1) -> Iterator[Session]:
        """Yield a ready server of the recommendation; its start-up facts are stored at once."""
        planned = self.subject.recommendation.estimate
        with self.server(self.config, planned=planned, progress=progress) as session:
            predicted = self.subject.predict(session.launch.config)
            facts = session.read_startup(predicted)
            self.findings.startup = facts
            self.findings.startup_prediction = predicted
            self.run.report("warming_up", progress + 0.1, startup=facts)
            yield session

    def measure(
        self,
        session: Session,
        arrivals: Arrivals,
        *,
        label: str,
        seconds: float,
        progress: float,
    ) -> Measurement:
        """Return what came of the workload with these arrivals, within about these seconds."""
        predicted = self.subject.predict(session.launch.config, arrivals=arrivals)
        load = self._load(session, arrivals, predicted=predicted, seconds=seconds)
        return self.offer(session, load, label=label, progress=progress)

    def offer(
        self,
        session: Session,
        load: Load,
        *,
        label: str,
        progress: float,
    ) -> Measurement:
        """Return what came of this very load, beside what is expected of it."""
        self._labels += 1
        name = f"{self._labels:02d}-{label}"
        self.run.report("measuring", progress, to="measuring")
        expect = partial(self.subject.predict_run, session.launch.config, load=load)
        return session.offer(load, label=name, predict=expect, folder=self._folder)

    def seed(self) -> int:
        """Return a seed that no trial of this run has used: equal prompts would hit the cache."""
        return 1000 * self.run.validation.attempt + self._labels

    def _load(
        self, session: Session, arrivals: Arrivals, *, predicted: Estimate | None, seconds: float
    ) -> Load:
        number = self._requests(arrivals, predicted=predicted, seconds=seconds)
        return make_load(
            self.subject.workload,
            arrivals,
            num_requests=number,
            seed=self.seed(),
            max_model_len=max_model_len(session, predicted),
        )

    def _requests(self, arrivals: Arrivals, *, predicted: Estimate | None, seconds: float) -> int:
        """Return enough requests for the percentiles that were asked for, if time allows."""
        if isinstance(arrivals, Trace):
            return len(arrivals.at_s)
        if isinstance(arrivals, BatchArrivals):
            return arrivals.num_requests
        asked = [
            target.percentile / 100
            for target in self.subject.slo.targets
            if isinstance(target.percentile, int)
        ]
        sure = needed = requests_needed(asked or [_USUAL_PERCENTILE])
        rate = expected_rate(arrivals, predicted)
        if isinstance(arrivals, ClosedLoop):
            needed = max(needed, _WAVES * arrivals.max_concurrency)
        if rate is not None:
            needed = max(needed, math.ceil(rate * _SHORTEST_LOAD_S))
        if isinstance(arrivals, ClosedLoop | PoissonArrivals | GammaArrivals):
            needed = arrivals.num_requests or needed
        if rate is None:
            return needed
        possible = max(int(rate * _USABLE_SHARE * (seconds - CLIENT_START_S)), _FEWEST_REQUESTS)
        if possible < sure:
            self.run.note(
                f"Not every load has the {sure} requests that bound its highest percentile: the "
                "minutes do not allow it."
            )
        return min(needed, possible)


def expected_rate(arrivals: Arrivals, predicted: Estimate | None) -> float | None:
    """Return the requests per second that a load comes to, if anything is known of it."""
    offered = getattr(arrivals, "requests_per_s", None)
    if isinstance(offered, float):
        return offered
    performance = predicted.performance if predicted else None
    return performance.requests_per_s if performance else None


def max_model_len(session: Session, predicted: Estimate | None) -> int:
    """Return the longest request that the server takes."""
    given = session.launch.config.max_model_len
    if isinstance(given, int) and given > 0:
        return given
    memory = predicted.memory if predicted else None
    return memory.max_model_len if memory else 2**31


def requests_that_fit(experiment: Experiment, facts: Startup) -> int:
    """Return how many mean requests the KV cache holds at once."""
    tokens = facts.kv_cache_tokens or 0
    return max(1, int(tokens / mean_request_tokens(experiment.subject.workload)))
