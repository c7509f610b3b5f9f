"""The fake `vllm` is like the real one wherever a worker looks."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.scrape import read_metrics
from workers.server import VllmServer, free_port
from workers.startup_log import FIGURES, classify_failure, parse_startup_log

FAKES = Path(__file__).parents[2] / "fakes"
FAKE = FAKES / "vllm"
RECORDED = FAKES / "recorded"
MODEL = "models/tiny"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[VllmServer]:
    port = free_port()
    command = [
        *(str(FAKE), "serve", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--served-model-name", "tiny", "--kv-cache-memory-bytes", "524288"),
        *("--block-size", "32", "--max-model-len", "512"),
    ]
    with VllmServer(command, port=port, environment={}, log_path=tmp_path / "log") as started:
        started.wait_until_ready(limit_s=30)
        yield started


def test_its_metrics_have_what_the_recorded_ones_have(server: VllmServer) -> None:
    """The series that are read are there, under the same names, with the same pool."""
    fake = read_metrics(server.metrics())
    real = read_metrics((RECORDED / "metrics-0.32.0.txt").read_text())

    assert set(fake.gauges) == set(real.gauges)
    assert set(fake.counters) <= set(real.counters)
    assert {"preemptions", "prefix_hits", "requests"} <= set(fake.counters)
    for label in ("num_gpu_blocks", "block_size", "kv_cache_size_tokens"):
        assert fake.cache_config[label] == real.cache_config[label]
    assert float(fake.cache_config["kv_cache_max_concurrency"]) == float(
        real.cache_config["kv_cache_max_concurrency"]
    )


def test_its_start_up_log_says_the_same(server: VllmServer) -> None:
    """The figures are read from both logs, and are the same."""
    fake = parse_startup_log(server.log)
    real = parse_startup_log(_recorded("server"))

    assert (fake.kv_cache_tokens, fake.max_concurrency) == (1024, 2.0)
    assert fake == real


def test_every_line_that_is_read_has_the_form_of_a_recorded_one(server: VllmServer) -> None:
    """Where a figure is read, both logs have the same words before it and none has more of them."""
    fake, real = _forms(server.log), _forms(_recorded("server"))

    assert len(real) >= 3
    assert fake == real


def test_its_failed_start_has_the_form_of_a_recorded_one(tmp_path: Path) -> None:
    """A model that does not fit is told in the same line, with the same reason."""
    command = [str(FAKE), "serve", MODEL, "--served-model-name", "fail-start", "--port", "0"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)

    (reason, fake), (recorded, real) = map(classify_failure, (done.stdout, _recorded("too-long")))

    assert done.returncode != 0
    assert reason == recorded == "does_not_fit"
    assert _digits_left_out(real).startswith(_digits_left_out(fake))


def test_what_it_does_not_know_it_refuses_as_recorded() -> None:
    """The last line of the usage is the same but for the words that are not known."""
    done = subprocess.run([str(FAKE), "no-such"], check=False, capture_output=True, text=True)

    (reason, fake), (recorded, real) = map(classify_failure, (done.stderr, _recorded("bad-flag")))

    assert reason == recorded == "bad_flag"
    assert fake.removesuffix("no-such") == real.removesuffix("--no-such-flag 1")


def _recorded(name: str) -> str:
    known = {"too-long": "server-too-long", "bad-flag": "server-bad-flag"}
    return (RECORDED / f"{known.get(name, name)}-0.32.0.log").read_text()


def _forms(log: str) -> set[str]:
    """Return every line up to where a figure is read, without digits."""
    return {
        _digits_left_out(line[: match.end()])
        for line in log.splitlines()
        for pattern in FIGURES
        if (match := pattern.search(line))
    }


def _digits_left_out(text: str) -> str:
    return re.sub(r"\d[\d,.]*", "#", text)


def test_its_result_has_the_keys_and_types_of_a_recorded_one(
    server: VllmServer, tmp_path: Path
) -> None:
    """Every key of a real result is there with the same type, and no other."""
    command = [
        *(str(FAKE), "bench", "serve", "--base-url", server.base_url, "--model", "tiny"),
        *("--tokenizer", MODEL, "--dataset-name", "random", "--random-input-len", "64"),
        *("--random-output-len", "8", "--num-prompts", "4", "--max-concurrency", "2"),
        *("--seed", "1", "--goodput", "ttft:100", "--result-dir", str(tmp_path)),
        *("--result-filename", "result.json"),
    ]

    assert subprocess.run(command, check=False).returncode == 0

    fake = json.loads((tmp_path / "result.json").read_text())
    real = json.loads((RECORDED / "bench-0.32.0.json").read_text())["result"]
    assert set(fake) == set(real)
    assert {name: type(value) for name, value in fake.items()} == {
        name: type(value) for name, value in real.items()
    }
