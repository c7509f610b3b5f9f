"""Shell scripts: `vllm serve`, `python -m vllm...`, `docker run`, `bash -c`, exported variables."""

import re
from collections.abc import Sequence

import msgspec

from service.tuning.engine.argv_tokens import SERVER_MODULE
from service.tuning.lint.docker_run import read_docker_run
from service.tuning.lint.found import Form, FoundEngine, Reading, Variable, Word
from service.tuning.lint.limits import MAX_NESTED_SCRIPTS
from service.tuning.lint.shell_words import Array, Scope, Splitter, nesting_change
from service.tuning.lint.text import Text

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ash"})
_DOCKERS = frozenset({"docker", "podman", "nerdctl"})
_KEYWORDS = frozenset({"then", "do", "else", "elif", "{", "}", "!", "time", "in"})
_PROMPT = frozenset({"$", "#", ">", "%"})


def read_shell(text: Text, *, env: Sequence[Variable] = (), depth: int = 0) -> Reading:
    """Return the engines that a script starts.

    `env` are variables that are set around it. Raises Unreadable beyond the limits.
    """
    return _Script(text, env, depth=depth).read()


def engine_of_words(
    words: Sequence[Word],
    *,
    title: str = "",
    env: Sequence[Variable] = (),
    form: Form = "shell",
) -> FoundEngine | None:
    """Return the engine that one command starts; None when it starts none."""
    start = _server_start(words)
    if start is None:
        return None
    kept = tuple(words[start:])
    return FoundEngine(
        title=title or " ".join(_shown(word) for word in kept[:3]),
        form=form,
        span=kept[0].place,
        words=kept,
        env=tuple(env),
    )


def nested_script(words: Sequence[Word]) -> Word | None:
    """Return the script of `bash -c SCRIPT`; None when the command is something else."""
    names = [base_name(word.value) for word in words]
    for index, name in enumerate(names):
        if name in _SHELLS:
            for place in range(index + 1, len(words)):
                value = words[place].value
                if not value.startswith(("-", "+")):
                    return None
                if re.fullmatch(r"-[a-z]*c", value) and place + 1 < len(words):
                    return words[place + 1]
            return None
    return None


def base_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rsplit("/", 1)[-1]


def _server_start(words: Sequence[Word]) -> int | None:
    """Return where `serve` or the server's module stands among the words."""
    for index, word in enumerate(words):
        following = words[index + 1].value if index + 1 < len(words) else ""
        if base_name(word.value) == "vllm" and following == "serve":
            return index
        if word.value == SERVER_MODULE and index and words[index - 1].value == "-m":
            return index
        if word.value.endswith("vllm/entrypoints/openai/api_server.py"):
            return index
    return None


def _shown(word: Word) -> str:
    return word.value[:80] or (word.unresolved or "''")


class _Script:
    """Reads one script, command by command."""

    def __init__(self, text: Text, env: Sequence[Variable], *, depth: int) -> None:
        self._depth = depth
        self._scope: Scope = {}
        self._env: dict[str, Variable] = {variable.name: variable for variable in env}
        for variable in env:
            if variable.value is not None:
                self._scope[variable.name] = Word(
                    Text.near(variable.value, variable.span.start), span=variable.span
                )
        self._splitter = Splitter(text, self._scope)
        self._nesting = 0
        self._engines: list[FoundEngine] = []
        self._readings: list[Reading] = []

    def read(self) -> Reading:
        for words in self._splitter.commands():
            self._command(words)
        engines = [*self._engines, *(e for r in self._readings for e in r.engines)]
        return Reading(engines=tuple(engines))

    def _command(self, words: list[Word]) -> None:
        words = self._without_keywords(words)
        assigned, rest = self._assignments(words)
        if not rest:
            self._remember(assigned, is_exported=False)
            return
        name = base_name(rest[0].value)
        if name in {"export", "declare", "readonly", "local"}:
            exported, _ = self._assignments([w for w in rest[1:] if not w.value.startswith("-")])
            self._remember(exported, is_exported=name == "export")
            return
        around = {**self._env, **{v.name: v for v in assigned}}
        around.update((v.name, v) for v in _prefix_variables(rest))
        self._start(rest, env=tuple(around.values()))

    def _start(self, words: list[Word], *, env: tuple[Variable, ...]) -> None:
        if self._depth < MAX_NESTED_SCRIPTS:
            script = nested_script(words)
            is_docker = base_name(words[0].value) in _DOCKERS
            if script is not None and not is_docker and _server_start(words[:-1]) is None:
                self._readings.append(read_shell(script.text, env=env, depth=self._depth + 1))
                return
        names = [base_name(word.value) for word in words[:3]]
        docker = next((i for i, name in enumerate(names) if name in _DOCKERS), None)
        if docker is not None:
            self._readings.append(read_docker_run(words[docker:], depth=self._depth))
            return
        engine = engine_of_words(words, env=env)
        if engine is not None:
            self._engines.append(engine)

    def _without_keywords(self, words: list[Word]) -> list[Word]:
        kept = list(words)
        while kept and (kept[0].value in _KEYWORDS | _PROMPT or nesting_change(kept[0].value)):
            self._nesting = max(0, self._nesting + nesting_change(kept[0].value))
            self._splitter.nesting = self._nesting
            kept.pop(0)
        return kept

    def _assignments(self, words: Sequence[Word]) -> tuple[list[Variable], list[Word]]:
        """Return the leading NAME=value words, and the rest."""
        found: list[Variable] = []
        for index, word in enumerate(words):
            if not word.value and word.unresolved is None and word.span is not None:
                # An array, already remembered, or an empty word.
                continue
            match = _ASSIGNMENT.match(word.value)
            if match is None:
                return found, list(words[index:])
            value = None if word.unresolved else word.value[match.end() :]
            found.append(Variable(match.group(1), value, word.place))
        return found, []

    def _remember(self, variables: Sequence[Variable], *, is_exported: bool) -> None:
        for variable in variables:
            text = Text.near(variable.value or "", variable.span.start)
            unresolved = None if variable.value is not None else f"${variable.name}"
            known = self._scope.get(variable.name)
            is_other = isinstance(known, Array) or (
                known is not None and known.value != (variable.value or "")
            )
            if self._nesting and is_other:
                # Which branch runs is not known here.
                unresolved = f"${variable.name}"
            self._scope[variable.name] = Word(text, unresolved, span=variable.span)
            if is_exported or variable.name in self._env:
                self._env[variable.name] = msgspec.structs.replace(
                    variable, value=None if unresolved else variable.value
                )


def _prefix_variables(words: Sequence[Word]) -> list[Variable]:
    """Return the variables of `env NAME=value command`."""
    found: list[Variable] = []
    if base_name(words[0].value) != "env":
        return found
    for word in words[1:]:
        match = _ASSIGNMENT.match(word.value)
        if match is not None:
            value = None if word.unresolved else word.value[match.end() :]
            found.append(Variable(match.group(1), value, word.place))
        elif not word.value.startswith("-"):
            break
    return found
