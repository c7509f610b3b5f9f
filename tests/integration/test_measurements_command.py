"""`setpoint measurements` and `setpoint calibrations` against a service."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from service.api.examples import bench_report_request, measurement_request
from service.cli.exit_codes import UNREACHABLE, USAGE
from tests.integration.service_process import ServiceProcess
from tests.integration.setpoint_command import setpoint

_MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_STATED = ("--model", _MODEL, "--gpu", "H100-SXM5-80GB", "--engine-version", "0.33.0")
_SLOWER = 1.3


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("data")
    with ServiceProcess(folder, HUB_LOOKUP="false") as started:
        yield started


def _report(path: Path, *, concurrency: int, seconds_per_token: float) -> Path:
    """Write a result as `vllm bench serve --save-result` does, of loads this much slower."""
    report = dict(bench_report_request().report or {})
    rate = concurrency / seconds_per_token * 0.97
    report |= {
        "max_concurrency": concurrency,
        "completed": 160,
        "mean_tpot_ms": seconds_per_token * 1e3,
        "median_tpot_ms": seconds_per_token * 1e3,
        "output_throughput": rate,
        "request_throughput": rate / 256,
    }
    path.write_text(json.dumps(report))
    return path


def _predicted_s(service: ServiceProcess, concurrency: int) -> float:
    load = {"kind": "closed_loop", "max_concurrency": concurrency, "num_requests": 160}
    body = {
        "model": {"id": _MODEL},
        "hardware": {"gpu": "H100-SXM5-80GB"},
        "engine": {"version": "0.33.0"},
        "workload": {"prompt_tokens": 1024, "output_tokens": 256, "arrivals": load},
    }
    answer = service.client.post("/estimates", json=body).json()
    return float(answer["performance"]["tpot_ms"]["mean"]) / 1e3


def test_reports_are_added_listed_and_learned_from(service: ServiceProcess, tmp_path: Path) -> None:
    """Two results of the benchmark calibrate their configuration; both commands show it."""
    reports = [
        _report(
            tmp_path / f"{number}.json",
            concurrency=number,
            seconds_per_token=_predicted_s(service, number) * _SLOWER,
        )
        for number in (4, 16)
    ]
    server = ("--server", service.base_url)

    added = setpoint("measurements", "add", *map(str, reports), *_STATED, *server)
    listed = setpoint("measurements", "list", "--tool", "vllm_bench", "--json", *server)
    learned = setpoint("calibrations", "--json", "--gpu", "H100-SXM5-80GB", *server)
    shown = setpoint("calibrations", "--status", "used", *server)
    refused = setpoint("calibrations", "--status", "refused", *server)

    assert added.returncode == 0, added.stderr
    assert "vllm_bench" in added.stdout
    items = json.loads(listed.stdout)["items"]
    assert {item["workload"]["arrivals"]["max_concurrency"] for item in items} == {4, 16}
    assert {item["source"]["reference"] for item in items} == set(map(str, reports))
    (row,) = json.loads(learned.stdout)["items"]
    assert (row["status"], len(row["measurement_ids"])) == ("used", 2)
    assert row["configuration"] in shown.stdout
    assert row["configuration"] not in refused.stdout


def test_a_whole_request_and_a_document_of_what_ran_are_taken(
    service: ServiceProcess, tmp_path: Path
) -> None:
    """A file may be the request itself; what a report lacks may come from YAML, options win."""
    whole = tmp_path / "whole.json"
    whole.write_bytes(msgspec.json.encode(measurement_request()))
    ran = tmp_path / "ran.yaml"
    ran.write_text("model: {id: Qwen/Qwen3-8B}\nhardware: {gpu: L40S}\nengine: {version: 0.20.0}\n")
    report = _report(tmp_path / "run.json", concurrency=8, seconds_per_token=0.02)
    server = ("--server", service.base_url)

    first = setpoint("measurements", "add", str(whole), "--json", *server)
    second = setpoint(
        *("measurements", "add", str(report), "-f", str(ran), "--engine-version", "0.33.0"),
        *("--json", *server),
    )

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    (stated,) = json.loads(first.stdout)["items"]
    assert stated["source"].get("tool", "stated") == "stated"
    (item,) = json.loads(second.stdout)["items"]
    assert (item["hardware"]["gpu"], item["engine"]["version"]) == ("L40S", "0.33.0")
    assert "Qwen/Qwen3-8B" in setpoint("measurements", "list", "--gpu", "L40S", *server).stdout


def test_what_cannot_be_added_says_why(service: ServiceProcess, tmp_path: Path) -> None:
    """Failed requests, a report of unknown hardware, no service: one line and an exit code."""
    report = _report(tmp_path / "run.json", concurrency=8, seconds_per_token=0.02)
    failed = tmp_path / "failed.json"
    failed.write_text(json.dumps(json.loads(report.read_text()) | {"failed": 3}))
    server = ("--server", service.base_url)

    lacking = setpoint("measurements", "add", str(report), *server)
    broken = setpoint("measurements", "add", str(failed), *_STATED, *server)
    nobody = setpoint("calibrations", "--server", "http://127.0.0.1:9")

    assert lacking.returncode == broken.returncode == USAGE
    assert "does not say model and hardware and engine" in lacking.stderr
    assert "state it with --model --gpu --engine-version" in lacking.stderr
    assert "3 requests failed" in broken.stderr
    assert nobody.returncode == UNREACHABLE
