"""`docker run`: image, environment, shared memory, GPUs, and the command behind the image."""

from collections.abc import Sequence

from service.tuning.lint.container import ContainerCommand, read_container, shm_gib_of
from service.tuning.lint.found import Container, Reading, Variable, Word
from service.tuning.lint.text import Span

_TAKES_VALUE = frozenset(
    {
        "--add-host",
        "--annotation",
        "--attach",
        "--cap-add",
        "--cap-drop",
        "--cgroupns",
        "--cidfile",
        "--cpu-shares",
        "--cpus",
        "--cpuset-cpus",
        "--cpuset-mems",
        "--device",
        "--dns",
        "--entrypoint",
        "--env",
        "--env-file",
        "--expose",
        "--gpus",
        "--group-add",
        "--health-cmd",
        "--hostname",
        "--ip",
        "--ipc",
        "--label",
        "--link",
        "--log-driver",
        "--log-opt",
        "--memory",
        "--memory-swap",
        "--mount",
        "--name",
        "--net",
        "--network",
        "--oom-score-adj",
        "--pid",
        "--platform",
        "--publish",
        "--pull",
        "--restart",
        "--runtime",
        "--secret",
        "--security-opt",
        "--shm-size",
        "--stop-timeout",
        "--sysctl",
        "--tmpfs",
        "--ulimit",
        "--user",
        "--userns",
        "--volume",
        "--workdir",
        "-a",
        "-e",
        "-h",
        "-l",
        "-m",
        "-p",
        "-u",
        "-v",
        "-w",
    }
)
"""Options whose value is the next word: docs.docker.com, docker container run."""


def read_docker_run(words: Sequence[Word], *, depth: int) -> Reading:
    """Return the engine that `docker run ...` starts; nothing for other docker commands."""
    run = next((i for i, word in enumerate(words[:4]) if word.value in {"run", "create"}), None)
    if run is None:
        return Reading()
    options = _Options(words, run + 1)
    if options.image is None:
        return Reading()
    span = Span(words[0].place.start, words[-1].place.end)
    return read_container(
        ContainerCommand(
            title="docker run",
            form="shell",
            span=span,
            image=options.image.value,
            image_unresolved=options.image.unresolved,
            entrypoint=options.entrypoint,
            arguments=options.arguments,
            env=tuple(options.env),
            container=Container(
                kind="docker run",
                image=options.image.value,
                shm_gib=options.shm_gib,
                gpus=options.gpus,
                span=span,
            ),
        ),
        depth=depth,
    )


class _Options:
    """The options of `docker run`, read up to the image."""

    def __init__(self, words: Sequence[Word], start: int) -> None:
        self.env: list[Variable] = []
        self.entrypoint: tuple[Word, ...] | None = None
        self.shm_gib: float | None = 64 / 1024
        self.gpus: float | None = None
        self.image: Word | None = None
        self.arguments: tuple[Word, ...] = ()
        index = start
        while index < len(words):
            word = words[index]
            if not word.value.startswith("-"):
                if word.unresolved is not None and word.is_splittable:
                    index += 1
                    continue
                self.image, self.arguments = word, tuple(words[index + 1 :])
                return
            name, equals, value = word.value.partition("=")
            if equals:
                self._take(name, value, word)
            elif name in _TAKES_VALUE and index + 1 < len(words):
                index += 1
                self._take(name, words[index].value, words[index])
            index += 1

    def _take(self, name: str, value: str, word: Word) -> None:
        if name in {"-e", "--env"}:
            variable, equals, text = value.partition("=")
            known = text if equals and word.unresolved is None else None
            self.env.append(Variable(variable, known, word.place))
        elif name == "--entrypoint":
            self.entrypoint = (word,) if value else ()
        elif name == "--ipc":
            self.shm_gib = float("inf") if value == "host" else self.shm_gib
        elif name == "--shm-size":
            self.shm_gib = shm_gib_of(value) if word.unresolved is None else None
        elif name == "--gpus":
            self.gpus = _gpu_count(value)


def _gpu_count(value: str) -> float | None:
    """Return the GPUs of `--gpus 2` or `--gpus "device=0,1"`; None for all of them."""
    text = value.strip("'\"")
    if text.isdigit():
        return float(text)
    if text.startswith("device="):
        return float(len(text.removeprefix("device=").split(",")))
    return None
