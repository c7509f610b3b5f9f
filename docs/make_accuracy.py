"""Write docs/accuracy.md from the tables that `GET /accuracy` answers."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from api_schemas.base import Json
from service.tuning.accuracy import accuracy_report

TARGET = Path(__file__).with_name("accuracy.md")
_LATENCY = {"ttft": "TTFT", "tpot": "TPOT", "output_tokens_per_s": "output tokens/s"}
_LEFT_OUT = {
    "left_out_load": "single loads left out, the configuration measured",
    "left_out_group": "harness, model and GPU left out together",
    "left_out_gpu": "GPU left out",
    "left_out_model": "model left out",
}


def page() -> str:
    """Return the text of docs/accuracy.md."""
    report = accuracy_report()
    return "\n".join([*_head(), *_memory(report.memory), *_latency(report.latency)]) + "\n"


def _head() -> Iterator[str]:
    yield "# How accurate the predictions are"
    yield ""
    yield "Written by `make accuracy` from the project's own copy of published measurements, which"
    yield "carry their sources (`benchmarks/data`). `GET /accuracy` answers the same tables."


def _memory(memory: Mapping[str, Json]) -> Iterator[str]:
    yield "\n## Memory\n"
    yield from _notes(memory)
    yield "KV cache tokens, relative error:\n"
    yield "| start-ups | n | median | p90 | within 5 % | verdicts |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, row in memory["kv_cache_tokens_by_slice"].items():
        yield f"| {name} | {_cells(row, 'within_5_percent')} | {memory['verdicts'][name]} |"
    yield "\nParts, real start-ups:\n"
    yield "| part | n | median | p90 | within 5 % |"
    yield "| --- | --- | --- | --- | --- |"
    for name, row in memory["parts"].items():
        yield f"| `{name}` | {_cells(row, 'within_5_percent')} |"
    yield "\nWorst cases by KV cache tokens:\n"
    yield "| case | error |"
    yield "| --- | --- |"
    for row in memory["worst"]:
        yield f"| {row['case']} | {100 * row['relative_error']:.1f} % |"


def _latency(latency: Mapping[str, Json]) -> Iterator[str]:
    yield "\n## Latency and throughput\n"
    yield from _notes(latency)
    yield (
        f"{latency['measurements']} measurements, {latency['predicted']} predicted; coefficients "
        f"{latency['version']}.\n"
    )
    yield "| split | figure | n | median | p90 | within 20 % |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for split, words in _LEFT_OUT.items():
        for metric, name in _LATENCY.items():
            row = latency["errors"][split][metric]["all"]
            yield f"| {words} | {name} | {_cells(row, 'within_20_percent')} |"
    for key, words in (("gpu_class", "GPU class"), ("family", "family"), ("era", "vLLM release")):
        yield f"\nBy {words}, harness, model and GPU left out together:\n"
        yield f"| figure | {words} | n | median | p90 | within 20 % |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for metric, name in _LATENCY.items():
            for value, row in latency[f"by_{key}"][metric].items():
                yield f"| {name} | {value} | {_cells(row, 'within_20_percent')} |"
    yield from _coverage(latency)
    yield "\nAgainst aiconfigurator 0.12 on the rows that both answer, median error:\n"
    yield "| figure | n | Setpoint, group left out | aiconfigurator |"
    yield "| --- | --- | --- | --- |"
    for metric, row in latency["peers"].items():
        ours, theirs = 100 * row["ours"], 100 * row["aiconfigurator"]
        yield f"| {_LATENCY[metric]} | {row['figures']} | {ours:.1f} % | {theirs:.1f} % |"


def _coverage(latency: Mapping[str, Json]) -> Iterator[str]:
    yield "\nShare of figures inside the 80 % band, none of which took part in making it: of groups"
    yield "left out, and of single loads left out of measured configurations:\n"
    yield "| figure | GPU class | groups | loads |"
    yield "| --- | --- | --- | --- |"
    for metric, name in _LATENCY.items():
        loads = latency["band_coverage_of_loads"][metric]
        for value, share in latency["band_coverage"][metric].items():
            other = f"{100 * loads[value]:.0f} %" if value in loads else ""
            yield f"| {name} | {value} | {100 * share:.0f} % | {other} |"


def _notes(table: Mapping[str, Json]) -> Iterator[str]:
    for note in table["notes"]:
        yield f"- {note}"
    yield ""


def _cells(row: Mapping[str, Json], share: str) -> str:
    if not row["figures"]:
        return "0 | | |"
    median, p90, within = (100 * row[key] for key in ("median_ape", "p90_ape", share))
    return f"{row['figures']} | {median:.2f} % | {p90:.1f} % | {within:.0f} %"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(TARGET.read_text(encoding="utf-8") != page())
    TARGET.write_text(page(), encoding="utf-8")
