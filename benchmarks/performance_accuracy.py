"""Print and write how accurate latency predictions are on measurements the fit had not seen.

Usage: python benchmarks/performance_accuracy.py [--folds N] [--write] [--answers FILE]

Whole groups (harness, model, GPU) are left out of the fit and predicted as the service would from
their published request. The 80 % bands come from the same residuals; their coverage is measured on
groups that took no part in making them.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np
from fit_latency import DATA, Floats, Problem, answers, cross_validate, fingerprint, fit_all
from latency_cases import Case, load_cases

from service.tuning.latency.bands import BandTable, Regime, log_factors, regime_cell
from service.tuning.latency.coefficients import Coefficients
from service.tuning.performance import regime_of

METRICS = {"ttft_ms": "ttft", "tpot_ms": "tpot", "output_tokens_per_s": "output_tokens_per_s"}
TAIL = 0.12
"""Left outside on either side before hardware classes are widened: together about 80 % stay."""
CLASS_COVERAGE = 0.76
MIN_CELL_GROUPS = 8
UNKNOWN_WIDENING, UNMEASURED_WIDENING = 1.25, 1.5
MIN_KNOWN_CASES = 3


class Residual(msgspec.Struct):
    """One measured figure against its held-out prediction."""

    case: Case
    metric: str
    measured: float
    low: float
    """The lower of the predictions that may be meant (median, mean)."""
    high: float
    nearest: float
    regime: Regime
    counts_for_band: bool

    @property
    def error(self) -> float:
        """Relative error of the statistic that is meant."""
        return self.nearest / self.measured - 1


def residuals(cases: list[Case], rows: list[dict]) -> list[Residual]:
    """Return every measured figure with its prediction."""
    found = []
    for case, row in zip(cases, rows, strict=True):
        performance = row["performance"]
        if performance is None:
            continue
        regime = regime_of(case.prepared, workload=case.workload)
        for metric in METRICS:
            residual = _residual(case, metric, performance[metric], regime)
            if residual is not None:
                found.append(residual)
    return found


def _residual(
    case: Case, metric: str, offered: dict[str, float] | float, regime: Regime
) -> Residual | None:
    expected = case.row["expect"].get(metric)
    if expected is None:
        return None
    if not isinstance(expected, dict):
        return Residual(case, metric, expected, *[offered] * 3, regime=regime, counts_for_band=True)
    statistic = next((s for s in ("p50", "mean", "unspecified") if s in expected), None)
    if statistic is None:
        return None
    measured = float(expected[statistic])
    pair = sorted((offered["p50"], offered["mean"]))
    if metric == "tpot_ms":
        low = high = offered["p50"]
    else:
        low, high = pair
    wanted = pair if statistic == "unspecified" else [offered[statistic]]
    nearest = min(wanted, key=lambda value: abs(value - measured))
    return Residual(case, metric, measured, low, high, nearest, regime, statistic != "mean")


def band_table(rows: list[Residual], version: str) -> BandTable:
    """Return the bands that cover the middle 80 % of these residuals, group by group."""
    factors: dict[str, dict[str, tuple[float, float]]] = {}
    for metric, name in METRICS.items():
        of_metric = [r for r in rows if r.metric == metric and r.counts_for_band]
        cells = {"all": of_metric}
        for row in of_metric:
            cells.setdefault(regime_cell(row.regime), []).append(row)
        factors[name] = {
            cell: _quantiles(members)
            for cell, members in cells.items()
            if cell == "all" or len({r.case.group for r in members}) >= MIN_CELL_GROUPS
        }
    known: dict[str, int] = defaultdict(int)
    for case in {id(r.case): r.case for r in rows}.values():
        for class_name in case.prepared.work.classes:
            known[class_name] += 1
    table = BandTable(
        version=version,
        log_factors=factors,
        hardware_widening={name: {} for name in METRICS.values()},
        known_classes={k: n for k, n in sorted(known.items()) if n >= MIN_KNOWN_CASES},
        unknown_widening=1.0,
        unmeasured_widening=1.0,
    )
    widening = {name: _hardware_widening(rows, metric, table) for metric, name in METRICS.items()}
    return msgspec.structs.replace(
        table,
        hardware_widening=widening,
        unknown_widening=UNKNOWN_WIDENING,
        unmeasured_widening=UNMEASURED_WIDENING,
    )


def _quantiles(members: list[Residual]) -> tuple[float, float]:
    """Return the low and high quantiles, large groups weighing a little less per row."""
    sizes: dict[str, int] = defaultdict(int)
    for row in members:
        sizes[row.case.group] += 1
    weights = np.array([sizes[r.case.group] ** -0.15 for r in members])
    low = _weighted(np.array([math.log(r.measured / r.low) for r in members]), weights, TAIL)
    high = _weighted(np.array([math.log(r.measured / r.high) for r in members]), weights, 1 - TAIL)
    return round(min(low, -0.02), 4), round(max(high, 0.02), 4)


def _weighted(values: Floats, weights: Floats, fraction: float) -> float:
    order = np.argsort(values)
    share = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(fraction, share / weights.sum(), values[order]))


def _hardware_widening(rows: list[Residual], metric: str, table: BandTable) -> dict[str, float]:
    """Return by how much bands of a hardware class must widen to cover it, never narrowed."""
    classes: dict[str, list[Residual]] = defaultdict(list)
    for row in rows:
        if row.metric == metric and row.counts_for_band:
            classes[row.regime.hardware].append(row)
    result = {}
    for hardware, members in sorted(classes.items()):
        scales = np.arange(1.0, 4.01, 0.05)
        wanted = next(
            (s for s in scales if _coverage(members, table, float(s)) >= CLASS_COVERAGE), 4.0
        )
        result[hardware] = round(float(wanted), 2)
    return result


def _coverage(members: list[Residual], table: BandTable, scale: float = 1.0) -> float:
    return fmean(_is_inside(row, table, scale) for row in members)


def _is_inside(row: Residual, table: BandTable, scale: float = 1.0) -> bool:
    low, high = log_factors(METRICS[row.metric], row.regime, table=table)
    return row.low * math.exp(low * scale) <= row.measured <= row.high * math.exp(high * scale)


def held_out_coverage(rows: list[Residual], repeats: int = 20) -> dict[str, dict[str, float]]:
    """Return how often bands made from half the groups cover the other half."""
    groups = sorted({r.case.group for r in rows})
    hits: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    generator = np.random.default_rng(1)
    for _ in range(repeats):
        half = set(generator.choice(groups, len(groups) // 2, replace=False))
        table = band_table([r for r in rows if r.case.group in half], "half")
        for row in rows:
            if row.case.group not in half and row.counts_for_band:
                inside = _is_inside(row, table)
                hits[METRICS[row.metric]]["all"].append(inside)
                hits[METRICS[row.metric]][str(row.case.row["gpu_class"])].append(inside)
    return {
        metric: {name: round(fmean(v), 3) for name, v in sorted(by.items())}
        for metric, by in hits.items()
    }


def error_table(
    rows: list[Residual], key: Callable[[Case], str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the errors per metric and value of the key."""
    parts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        parts[METRICS[row.metric]][str(key(row.case))].append(row.error)
    return {
        metric: {name: _errors(values) for name, values in sorted(by.items())}
        for metric, by in parts.items()
    }


def _errors(signed: list[float]) -> dict[str, float]:
    sizes = np.abs(signed)
    return {
        "figures": len(signed),
        "median_ape": round(float(np.median(sizes)), 4),
        "p90_ape": round(float(np.quantile(sizes, 0.9)), 4),
        "signed_median": round(float(np.median(signed)), 4),
        "within_20_percent": round(float((sizes <= 0.2).mean()), 4),
    }


def peer_table(rows: list[Residual]) -> dict[str, dict[str, float]]:
    """Return our median error and aiconfigurator 0.12's where both answer."""
    result = {}
    for metric, name in METRICS.items():
        both = [
            (abs(r.error), abs(peer[metric] / r.measured - 1))
            for r in rows
            if r.metric == metric
            for peer in (r.case.row.get("peer", {}).get("aiconfigurator", {}),)
            if peer.get(metric)
        ]
        if both:
            ours, theirs = zip(*both, strict=True)
            result[name] = {
                "figures": len(both),
                "ours": round(float(np.median(ours)), 4),
                "aiconfigurator": round(float(np.median(theirs)), 4),
            }
    return result


SPLITS = {
    "left_out_group": lambda case: case.group,
    "left_out_gpu": lambda case: case.stated["node"].gpu.name,
    "left_out_model": lambda case: case.row["base_model"],
}


def split_residuals(
    cases: list[Case],
    problem: Problem,
    x: Floats,
    full: Coefficients,
    *,
    folds: int,
    key: Callable[[Case], str],
) -> tuple[list[dict], list[Residual]]:
    """Return answers and residuals with everything of the same key left out of the fit."""
    by_key = cross_validate(problem, x, folds, key)
    rows = answers(cases, lambda case: by_key.get(key(case), full))
    return rows, residuals(cases, rows)


def report(args: argparse.Namespace) -> dict:
    """Return the accuracy report; write bands and report where asked."""
    cases, refused = load_cases()
    problem, x = fit_all(cases)
    full = problem.coefficients(x, "fit")
    version = f"{datetime.now(tz=UTC):%Y.%m.%d}-{fingerprint()[:6]}"
    held, tables = {}, {}
    for name, key in SPLITS.items():
        rows, held[name] = split_residuals(cases, problem, x, full, folds=args.folds, key=key)
        tables[name] = error_table(held[name], lambda _: "all")
        if name == "left_out_group" and args.answers:
            text = "".join(json.dumps(row) + "\n" for row in rows)
            args.answers.write_text(text, "utf-8")
    unseen = held["left_out_group"]
    body = {
        "version": version,
        "data_fingerprint": fingerprint(),
        "measurements": len(cases) + len(refused),
        "predicted": len(cases),
        "not_predicted": len(refused),
        "errors": tables,
        "by_gpu_class": error_table(unseen, lambda c: c.row["gpu_class"]),
        "by_family": error_table(unseen, lambda c: c.row["family"]),
        "by_era": error_table(unseen, lambda c: c.row["era"]),
        "band_coverage": held_out_coverage(unseen),
        "peers": peer_table(unseen),
        "notes": [
            "errors are relative and absolute; whole groups were left out of the fit",
            "a source that does not name its statistic counts against the nearer of p50 and mean",
            "prior widths and terms were chosen while looking at these rows: slightly optimistic",
        ],
    }
    if args.write:
        bands = msgspec.to_builtins(band_table(unseen, version))
        (DATA / "bands.json").write_text(json.dumps(bands, indent=1) + "\n", "utf-8")
        (DATA / "accuracy.json").write_text(json.dumps(body, indent=1) + "\n", "utf-8")
    return body


def main() -> int:
    """Print the report as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folds", type=int, default=43, help="parts that groups are left out in")
    parser.add_argument("--write", action="store_true", help="write bands.json and accuracy.json")
    parser.add_argument("--answers", type=Path, help="write the held-out answers here")
    print(json.dumps(report(parser.parse_args()), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
