"""Fit the latency coefficients to published measurements, judged on groups left out.

Usage: python benchmarks/fit_latency.py [--folds N] [--write] [--predictions FILE]

Every coefficient is a factor with a prior (`service.tuning.latency.priors`). The logarithm of each
measured figure is compared with the prediction, with a random offset per group and metric, so
that a large campaign does not outvote small ones. Gauss-Newton with Student-t weights.
"""

import argparse
import hashlib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
from latency_cases import CASES, METRICS, Case, load_cases, schedule_of
from numpy.typing import NDArray
from scipy import sparse

from service.tuning.errors import TuningError
from service.tuning.latency import price
from service.tuning.latency.coefficients import Coefficients, bundled_coefficients
from service.tuning.latency.priors import prior_of
from service.tuning.performance import predict_performance
from service.tuning.simulation.compiled import compiled
from service.tuning.simulation.kernel import step_shares

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NOISE = {"tpot_ms": 0.08, "ttft_ms": 0.20, "output_tokens_per_s": 0.06}
GROUP_WIDTH = {"tpot_ms": 0.09, "ttft_ms": 0.12, "output_tokens_per_s": 0.04}
STUDENT = 4.0
GROUP_STUDENT = 4.0
SPECIFIC_SCALE = 0.4
"""Share of its prior width that a factor of a class keeps: chosen, like the widths of the
harnesses, for the smallest errors on groups left out."""
_LONGEST_STEP, _SETTLED, _WEIGHT_ROUNDS = 0.5, 2e-3, 12
FOLD_ROUNDS = 1
NUISANCE_WIDTHS = {"host~": 0.03, "cli.~": 0.05}
"""Speed of a harness's host (fixed costs) and of its client (front end): no property of a
configuration, so they take up what belongs to the harness and are left out afterwards."""
HOST_COMPONENTS = frozenset({price.LAYER, price.EXPERT_LAYER, price.STEP, price.ROW, price.LAUNCH})
DATA = Path(__file__).parent.parent / "service" / "tuning" / "latency" / "data"


@compiled
def price_events(  # noqa: PLR0917 - compiled code takes no keywords
    prices: Floats,
    events: Floats,
    weights: Floats,
    starts: Ints,
    ends: Ints,
    target_starts: Ints,
    shares: Floats,
    out: Floats,
) -> None:
    """Fill `out[target, component]` with the weighted seconds of each component.

    `shares` is scratch.
    """
    for case in range(starts.shape[0]):
        offset = target_starts[case]
        for event in range(starts[case], ends[case]):
            step_shares(prices[case], events[event, 1:], shares)
            steps = events[event, 0]
            for target in range(target_starts[case + 1] - offset):
                weight = weights[event, target] * steps
                if weight != 0.0:
                    for component in range(price.NUM_PRICES):
                        out[offset + target, component] += weight * shares[component]


class Problem:
    """All cases with their schedules as flat arrays."""

    def __init__(self, cases: list[Case], coefficients: Coefficients) -> None:
        self.cases, self.schedules = [], []
        for case in cases:
            schedule = schedule_of(case, coefficients) if case.targets else None
            if schedule is not None:
                self.cases.append(case)
                self.schedules.append(schedule)
        self._flatten()
        self._index_terms()

    def _flatten(self) -> None:
        lengths = [len(s.events) for s in self.schedules]
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        self.events = np.concatenate([s.events for s in self.schedules])
        widest = max(len(c.targets) for c in self.cases)
        self.weights = np.zeros((len(self.events), widest))
        for start, end, schedule in zip(self.starts, self.ends, self.schedules, strict=True):
            self.weights[start:end, : len(schedule.weights)] = schedule.weights.T
        counts = [len(c.targets) for c in self.cases]
        self.target_starts = np.concatenate([[0], np.cumsum(counts)])
        targets = [t for c in self.cases for t in c.targets]
        self.target_case = np.repeat(np.arange(len(self.cases)), counts)
        self.metric = np.array([METRICS.index(t.metric) for t in targets])
        self.measured = np.log([t.measured for t in targets])
        self.is_rate = self.metric == METRICS.index("output_tokens_per_s")
        self.tokens = np.array([self.schedules[c].tokens for c in self.target_case])
        self.constants = np.concatenate([s.constants for s in self.schedules])
        self.noise = np.array([NOISE[t.metric] for t in targets])
        groups = [(c.group, t.metric) for c in self.cases for t in c.targets]
        names = sorted(set(groups))
        self.group = np.array([names.index(g) for g in groups])
        self.group_width = np.array([GROUP_WIDTH[m] for _, m in names])
        self.membership = sparse.csr_array(
            (np.ones(len(targets)), (self.group, np.arange(len(targets))))
        )

    def _index_terms(self) -> None:
        names = sorted({f for c in self.cases for f in (*_factors(c), *_nuisances(c))})
        self.names = names
        index = {name: i for i, name in enumerate(names)}
        rows, components, seconds, uses = [], [], [], []
        for number, case in enumerate(self.cases):
            for term in case.prepared.work.terms:
                rows.append(number)
                components.append(term.component)
                seconds.append(max(term.seconds, 1e-30))
                known = [index[f] for f in term.factors]
                if term.component in HOST_COMPONENTS:
                    known.append(index[_nuisances(case)[0]])
                uses.append(known)
        self.term_case, self.term_component = np.array(rows), np.array(components)
        self.term_seconds = np.log(seconds)
        self.term_uses = _counts(uses, len(names))
        self.prior = np.log([prior_of(n).value for n in names])
        self.width = np.array([_width(n) for n in names])
        self.is_nuisance = np.array([n[:5] in NUISANCE_WIDTHS for n in names])
        self.front_uses = np.zeros((len(self.cases), 4, len(names)))
        for number, case in enumerate(self.cases):
            for kind, factors in enumerate(_front_factors(case)):
                for factor in (*factors, _nuisances(case)[1]):
                    self.front_uses[number, kind, index[factor]] += 1
        self.shape = np.stack([c.prepared.price for c in self.cases])
        self.pairs = _pairs(self.term_case, self.target_case)

    def evaluate(self, x: Floats) -> tuple[Floats, Floats]:
        """Return log predictions of every figure and their derivatives."""
        values = np.exp(self.term_seconds + self.term_uses @ (self.prior + x))
        prices = self.shape.copy()
        prices[:, : price.NUM_PRICES] = 0.0
        np.add.at(prices, (self.term_case, self.term_component), values)
        seconds = np.zeros((len(self.measured), price.NUM_PRICES))
        price_events(
            prices,
            self.events,
            self.weights,
            self.starts,
            self.ends,
            self.target_starts,
            np.empty(price.NUM_PRICES),
            seconds,
        )
        front = self.constants * np.exp(
            np.einsum("ckn,n->ck", self.front_uses, x - self.x0)[self.target_case]
        )
        total = seconds.sum(axis=1) + front.sum(axis=1)
        part = values / np.maximum(prices[self.term_case, self.term_component], 1e-300)
        targets, terms = self.pairs
        share = part[terms] * seconds[targets, self.term_component[terms]]
        shares = sparse.csr_array((share, (targets, terms)), shape=(len(total), len(values)))
        jacobian = (shares @ self.term_uses).toarray()
        for number, uses in enumerate(self.front_uses):
            mine = slice(self.target_starts[number], self.target_starts[number + 1])
            jacobian[mine] += front[mine] @ uses
        jacobian /= total[:, None]
        log_total = np.log(total)
        predicted = np.where(self.is_rate, np.log(self.tokens) - log_total, log_total)
        jacobian[self.is_rate] *= -1
        return predicted, jacobian

    def fit(self, start: Floats, chosen_cases: Floats, rounds: int = 8) -> Floats:
        """Return the coefficients (log over prior) that fit the chosen cases.

        Each round follows the figures to first order, until the weights settle.
        """
        x = start.copy()
        for _ in range(rounds):
            moved = self.follow(x, self.evaluate(x), chosen_cases)
            step = np.clip(moved - x, -_LONGEST_STEP, _LONGEST_STEP)
            x += step
            if np.abs(step).max() < _SETTLED:
                break
        return x

    def follow(self, x: Floats, at: tuple[Floats, Floats], chosen_cases: Floats) -> Floats:
        """Return where the fit goes when figures move as their derivatives at `x` say."""
        chosen = chosen_cases[self.target_case]
        predicted, jacobian = at
        moved = x.copy()
        offsets = np.zeros(len(self.group_width))
        for _ in range(_WEIGHT_ROUNDS):
            error = predicted + jacobian @ (moved - x) - self.measured
            scaled = (error - offsets[self.group]) / self.noise
            weight = np.where(chosen, 1 / (1 + scaled**2 / STUDENT) / self.noise**2, 0.0)
            surprise = (offsets / self.group_width) ** 2
            trust = (GROUP_STUDENT + 1) / (GROUP_STUDENT + surprise) / self.group_width**2
            step, offsets = self._solve(moved, error, jacobian, weight, trust)
            moved += step
            if np.abs(step).max() < _SETTLED:
                break
        return moved

    def _solve(
        self, x: Floats, residual: Floats, jacobian: Floats, weight: Floats, trust: Floats
    ) -> tuple[Floats, Floats]:
        """One Gauss-Newton step; group offsets are eliminated from the normal equations."""
        number = len(self.group_width)
        diagonal = np.bincount(self.group, weight, number) + trust
        weighted = jacobian * weight[:, None]
        mixed = self.membership @ weighted
        right_group = np.bincount(self.group, weight * residual, number)
        normal = jacobian.T @ weighted + np.diag(1 / self.width**2)
        normal -= mixed.T @ (mixed / diagonal[:, None])
        right = -(weighted.T @ residual) - x / self.width**2
        right += mixed.T @ (right_group / diagonal)
        step = np.linalg.solve(normal, right)
        offsets = (right_group + mixed @ step) / diagonal
        return step, offsets

    def coefficients(self, x: Floats, version: str) -> Coefficients:
        """Return the coefficients as the service reads them."""
        values = np.exp(self.prior + x)
        return Coefficients(
            version=version,
            factors={
                name: float(value)
                for name, value, skip in zip(self.names, values, self.is_nuisance, strict=True)
                if not skip
            },
        )


def _counts(uses: list[list[int]], number: int) -> sparse.csr_array:
    """Return how often each row uses each factor."""
    rows = np.repeat(np.arange(len(uses)), [len(used) for used in uses])
    columns = np.concatenate(uses)
    counts = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(uses), number))
    return counts.tocsr()


def _pairs(term_case: Ints, target_case: Ints) -> tuple[Ints, Ints]:
    """Return every figure with every term of its case."""
    starts = np.searchsorted(term_case, target_case)
    ends = np.searchsorted(term_case, target_case, side="right")
    targets = np.repeat(np.arange(len(target_case)), ends - starts)
    terms = np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)])
    return targets, terms


def _width(name: str) -> float:
    """Return the width that a factor's prior has in the fit."""
    nuisance = NUISANCE_WIDTHS.get(name[:5])
    if nuisance is not None:
        return nuisance
    is_specific = "." in name or "@" in name
    return prior_of(name).width * (SPECIFIC_SCALE if is_specific else 1.0)


def _nuisances(case: Case) -> tuple[str, str]:
    """Return the host and the client of a measurement: fitted, and one for everybody else."""
    harness = case.row["source"]["harness"]
    return f"host~{harness}", f"cli.~{harness}"


def _factors(case: Case) -> Iterator[str]:
    work = case.prepared.work
    for term in work.terms:
        yield from term.factors
    for factors in _front_factors(case):
        yield from factors


def _front_factors(case: Case) -> tuple[tuple[str, ...], ...]:
    """Return the factors of each front-end constant, in the order of a schedule's constants."""
    work = case.prepared.work
    is_open = case.traffic.offered_requests_per_s is not None
    burst = work.open_burst if is_open else work.burst
    return work.front_end, work.front_end_token, burst, work.start


def fit_all(cases: list[Case], relinearize: int = 3) -> tuple["Problem", Floats]:
    """Return the fitted problem: schedules are simulated anew at each round's coefficients.

    The fit goes on from the coefficients that ship, where they have a factor; else from its prior.
    """
    coefficients, x = bundled_coefficients(), None
    for _ in range(relinearize):
        problem = Problem(cases, coefficients)
        if x is None:
            at = [coefficients.factors.get(name, prior_of(name).value) for name in problem.names]
            x = np.log(at) - problem.prior
        problem.x0 = x.copy()
        x = problem.fit(x, np.ones(len(problem.cases), dtype=bool))
        coefficients = problem.coefficients(x, "fit")
    return problem, x


def cross_validate(
    problem: Problem, x: Floats, folds: int, key: Callable[[Case], str] = lambda case: case.group
) -> dict[str, Coefficients]:
    """Return the coefficients of each fold, by what was left out."""
    names = sorted({key(c) for c in problem.cases})
    order = np.random.default_rng(0).permutation(len(names))
    parts = np.array_split(order, min(folds, len(names)))
    results = {}
    at_all = problem.evaluate(x)
    for part in parts:
        left_out = {names[i] for i in part}
        chosen = np.array([key(c) not in left_out for c in problem.cases])
        fold = x + np.clip(problem.follow(x, at_all, chosen) - x, -_LONGEST_STEP, _LONGEST_STEP)
        fold = problem.fit(fold, chosen, rounds=FOLD_ROUNDS)
        coefficients = problem.coefficients(fold, "fold")
        results |= dict.fromkeys(left_out, coefficients)
    return results


def answers(cases: list[Case], coefficients_of: Callable[[Case], Coefficients]) -> list[dict]:
    """Return the answers of the service with the coefficients given for each case."""
    rows = []
    for case in cases:
        try:
            performance = predict_performance(
                **case.stated, workload=case.workload, coefficients=coefficients_of(case)
            )
        except TuningError:
            performance = None
        rows.append({"id": case.id, "performance": msgspec.to_builtins(performance)})
    return rows


def fingerprint() -> str:
    """Return what identifies the measurements."""
    return hashlib.sha256(CASES.read_bytes()).hexdigest()[:16]


def write_coefficients(problem: Problem, x: Floats) -> None:
    """Write the coefficients with their priors and how many measurements touch each."""
    touched = defaultdict(int)
    for case in problem.cases:
        for name in set(_factors(case)):
            touched[name] += 1
    factors = {
        name: {
            "value": round(float(math.exp(p + v)), 10),
            "prior": prior_of(name).value,
            "width": round(_width(name), 4),
            "cases": touched[name],
        }
        for name, p, v in zip(problem.names, problem.prior, x, strict=True)
        if name in touched
    }
    body = {
        "version": f"{datetime.now(tz=UTC):%Y.%m.%d}-{fingerprint()[:6]}",
        "about": "Factors on data-sheet times; see service/tuning/latency/priors.py for units.",
        "source": "benchmarks/fit_latency.py on benchmarks/data/performance_cases.jsonl",
        "data_fingerprint": fingerprint(),
        "cases": len(problem.cases),
        "factors": factors,
    }
    (DATA / "coefficients.json").write_text(json.dumps(body, indent=1) + "\n", "utf-8")


def main() -> int:
    """Fit, cross-validate, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="write the coefficients")
    parser.add_argument("--predictions", type=Path, help="write held-out answers here")
    parser.add_argument("--in-sample", type=Path, help="write in-sample answers here")
    args = parser.parse_args()
    cases, refused = load_cases()
    print(f"{len(cases)} cases, {len(refused)} cannot be predicted", file=sys.stderr)
    problem, x = fit_all(cases)
    if args.write:
        write_coefficients(problem, x)
    if args.in_sample:
        fitted = problem.coefficients(x, "fit")
        _write(args.in_sample, answers(cases, lambda _: fitted))
    if args.predictions:
        folds = cross_validate(problem, x, args.folds)
        full = problem.coefficients(x, "fit")
        _write(args.predictions, answers(cases, lambda c: folds.get(c.group, full)))
    return 0


def _write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
