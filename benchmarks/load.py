"""Print what a served API takes on this machine: requests/s, latency, CPU and memory.

It starts the service with several processes on an embedded store in a temporary folder, drives it
with wrk (Debian's package `wrk`), and prints one row for each kind of request. Distinct bodies
differ in model, hardware, preset and rate, and count on over all rounds, so that none comes twice.
Last it sends many requests and prints how the memory of the processes grew.

    python benchmarks/load.py [--processes 2] [--seconds 10] [--requests 100000]

CPU is that of the service and its store, from /proc: it says more than the rate where others use
the machine, or where wrk shares its cores.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
from speed import MODELS, PRESETS

URL = "http://127.0.0.1:8398"
CONNECTIONS = 8
WRK = shutil.which("wrk") or "wrk"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LUA = """
local shapes = {SHAPES}
local thread_number = 0
function setup(thread)
  thread:set("start", thread_number * 1000000 + FIRST)
  thread_number = thread_number + 1
end
local count = 0
function request()
  count = count + 1
  local number = DISTINCT and (start + count) or 0
  local body = string.format(shapes[number % #shapes + 1], 0.5 + number * 0.618034 % 10)
  return wrk.format("METHOD", PATH, {["content-type"] = "application/json"}, BODY)
end
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format("RESULT %d %d %f %f %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), errors.status + errors.timeout + errors.read))
end
"""
_RESULT = re.compile(r"RESULT (\d+) (\d+) ([\d.]+) ([\d.]+) (\d+)")


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request."""

    name: str
    path: str
    shapes: tuple[str, ...] = ()
    """Bodies with a place for the rate; none for a GET."""
    distinct: bool = True


def main() -> None:
    """Print all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=10, help="of each row")
    parser.add_argument("--requests", type=int, default=100_000, help="of the look at memory")
    asked = parser.parse_args()
    if not Path(WRK).is_file():
        raise SystemExit("wrk is missing; Debian has it as the package wrk")
    print(f"{machine()}; {asked.processes} processes, wrk with {CONNECTIONS} connections\n")
    with served(asked.processes) as server:
        record = (
            URL
            + httpx.post(URL + "/recommendations", json=example(), timeout=60).headers["location"]
        )
        kinds = all_kinds(record.removeprefix(URL))
        for kind in kinds:  # compile and fill what every process keeps
            drive(server, kind, seconds=2)
        titles = ("req/s", "p50 ms", "p99 ms", "CPU ms/req", "failed")
        print(f"{'':36s}" + "".join(f"{title:>11s}" for title in titles))
        for kind in kinds:
            print(drive(server, kind, seconds=asked.seconds), flush=True)
        watch_memory(server, kinds, requests=asked.requests)


def example() -> dict[str, object]:
    """Return a body."""
    return {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "L40S"},
        "workload": {"preset": "chat"},
    }


def all_kinds(record: str) -> tuple[Kind, ...]:
    """Return the kinds that are measured."""
    load = {"arrivals": {"kind": "poisson", "requests_per_s": "RATE"}}
    asked, estimated = [], []
    for model, gpu, sizes in MODELS:
        for gpus in sizes:
            hardware = {"gpu": gpu, "gpus_per_node": min(gpus, 8), "nodes": max(1, gpus // 8)}
            for preset in PRESETS:
                body = {"model": {"id": model}, "hardware": hardware}
                asked.append(shape(body | {"workload": load | {"preset": preset}}))
                config = {"tensor_parallel_size": min(gpus, 8)}
                engine = {"config": config}
                estimated.append(
                    shape(body | {"workload": load | {"preset": preset}, "engine": engine})
                )
    return (
        Kind(name="POST /recommendations, distinct", path="/recommendations", shapes=tuple(asked)),
        Kind(
            name="POST /recommendations, repeated",
            path="/recommendations",
            shapes=tuple(asked[:1]),
            distinct=False,
        ),
        Kind(name="POST /estimates, distinct", path="/estimates", shapes=tuple(estimated)),
        Kind(name="GET /recommendations/{id}", path=record),
    )


def shape(body: dict[str, object]) -> str:
    """Return a body with a place for its rate."""
    return msgspec.json.encode(body).decode().replace('"RATE"', "%.6f")


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The service's processes and its store."""

    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Return the CPU seconds that they have taken together."""
        ticks = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # utime, stime
        return ticks / _TICKS_PER_S

    def resident_mib(self) -> list[float]:
        """Return the resident memory of each."""
        pages = [Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in self.pids]
        return [int(number) * _PAGE_BYTES / 2**20 for number in pages]


@contextmanager
def served(processes: int) -> Iterator[Server]:
    """Yield a running service."""
    with tempfile.TemporaryDirectory() as folder:
        variables = os.environ | {
            "SETPOINT_DATA_DIR": folder,
            "SETPOINT_PORT": URL.rpartition(":")[2],
            "SETPOINT_LOG_LEVEL": "warning",
            "SETPOINT_PROCESSES": str(processes),
        }
        command = [str(Path(sys.executable).with_name("setpoint")), "serve", "--no-worker"]
        parent = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE)
        try:
            if parent.stderr is None or b"listens" not in parent.stderr.readline():
                raise SystemExit("the service did not start")
            yield Server(pids=(parent.pid, *children(parent.pid)))
        finally:
            parent.terminate()
            parent.wait()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started from any of its threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of request came to."""

    kind: Kind
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    failed: int

    def __str__(self) -> str:
        """Return the row of the table."""
        rate = self.requests / self.seconds
        return (
            f"{self.kind.name:36s}{rate:11.0f}{self.p50_ms:11.1f}{self.p99_ms:11.1f}"
            f"{self.cpu_ms:11.2f}{self.failed:11d}"
        )


_SENT = [0]
"""Where the next round's distinct bodies begin."""


def drive(server: Server, kind: Kind, *, seconds: int) -> Row:
    """Send requests of one kind as fast as they are answered."""
    shapes = ",".join(f"[==[{shape}]==]" for shape in kind.shapes)
    script = (
        _LUA.replace("SHAPES", shapes or '""')
        .replace("FIRST", str(_SENT[0]))
        .replace("DISTINCT", "true" if kind.distinct else "false")
        .replace("METHOD", "POST" if kind.shapes else "GET")
        .replace("PATH", f'"{kind.path}"')
        .replace("BODY", "body" if kind.shapes else "nil")
    )
    before = server.cpu_s()
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        load = ["-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "60s", "--latency"]
        done = subprocess.run(
            [WRK, *load, "-s", file.name, URL], capture_output=True, text=True, check=True
        )
    found = _RESULT.search(done.stdout)
    if found is None:
        raise SystemExit(done.stdout + done.stderr)
    requests = int(found[1])
    _SENT[0] += requests + CONNECTIONS
    return Row(
        kind=kind,
        requests=requests,
        seconds=int(found[2]) / 1e6,
        p50_ms=float(found[3]) / 1e3,
        p99_ms=float(found[4]) / 1e3,
        cpu_ms=1e3 * (server.cpu_s() - before) / max(requests, 1),
        failed=int(found[5]),
    )


def watch_memory(server: Server, kinds: Sequence[Kind], *, requests: int) -> None:
    """Print the memory of all processes while requests of all kinds go on, four parts in turn."""
    print(f"\nresident memory, MiB (parent, then its children): {spoken(server)}")
    asked, repeated, estimated, shown = kinds
    sent = asked_for = 0
    while sent < requests:
        for kind, seconds in ((asked, 5), (repeated, 5), (estimated, 10), (shown, 10)):
            sent += drive(server, kind, seconds=seconds).requests
        if sent >= asked_for:
            asked_for += requests // 4
            print(f"after {sent:7d} requests: {spoken(server)}", flush=True)
    print(f"after {sent:7d} requests: {spoken(server)}")


def spoken(server: Server) -> str:
    """Return the resident memory of each process."""
    return ", ".join(f"{mib:.0f}" for mib in server.resident_mib())


def machine() -> str:
    """Return the processor and its cores."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "CPU")
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


if __name__ == "__main__":
    main()
