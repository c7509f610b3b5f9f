"""What reading a command line gives: settings, their places, problems."""

from typing import Literal, TypedDict, Unpack

import msgspec

from api_schemas.engine import EngineConfig

ProblemCode = Literal[
    "unknown-setting",
    "not-in-version",
    "boolean-takes-no-value",
    "missing-value",
    "bad-value",
    "bad-choice",
    "ambiguous",
    "abbreviated",
    "duplicate",
    "unexpected-argument",
    "no-model",
]


class ArgvProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a command line, or not what it looks like."""

    index: int
    """Position in the argument list that was given."""
    code: ProblemCode
    message: str
    is_refused: bool
    """Whether vLLM refuses the command line for it."""
    setting: str | None = None
    suggestion: str | None = None


class ParsedArgv(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line says."""

    model: str | None
    config: EngineConfig
    problems: tuple[ArgvProblem, ...]
    places: dict[str, int]
    """For each setting the index of the argument that decides it."""
    config_file: str | None
    left_out: tuple[str, ...]
    """Flags that are vLLM's but no part of a configuration, such as secrets."""

    @property
    def is_accepted(self) -> bool:
        """Whether that release's parser would accept the command line."""
        return not any(problem.is_refused for problem in self.problems)


class _About(TypedDict, total=False):
    setting: str | None
    suggestion: str | None


class Problems:
    """Collects what is wrong, in any order."""

    def __init__(self) -> None:
        self._found: list[ArgvProblem] = []

    def refuse(self, index: int, code: ProblemCode, message: str, **about: Unpack[_About]) -> None:
        """Add something that vLLM refuses."""
        self._found.append(
            ArgvProblem(index=index, code=code, message=message, is_refused=True, **about)
        )

    def note(self, index: int, code: ProblemCode, message: str, **about: Unpack[_About]) -> None:
        """Add something that vLLM accepts although it is not what it looks like."""
        self._found.append(
            ArgvProblem(index=index, code=code, message=message, is_refused=False, **about)
        )

    def in_order(self) -> tuple[ArgvProblem, ...]:
        """Return all problems by place."""
        return tuple(sorted(self._found, key=lambda problem: problem.index))
