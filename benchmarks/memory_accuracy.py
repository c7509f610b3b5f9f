"""Print how far the memory model is from measured start-ups, in four slices and by part.

Run it as `python benchmarks/memory_accuracy.py [CASES.jsonl ...] [--write]`. It prints figures and
gates nothing; `--write` keeps the tables for `GET /accuracy`. The cases with their sources are in
`benchmarks/data/memory_cases.jsonl`; `memory_heldout.jsonl` beside it holds start-ups gathered
after the model stood, with `in_view_of` where one of them later settled a constant.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from api_schemas.estimate import Estimate, EstimateRequest
from service.tuning.errors import TuningError
from service.tuning.estimate import estimate

CASES = Path(__file__).parent / "data" / "memory_cases.jsonl"
HELD_OUT = CASES.with_name("memory_heldout.jsonl")
TABLES = Path(__file__).parents[1] / "service" / "tuning" / "memory" / "data" / "accuracy.json"
CAMPAIGN = "llm-d-incubation/llm-d-planner"
FLOORS = {
    "kv_cache_tokens": 1.0,
    "kv_cache_gib": 0.5,
    "weights_gib": 0.05,
    "activation_gib": 0.2,
    "non_torch_gib": 0.2,
    "cuda_graphs_gib": 0.2,
    "max_concurrency": 0.01,
    "largest_max_model_len": 1.0,
}
"""Smallest observed value for which a relative error says anything."""

NOTES = (
    "shape and constants of the model were chosen with these cases in view",
    "a campaign of H100 runs makes up most cases; the slice outside it says more",
    "five runs of one recipe hold more than their settings allow; a slice leaves them out",
    "of these, 6.0 GiB of cache beside 23.1 of text weights exceed the 28.9 GiB asked for",
    "others leave 0.4 GiB for activations where logits of 256 sequences alone take 0.85",
    "two more of them printed tokens of a 16-bit cache, not of 8 bits; they are read so",
    "377,456 and 445,875 are whole blocks of 784 tokens and no whole blocks of 1,568",
    "as the sources state their settings, no model meets more than 18 of the 24 within 5 %",
    "the Mistral row fits FlashInfer's sampler; all other logs of 0.8 to 0.11 fit PyTorch's",
    "machines alike differ by 0.1 GiB, and a first start that compiles kept 2.3 GiB less once",
    "the start-ups gathered later are apart: most were seen for no constant",
    "33 of them met a model that had not seen one: KV GiB off by 3.2 % at the median, 5 % for 69 %",
    "starts of experts on one RTX 5090 under WSL held 1.0 to 1.9 GiB less; the cause is not known",
    "a GB10 shares its memory with the host: four of five starts held 2.7 to 6.0 GiB less",
    "first starts on cards of 24 to 48 GB held 0.4 to 0.8 GiB less, a second one 0.9 more",
)
"""What the tables do not say by themselves."""

Case = dict[str, Any]
Pair = tuple[Case, Estimate | None]


def read_cases(path: Path) -> list[Case]:
    """Return the cases of a JSON-lines file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def answer(case: Case) -> Estimate | None:
    """Return the estimate of one case; None when the request is refused."""
    try:
        return estimate(msgspec.convert(case["request"], EstimateRequest))
    except TuningError:
        return None


def is_campaign(case: Case) -> bool:
    """Whether the case is of the one large H100 campaign."""
    return bool(case["group"].startswith(CAMPAIGN))


def is_held_out(case: Case) -> bool:
    """Whether the case was gathered after the model stood."""
    return bool(case.get("held_out"))


def is_v1_outside(case: Case) -> bool:
    """Whether the case is a real V1 start-up of the first collection, outside the campaign."""
    return not (
        is_held_out(case) or case["derived"] or is_campaign(case) or case["era"].startswith("V0")
    )


SLICES: dict[str, Callable[[Case], bool]] = {
    "all": lambda case: not is_held_out(case),
    "campaign H100": lambda case: not case["derived"] and is_campaign(case),
    "V1 outside it": is_v1_outside,
    "V1 outside it, settings that can have run": lambda case: (
        is_v1_outside(case) and not case.get("conflict")
    ),
    "derived KV plans": lambda case: case["derived"],
    "V0": lambda case: not case["derived"] and case["era"].startswith("V0"),
    "V1 gathered later": is_held_out,
    "V1 gathered later, seen for no constant": lambda case: (
        is_held_out(case) and not case.get("in_view_of")
    ),
}


def is_real(case: Case) -> bool:
    """Whether the case is a start-up of the first collection, not a KV plan made from one."""
    return not case["derived"] and not is_held_out(case)


def errors(pairs: Iterable[Pair], metric: str) -> list[tuple[float, float, str]]:
    """Return relative error, absolute error and id of each case that has the metric.

    A case without an answer counts as wholly wrong, so that silence does not improve a figure.
    """
    found = []
    for case, answered in pairs:
        observed = case["expect"].get(metric)
        if observed is None or abs(observed) < FLOORS[metric]:
            continue
        if answered is None or answered.memory is None:
            found.append((1.0, abs(observed), case["id"]))
            continue
        off = abs(getattr(answered.memory, metric) - observed)
        found.append((off / abs(observed), off, case["id"]))
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """Return the linear quantile of a non-empty list."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def metric_line(pairs: Sequence[Pair], metric: str) -> str:
    """Return one line of the table: number, median, p90, shares within limits, GiB."""
    found = errors(pairs, metric)
    if not found:
        return f"{'-':>5s}"
    apes = [ape for ape, _, _ in found]
    within = " ".join(
        f"{100 * sum(ape <= limit for ape in apes) / len(apes):5.0f}%"
        for limit in (0.003, 0.02, 0.05, 0.1)
    )
    offs = [off for _, off, _ in found]
    return (
        f"{len(found):5d} {100 * statistics.median(apes):8.2f}% {100 * quantile(apes, 0.9):7.1f}%"
        f" {within} {statistics.median(offs):10.3f} {quantile(offs, 0.9):10.3f}"
    )


def verdict_line(pairs: Sequence[Pair]) -> str:
    """Return how many fit verdicts are right, and the costly mistakes."""
    asked = [(c, a) for c, a in pairs if isinstance(c["expect"].get("fits"), bool)]
    said = [(c, a is not None and a.fits) for c, a in asked]
    wrong = [(c["id"], verdict) for c, verdict in said if verdict != c["expect"]["fits"]]
    false_fits = sum(verdict for _, verdict in wrong)
    names = ", ".join(f"{name} (said {verdict})" for name, verdict in wrong)
    return f"{len(asked) - len(wrong)}/{len(asked)} right, {false_fits} false fits  {names}"


def band_line(pairs: Sequence[Pair]) -> str:
    """Return how often the observed KV memory lies in the predicted band."""
    inside = total = 0
    for case, answered in pairs:
        observed = case["expect"].get("kv_cache_gib")
        if observed is None or answered is None or answered.memory is None:
            continue
        low, high = answered.memory.band["kv_cache_gib"]
        total += 1
        inside += low - 0.01 <= observed <= high + 0.01
    return f"{inside}/{total}" if total else "-"


def speed_line(cases: Sequence[Case]) -> str:
    """Return the median and p99 time of one memory-only estimate, milliseconds."""
    spans = []
    for case in cases:
        request = msgspec.convert(case["request"], EstimateRequest)
        started = time.perf_counter()
        try:
            estimate(request)
        except TuningError:
            continue
        spans.append(1000 * (time.perf_counter() - started))
    return f"p50 {statistics.median(spans):.2f} ms, p99 {quantile(spans, 0.99):.2f} ms"


def print_report(cases: Sequence[Case]) -> None:
    """Print slices, parts, verdicts, bands, the worst cases and the speed."""
    pairs = [(case, answer(case)) for case in cases]
    head = "    n   median     p90   <=.3%   <=2%   <=5%  <=10%    med |d|    p90 |d|"
    print(f"KV cache tokens{'':28s}{head}")
    for name, belongs in SLICES.items():
        part = [pair for pair in pairs if belongs(pair[0])]
        print(f"  {name:41s}{metric_line(part, 'kv_cache_tokens')}")
    real = [pair for pair in pairs if is_real(pair[0])]
    print(f"\nParts, real cases{'':5s}{head}")
    for metric in FLOORS:
        print(f"  {metric:20s}{metric_line(real, metric)}")
    print("\nVerdicts")
    for name, belongs in SLICES.items():
        part = [pair for pair in pairs if belongs(pair[0])]
        print(f"  {name:41s}{verdict_line(part)}; KV GiB inside the band {band_line(part)}")
    worst = sorted(errors(pairs, "kv_cache_tokens"), reverse=True)[:12]
    print("\nWorst by KV cache tokens")
    for ape, _, name in worst:
        print(f"  {100 * ape:6.1f}%  {name}")
    print(f"\nSpeed of one memory-only estimate: {speed_line(cases)}")


def tables(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the same figures as data: tokens by slice, parts, verdicts, the worst cases."""
    pairs = [(case, answer(case)) for case in cases]
    real = [pair for pair in pairs if is_real(pair[0])]
    parts = {name: [p for p in pairs if belongs(p[0])] for name, belongs in SLICES.items()}
    worst = sorted(errors(pairs, "kv_cache_tokens"), reverse=True)[:12]
    return {
        "cases": sum(not is_held_out(case) for case in cases),
        "kv_cache_tokens_by_slice": {
            name: figures(part, "kv_cache_tokens") for name, part in parts.items()
        },
        "parts": {metric: figures(real, metric) for metric in FLOORS},
        "verdicts": {name: verdict_line(part).split("  ")[0] for name, part in parts.items()},
        "worst": [{"case": name, "relative_error": round(ape, 4)} for ape, _, name in worst],
        "notes": list(NOTES),
    }


def figures(pairs: Sequence[Pair], metric: str) -> dict[str, float]:
    """Return number, median, 90th percentile and shares of the relative errors."""
    apes = [ape for ape, _, _ in errors(pairs, metric)]
    if not apes:
        return {"figures": 0}
    return {
        "figures": len(apes),
        "median_ape": round(statistics.median(apes), 5),
        "p90_ape": round(quantile(apes, 0.9), 5),
        "within_2_percent": round(sum(ape <= 0.02 for ape in apes) / len(apes), 4),
        "within_5_percent": round(sum(ape <= 0.05 for ape in apes) / len(apes), 4),
    }


def main() -> None:
    """Read the cases and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", type=Path, default=[CASES, HELD_OUT])
    parser.add_argument("--write", action="store_true", help="keep the tables for GET /accuracy")
    arguments = parser.parse_args()
    cases = [case for path in arguments.cases for case in read_cases(path)]
    print_report(cases)
    if arguments.write:
        TABLES.write_text(json.dumps(tables(cases), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
