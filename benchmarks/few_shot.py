"""Print what a few measured points of a configuration do for its other rows.

Usage: python benchmarks/few_shot.py [--points 3] [--folds N]

The published measurements are grouped by configuration. Of each group a few points are chosen as a
user would (the smallest load first, then the farthest in load and lengths), and the others are
predicted without and with the calibration, under the service's own rule of when it is used. With
`--folds` the coefficients have not seen the group (cross-validation, some minutes); without, they
are those that ship. One harness does not state the token budget of its runs, on which TTFT hangs;
its rows are counted in a second table only.
"""

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from latency_cases import Case, load_cases

from service.tuning.calibrations.directions import NUM_DIRECTIONS
from service.tuning.calibrations.fit import (
    Line,
    MeasuredPoint,
    fit_moves,
    line_of,
    residuals,
)
from service.tuning.calibrations.judge import is_worth_using, weigh
from service.tuning.calibrations.key import configuration_key
from service.tuning.calibrations.schedule import Figure
from service.tuning.calibrations.spread import spread_points
from service.tuning.latency.coefficients import Coefficients, bundled_coefficients

METRICS = {"tpot_ms": "tpot", "ttft_ms": "ttft", "output_tokens_per_s": "output_tokens_per_s"}
TARGETS = {"tpot": 3.5, "ttft": 9.0, "output_tokens_per_s": 6.0}
FEWEST_ROWS = 5
UNSTATED_BUDGET = "nvidia-gap-analysis"


def point_of(case: Case) -> MeasuredPoint:
    """Return a case as a measured point."""
    figures = tuple(
        Figure(
            metric=METRICS[t.metric],
            statistic="p50" if t.statistic == "p50" else "mean",
            value=t.measured,
        )
        for t in case.targets
    )
    return MeasuredPoint(
        id=case.id, prediction=case.prepared, traffic=case.traffic, figures=figures
    )


def groups_of(cases: list[Case]) -> dict[str, list[Case]]:
    """Return the cases by configuration and harness, those with enough rows."""
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if not case.targets:
            continue
        key = configuration_key(
            spec=case.stated["spec"],
            node=case.stated["node"],
            config=case.stated["config"],
            version=case.stated["version"],
        )
        groups[f"{case.row['source']['harness']}|{key.text}"].append(case)
    return {name: group for name, group in groups.items() if len(group) >= FEWEST_ROWS}


def judged(lines: Sequence[Line], chosen: Sequence[int], coefficients: Coefficients) -> list[tuple]:
    """Return metric, whether the fit is used, and log errors before and after of the other rows."""
    taught = [lines[index] for index in chosen]
    weights, left_out = weigh(taught)
    is_used = is_worth_using(left_out)
    moves = fit_moves(taught, coefficients=coefficients, weights=weights)
    rows = []
    for index, line in enumerate(lines):
        if index in chosen:
            continue
        anew = line_of(line.point, coefficients=coefficients, moves=moves) or line
        before, after = residuals(line, np.zeros(NUM_DIRECTIONS)), residuals(anew, moves)
        for figure, b, a in zip(line.point.figures, before, after, strict=True):
            trusted = figure.metric in left_out and left_out[figure.metric].is_better
            rows.append((figure.metric, is_used, trusted, float(b), float(a)))
    return rows


def table(rows: list[tuple], groups: int) -> None:
    """Print medians, 90th percentiles and the factor that covers 80 %."""
    print(f"{groups} configurations; median / 90th percentile of the absolute error")
    for metric, target in TARGETS.items():
        for name, used_only in (("all", False), ("used", True)):
            some = [r for r in rows if r[1] == metric and (r[2] or not used_only)]
            if some:
                print(f"{metric:20s} {name:5s} {_row(some, target)}")


def _row(some: list[tuple], target: float) -> str:
    policy = np.array([r[5] if r[2] else r[4] for r in some])
    trusted = [abs(r[5]) for r in some if r[2] and r[3]]
    narrow = np.quantile(trusted, 0.8) if trusted else math.nan
    return (
        f"{len(some):4d} rows of {len({r[0] for r in some}):3d} groups: "
        f"{_percent([r[4] for r in some])} -> {_percent(policy)} (target {target}); "
        f"80 % factor {math.exp(np.quantile(np.abs(policy), 0.8)):.3f}, "
        f"where trusted {math.exp(narrow):.3f} ({len(trusted)} rows)"
    )


def _percent(residuals: Sequence[float]) -> str:
    errors = np.abs(np.expm1(residuals)) * 100
    return f"{np.median(errors):5.1f} / {np.quantile(errors, 0.9):3.0f} %"


def main() -> int:
    """Choose, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=3)
    parser.add_argument("--folds", type=int, default=0)
    args = parser.parse_args()
    cases, _ = load_cases()
    unseen: dict[str, Coefficients] = {}
    if args.folds:
        from fit_latency import cross_validate, fit_all  # noqa: PLC0415 - takes minutes

        unseen = cross_validate(*fit_all(cases), args.folds)
    groups = groups_of(cases)
    rows = []
    for name, group in groups.items():
        coefficients = unseen.get(group[0].group, bundled_coefficients())
        found = (line_of(point_of(case), coefficients=coefficients) for case in group)
        lines = [line for line in found if line is not None]
        if len(lines) < FEWEST_ROWS:
            continue
        chosen = spread_points([line.point for line in lines], args.points)
        rows += [(name, *row) for row in judged(lines, chosen, coefficients)]
    stated = [row for row in rows if not row[0].startswith(UNSTATED_BUDGET)]
    table(stated, len({r[0] for r in stated}))
    print("with the runs whose token budget is not stated:")
    table(rows, len({r[0] for r in rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
