"""A started server within a run: its start-up facts, and the loads that are offered to it."""

import contextlib
import itertools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate
from api_schemas.validation import Startup
from service.tuning.played_run import PlayedRun
from workers.bench import BenchResult, RejectedResult, bench_command, read_result
from workers.launch import Launch, serve_command
from workers.patience import while_wanted
from workers.points import Measurement, measurement, startup
from workers.run import Failed, OutOfTime, Run
from workers.scrape import Scrape, read_metrics, summarise
from workers.server import (
    ServerFailed,
    VllmServer,
    free_port,
    server_environment,
    supervised,
)
from workers.startup_log import classify_failure, parse_startup_log
from workers.subject import Subject
from workers.traffic import Load, write_requests

START_LIMIT_S = 900.0
"""Longest wait for a server; large checkpoints from a network disk take many minutes."""
SCRAPE_S = 0.5
_STOP_LIMIT_S = 30.0
_HEALTH_TRIES = 3
_HEALTH_EVERY = 20
"""Scrapes between two looks at the server's health."""
_SILENT_TRIES = 3
"""Scrapes in a row without an answer after which the server is asked for its health."""
_LITTLE_BYTES = 2**20
_WARMUPS = 4
_WARMUP_TOKENS = 16
_T = TypeVar("_T")
Predict = Callable[[PlayedRun], Estimate | None]
"""Returns what Setpoint expects of a run, once it is known what was sent."""
_FIRST_TOKEN, _TOKENS = 10, 100
"""Ids that every vocabulary has, past the special ones of most."""


class Session:
    """A ready server."""

    def __init__(self, run: Run, subject: Subject, server: VllmServer, launch: Launch) -> None:
        self.launch = launch
        self.startup: Startup | None = None
        self._run = run
        self._subject = subject
        self._server = server

    def warm_up(self) -> None:
        """Serve a few requests that no measurement sees, with prompts that no load repeats.

        The client's own warm-up repeats its first prompt and counts in the server's metrics.
        """
        for number in range(_WARMUPS):
            self._run.check()
            ids = [_FIRST_TOKEN + (number + step) % _TOKENS for step in range(_WARMUP_TOKENS)]
            complete = partial(
                self._server.complete,
                self._subject.recommendation.request.model.id,
                prompt=ids,
                max_tokens=_WARMUP_TOKENS,
            )
            try:
                self._ask(complete)
            except ServerFailed as error:
                raise Failed("ready", error.reason, log=error.log) from error

    def read_startup(self, predicted: Estimate | None) -> Startup:
        """Return what the server says of its memory, beside the prediction."""
        figures = parse_startup_log(self._server.log)
        seconds = self._server.startup_s
        figures = msgspec.structs.replace(
            figures, seconds=None if seconds is None else round(seconds, 1)
        )
        try:
            scrape = read_metrics(self._ask(self._server.metrics))
        except ServerFailed as error:
            raise Failed("ready", error.reason, log=error.log) from error
        self.startup = startup(figures, scrape, predicted=predicted)
        return self.startup

    def offer(self, load: Load, *, label: str, predict: Predict, folder: Path) -> Measurement:
        """Return what came of one load beside its prediction; its point is stored at once.

        Raises:
            Failed: The client's result proves nothing, or the server did not survive.
            OutOfTime: The plan's minutes ended first.
            Cancelled: Somebody asked to end it.
        """
        dataset, result = folder / f"{label}.jsonl", folder / f"{label}.json"
        if load.requests is not None:
            write_requests(load, dataset)
        command = self._command(load, dataset=dataset, result=result)
        before = self._scrape()
        during = self._play(command, log=folder / f"{label}.log")
        self._check_alive()
        after = self._scrape()
        measured = self._read(result, load, log=folder / f"{label}.log")
        found = measurement(
            measured,
            summarise(before, during, after),
            load,
            label=label,
            config=self.launch.config,
            predicted=predict(measured.played),
        )
        self._run.add_point(found.point)
        return found

    def _command(self, load: Load, *, dataset: Path, result: Path) -> list[str]:
        return bench_command(
            load,
            executable=self._subject.environment.path,
            base_url=self._server.base_url,
            served_name=self._subject.recommendation.request.model.id,
            tokenizer=self._subject.model_path,
            slo=self._subject.slo,
            dataset=dataset,
            result=result,
        )

    def _play(self, command: list[str], *, log: Path) -> list[Scrape]:
        """Run the client to its end and return what the server's metrics said meanwhile."""
        scrapes: list[Scrape] = []
        with _client(command, mark=self._run.mark, log=log) as process:
            silent = 0
            for number in itertools.count(1):
                self._run.check()
                try:
                    scrapes.append(read_metrics(self._ask(self._server.metrics)))
                    silent = 0
                except ServerFailed:
                    silent += 1
                if not self._server.alive:
                    raise Failed("load", "the server ended under load", log=self._server.log_tail)
                if self._is_hung(number, silent=silent):
                    raise Failed("load", "the server hangs", log=self._server.log_tail)
                try:
                    process.wait(timeout=SCRAPE_S)
                except subprocess.TimeoutExpired:
                    continue
                return scrapes
        raise AssertionError("unreachable")

    def _is_hung(self, number: int, *, silent: int) -> bool:
        """Whether it fails several health checks in a row; asked at times, and when it is silent.

        A dead engine can leave a server that still tells its metrics.
        """
        if silent < _SILENT_TRIES and number % _HEALTH_EVERY:
            return False
        return not any(self._ask(self._server.healthy) for _ in range(_HEALTH_TRIES))

    def _scrape(self) -> Scrape:
        try:
            return read_metrics(self._ask(self._server.metrics))
        except ServerFailed as error:
            raise Failed("load", error.reason, log=error.log) from error

    def _check_alive(self) -> None:
        if not (self._server.alive and self._ask(self._server.healthy)):
            raise Failed("load", "the server ended under load", log=self._server.log_tail)

    def _ask(self, call: Callable[[], _T]) -> _T:
        """Return what the server answers; the run may end before it does."""
        return while_wanted(call, check=self._run.check)

    def _read(self, result: Path, load: Load, *, log: Path) -> BenchResult:
        try:
            content = result.read_bytes()
        except OSError as error:
            reason = "the benchmark client left no result" + _of_disk(result.parent)
            raise Failed("load", reason, log=_text(log)) from error
        try:
            return read_result(content, load)
        except RejectedResult as error:
            reason = str(error) + _of_disk(result.parent)
            raise Failed("load", reason, log=_text(log)) from error


@contextlib.contextmanager
def started(
    run: Run,
    subject: Subject,
    config: EngineConfig,
    *,
    predicted: Estimate,
    folder: Path,
    progress: float,
    on_command: Callable[[list[str]], None] = lambda _: None,
) -> Iterator[Session]:
    """Yield a ready server of this configuration; nothing of it outlives the block.

    Raises:
        Failed: It did not start, with what vLLM said of the reason.
        Cancelled: Somebody asked to end it.
    """
    run.check()
    launch = subject.launch(config, predicted=predicted)
    run.note(*launch.notes)
    port = free_port()
    command = serve_command(
        launch,
        executable=subject.environment.path,
        model=subject.model_path,
        served_name=subject.recommendation.request.model.id,
        port=port,
    )
    on_command(command)
    run.report("starting", progress, to="starting", command=command)
    environment = server_environment(
        {},
        gpu_uuids=[] if subject.on_cpu else [device.uuid for device in subject.devices_of(config)],
        is_cpu=subject.on_cpu,
        mark=run.mark,
    )
    with VllmServer(
        command, port=port, environment=environment, log_path=folder / "server.log"
    ) as server:
        _wait_until_ready(run, server)
        yield Session(run, subject, server, launch)


def _wait_until_ready(run: Run, server: VllmServer) -> None:
    limit_s = min(START_LIMIT_S, run.remaining_s)
    try:
        server.wait_until_ready(limit_s=limit_s, cancelled=lambda: run.is_cancelled)
    except ServerFailed as error:
        if run.is_cancelled:
            run.check()
        if server.alive:
            if run.remaining_s <= 0:
                raise OutOfTime from error
            raise Failed("ready", error.reason, log=error.log) from error
        reason, line = classify_failure(error.log)
        raise Failed("start", f"{reason}: {line or error.reason}", log=error.log) from error


@contextlib.contextmanager
def _client(command: list[str], *, mark: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the running benchmark client; it ends with the block, or with this process."""
    environment = server_environment({}, gpu_uuids=[], is_cpu=False, mark=mark)
    with log.open("wb") as output:
        process = subprocess.Popen(
            supervised(command),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.stdin:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _of_disk(folder: Path) -> str:
    """Return what to say of a disk that is full: the client's own words may be lost with it."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return "" if free > _LITTLE_BYTES else f"; the disk of {folder} is full"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
