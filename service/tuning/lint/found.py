"""What a reader finds: engines with their arguments, environment and container."""

from typing import Literal

import msgspec

from api_schemas.base import Json
from service.tuning.engine.batch_limits import Usage
from service.tuning.lint.text import Span, Text

Form = Literal["shell", "items", "yaml", "python", "env"]
"""How arguments stand in the file: words of a command, items of a list, keys, keywords; or only
variables."""


class Word(msgspec.Struct, frozen=True):
    """One argument."""

    text: Text
    unresolved: str | None = None
    """What in it cannot be resolved, such as ${TP}; None when all of it is known."""
    is_splittable: bool = False
    """An unquoted expansion: it may become any number of arguments."""
    span: Span | None = None
    """The whole argument with its quotes."""

    @property
    def value(self) -> str:
        """The argument as the program sees it."""
        return self.text.value

    @property
    def place(self) -> Span:
        """Where it stands."""
        return self.span or self.text.span


class Given(msgspec.Struct, frozen=True):
    """One setting as a keyword argument or a key, with its value."""

    name: str
    value: Json
    name_span: Span
    value_span: Span
    unresolved: str | None = None


class Variable(msgspec.Struct, frozen=True):
    """One environment variable."""

    name: str
    value: str | None
    """None when it comes from elsewhere."""
    span: Span


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader noticed beside the settings."""

    rule: str
    message: str
    span: Span
    setting: str | None = None
    suggestion: str | None = None


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds a server."""

    kind: str
    """How people call it: `compose service`, `Deployment`, `docker run`."""
    image: str | None = None
    shm_gib: float | None = None
    """Size of /dev/shm where it is stated; infinity where the host's is shared."""
    gpus: float | None = None
    """GPUs that it asks for."""
    span: Span = Span(0, 0)
    gpus_span: Span | None = None


class FoundEngine(msgspec.Struct, frozen=True, kw_only=True):
    """One server or `LLM(...)`, as it stands in a file."""

    title: str
    form: Form
    span: Span
    usage: Usage = "serve"
    words: tuple[Word, ...] = ()
    """The command line from `serve` or the server's module on; empty for keyword forms."""
    given: tuple[Given, ...] = ()
    """Settings of keyword forms."""
    model: Word | None = None
    """The model of keyword forms, or one that the surroundings name."""
    env: tuple[Variable, ...] = ()
    version_text: str | None = None
    """vLLM's version where the image's tag says it."""
    container: Container | None = None
    remarks: tuple[Remark, ...] = ()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """All that one file holds."""

    engines: tuple[FoundEngine, ...] = ()
    remarks: tuple[Remark, ...] = ()
