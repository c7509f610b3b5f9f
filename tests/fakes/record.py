"""Record what the fake `vllm` is held to, from a real one.

Usage: python tests/fakes/record.py VENV [--out FOLDER]

VENV is an environment with vLLM for the CPU (`deploy/vllm-cpu/setup.sh`). It is asked for what the
worker asks for, with the worker's own commands: a server of the tiny model with a pool of 1,024
tokens, a load that is too large for it, its metrics afterwards, a start that does not fit, and a
flag that it does not know. Written down are the lines of the log without their processes and
folders, the series that are read, and of the client's lists the first entries.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import ClosedLoop, FixedLength
from workers.bench import bench_command
from workers.inventory import find_environments
from workers.scrape import SERIES
from workers.server import ServerFailed, VllmServer, free_port, server_environment
from workers.tiny_model import write_tiny_model
from workers.traffic import Load

OUT = Path(__file__).parent / "recorded"
READY_LIMIT_S = 600.0
NAME, MODEL = "tiny", "models/tiny"
POOL = ("--kv-cache-memory-bytes", "524288", "--block-size", "32")
FITS = (*POOL, "--max-model-len", "512", "--max-num-seqs", "16", "--max-num-batched-tokens", "512")
TOO_LONG = (*POOL, "--max-model-len", "4096")
LOAD = Load(
    arrivals=ClosedLoop(max_concurrency=16),
    prompt_tokens=FixedLength(tokens=64),
    output_tokens=FixedLength(tokens=192),
    shared_prefix_tokens=0,
    num_requests=59,
    seed=1,
)
"""More than the pool holds at once, so that requests are preempted."""
TARGETS = Slo(targets=[LatencyTarget(metric="ttft", percentile=95, limit_ms=60_000)])
SAYS = re.compile(
    r"\(\w+ pid=1\) (INFO|ERROR) [-\d]+ [:\d]+ \[\S+\] (?!\[shutdown\]|Traceback)\w"
    r"|INFO:     Application|\w*Error: |usage: |vllm: error: "
)
"""How a line begins that says something, rather than where in the code."""
LONGEST_LINE = 300
KEPT_REQUESTS, KEPT_GAPS, DIGITS = 3, 5, 6


def main() -> None:
    """Record all and write it."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    (environment,) = find_environments([options.venv])
    version = environment.version
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_tiny_model(work / MODEL)
        server, metrics, result = record_run(environment.path, work)
        texts = {
            f"server-{version}.log": server,
            f"server-too-long-{version}.log": record_failure(environment.path, work, TOO_LONG),
            f"server-bad-flag-{version}.log": record_failure(
                environment.path, work, ("--no-such-flag", "1")
            ),
            f"metrics-{version}.txt": series_read(metrics, version=version),
        }
    for name, text in texts.items():
        (options.out / name).write_text(text)
    origin = f"vllm bench serve of vllm-cpu {version} against the tiny model; lists are cut"
    record = json.dumps({"origin": origin, "result": shortened(result)}, indent=1)
    (options.out / f"bench-{version}.json").write_text(record + "\n")


def serve(executable: str, work: Path, flags: tuple[str, ...]) -> VllmServer:
    """Return a server that is not started yet."""
    port = free_port()
    command = [executable, "serve", str(work / MODEL), *flags, "--enforce-eager"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", NAME]
    variables = server_environment({}, gpu_uuids=[], is_cpu=True, mark="record")
    return VllmServer(command, port=port, environment=variables, log_path=work / "server.log")


def record_run(executable: str, work: Path) -> tuple[str, str, dict[str, Any]]:
    """Return log, metrics and the client's result of a server that was loaded."""
    result = work / "result.json"
    with serve(executable, work, FITS) as server:
        server.wait_until_ready(limit_s=READY_LIMIT_S)
        command = bench_command(
            LOAD,
            executable=executable,
            base_url=server.base_url,
            served_name=NAME,
            tokenizer=str(work / MODEL),
            slo=TARGETS,
            dataset=work / "unused",
            result=result,
        )
        variables = server_environment({}, gpu_uuids=[], is_cpu=False, mark="record")
        subprocess.run(command, check=True, env=variables, stdout=subprocess.DEVNULL)
        metrics = server.metrics()
    text = result.read_text().replace(str(work) + "/", "")
    return told(server.log, work), metrics, json.loads(text)


def record_failure(executable: str, work: Path, flags: tuple[str, ...]) -> str:
    """Return the log of a server that does not start."""
    with serve(executable, work, flags) as server:
        try:
            server.wait_until_ready(limit_s=READY_LIMIT_S)
        except ServerFailed as error:
            return told(error.log, work)
    raise SystemExit(f"it started with {flags}")


def told(log: str, work: Path) -> str:
    """Return what a log says, without the processes and folders of this machine."""
    text = re.sub(r"pid=\d+", "pid=1", log.replace(str(work) + "/", ""))
    kept = [line for line in text.splitlines() if SAYS.match(line) and "/tmp" not in line]  # noqa: S108
    return "\n".join(line[:LONGEST_LINE] for line in kept) + "\n"


def series_read(metrics: str, *, version: str) -> str:
    """Return the lines of the series that a worker reads."""
    marks = tuple(f"# TYPE {name.removesuffix('_total')}" for name in SERIES)
    kept = [line for line in metrics.splitlines() if line.startswith((*SERIES, *marks))]
    head = (
        f"# /metrics of vllm-cpu {version} with the tiny model after a load; series that are read"
    )
    return "\n".join([head, *kept]) + "\n"


def shortened(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result with the first entries of every list, and no generated text."""
    texts = {"generated_texts": [""] * KEPT_REQUESTS}
    return {name: _cut(value, KEPT_REQUESTS) for name, value in (dict(result) | texts).items()}


def _cut(value: Any, number: int) -> Any:  # noqa: ANN401  # any part of a JSON document
    if not isinstance(value, list):
        return value
    return [
        round(item, DIGITS) if isinstance(item, float) else _cut(item, KEPT_GAPS)
        for item in value[:number]
    ]


if __name__ == "__main__":
    main()
