"""Print how fast answers come: in process, over HTTP, and as ratios within this run.

Ratios are to one pass of a fixed Python loop on the same core, so that runs on different machines
can be compared. With an aiconfigurator command given, the same question is put to it too:

    python benchmarks/speed.py [--http] [--aiconfigurator PATH_TO_ITS_COMMAND]
"""

import argparse
import gc
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from api_schemas.estimate import EstimateRequest
from api_schemas.recommendation import TuningRequest
from service.tuning.estimate import estimate
from service.tuning.recommend import recommend

MODELS = (
    ("meta-llama/Llama-3.1-8B-Instruct", "H100-SXM5-80GB", (1, 2, 4)),
    ("Qwen/Qwen3-8B", "L40S", (1, 2, 4)),
    ("Qwen/Qwen2.5-32B-Instruct", "A100-SXM4-80GB", (2, 4, 8)),
    ("Qwen/Qwen3-30B-A3B", "H100-SXM5-80GB", (1, 2, 4)),
    ("openai/gpt-oss-120b", "H200-SXM-141GB", (1, 2, 8)),
    ("meta-llama/Llama-3.3-70B-Instruct", "H200-SXM-141GB", (2, 4, 8)),
    ("deepseek-ai/DeepSeek-R1", "B200", (8, 16)),
)
PRESETS = ("chat", "rag", "summarization", "code_generation", "reasoning")
HTTP_SECONDS = 8.0


def questions(count: int) -> Iterator[TuningRequest]:
    """Yield distinct requests from 8B to 671B parameters on 1 to 16 GPUs."""
    shapes = [(model, gpu, gpus) for model, gpu, sizes in MODELS for gpus in sizes]
    for number, ((model, gpu, gpus), preset) in zip(
        range(count), itertools.cycle(itertools.product(shapes, PRESETS))
    ):
        body = {
            "model": {"id": model},
            "hardware": {"gpu": gpu, "gpus_per_node": min(gpus, 8), "nodes": max(1, gpus // 8)},
            "workload": {
                "preset": preset,
                "arrivals": {"kind": "poisson", "requests_per_s": 0.5 + 0.05 * number},
            },
        }
        yield msgspec.convert(body, TuningRequest)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", action="store_true", help="measure a served API too")
    parser.add_argument("--aiconfigurator", help="its command, from an environment of its own")
    arguments = parser.parse_args()
    unit_s = reference_s()
    print(f"reference loop: {1000 * unit_s:.2f} ms\n")
    print(f"{'':34s} {'p50':>9s} {'p95':>9s} {'p99':>9s} {'p50 / reference':>16s}")
    requests = list(questions(200))
    memory = [
        EstimateRequest(model=request.model, hardware=request.hardware) for request in requests
    ]
    report("estimate, memory only", timed(estimate, memory), unit_s)
    report("recommend with simulation", timed(recommend, requests), unit_s)
    if arguments.aiconfigurator:
        compare(arguments.aiconfigurator)
    if arguments.http:
        serve_and_load()


def reference_s() -> float:
    """Return the best time of a fixed loop."""

    def loop() -> float:
        started = time.perf_counter()
        sum(number * number for number in range(100_000))
        return time.perf_counter() - started

    return min(loop() for _ in range(20))


def timed(answer: Callable[[Any], object], questions: Sequence[Any]) -> list[float]:
    """Return the seconds of each answer, after one warm-up question."""
    answer(questions[0])
    gc.collect()
    gc.freeze()  # as the service does once it is warm
    seconds = []
    for question in questions:
        started = time.perf_counter()
        answer(question)
        seconds.append(time.perf_counter() - started)
    return seconds


def report(name: str, seconds: Sequence[float], unit_s: float) -> None:
    """Print percentiles in milliseconds and the ratio to the reference loop."""
    p50, p95, p99 = (percentile(seconds, share) for share in (0.5, 0.95, 0.99))
    print(
        f"{name:34s} {1000 * p50:6.1f} ms {1000 * p95:6.1f} ms {1000 * p99:6.1f} ms"
        f" {p50 / unit_s:16.1f}"
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def compare(command: str) -> None:
    """Print how many of our answers fit into one of aiconfigurator's on the same question."""
    argv = [command, "cli", "default", "--model-path", "Qwen/Qwen3-32B", "--total-gpus", "8"]
    argv += ["--system", "h200_sxm", "--backend", "vllm", "--isl", "4000", "--osl", "500"]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        done = subprocess.run(
            [*argv, "--save-dir", folder], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - started
    if done.returncode:
        print(f"\naiconfigurator ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        return
    request = msgspec.convert(
        {
            "model": {"id": "Qwen/Qwen3-32B"},
            "hardware": {"gpu": "H200-SXM-141GB", "gpus_per_node": 8},
            "workload": {
                "prompt_tokens": 4000,
                "output_tokens": 500,
                "arrivals": {"kind": "closed_loop", "max_concurrency": 64},
            },
            "slo": {"targets": [{"metric": "tpot", "percentile": 50, "limit_ms": 30}]},
        },
        TuningRequest,
    )
    ours = percentile(timed(recommend, [request] * 20), 0.5)
    print(f"\naiconfigurator {seconds:.1f} s, ours {1000 * ours:.1f} ms: {seconds / ours:.0f} x")


def serve_and_load() -> None:
    """Print the rate and the latency of one served process with two clients."""
    with tempfile.TemporaryDirectory() as folder:
        variables = os.environ | {
            "SETPOINT_DATA_DIR": folder,
            "SETPOINT_PORT": "8399",
            "SETPOINT_LOG_LEVEL": "warning",
        }
        server = subprocess.Popen(
            [str(Path(sys.executable).with_name("setpoint")), "serve", "--no-worker"],
            env=variables,
            stderr=subprocess.DEVNULL,
        )
        try:
            base_url = "http://127.0.0.1:8399"
            wait_for(base_url)
            load(base_url)
        finally:
            server.terminate()
            server.wait()


def wait_for(base_url: str) -> None:
    """Return when the service is ready."""
    for _ in range(200):
        try:
            if httpx.get(base_url + "/readyz", timeout=2).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise SystemExit("the service did not start")


def load(base_url: str) -> None:
    """Post bodies of which none comes twice from two clients for a while."""
    bodies = (msgspec.json.encode(request) for request in questions(100_000))
    lock = threading.Lock()
    seconds: list[float] = []
    until = time.perf_counter() + HTTP_SECONDS

    def client() -> None:
        with httpx.Client(base_url=base_url, timeout=30) as session:
            while time.perf_counter() < until:
                with lock:
                    body = next(bodies)
                started = time.perf_counter()
                session.post(
                    "/recommendations", content=body, headers={"content-type": "application/json"}
                ).raise_for_status()
                seconds.append(time.perf_counter() - started)

    threads = [threading.Thread(target=client) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    p50, p99 = percentile(seconds, 0.5), percentile(seconds, 0.99)
    print(
        f"\nPOST /recommendations, distinct bodies, two clients: {len(seconds) / HTTP_SECONDS:.0f}"
        f" requests/s, p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms"
    )


if __name__ == "__main__":
    main()
