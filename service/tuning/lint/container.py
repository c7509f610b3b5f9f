"""A container: which command it runs, with image entry point, environment and $(NAME) expansion."""

import re
from typing import Literal

import msgspec

from service.tuning.engine.argv_tokens import SERVER_MODULE
from service.tuning.lint.found import Container, Form, FoundEngine, Reading, Remark, Variable, Word
from service.tuning.lint.text import Span, Text

_SERVER_IMAGE = re.compile(
    r"(?:^|/)(?:vllm/)?vllm-openai[^/:]*(?::|@|$)|(?:^|/)vllm-cpu-release-repo(?::|@|$)"
)
"""Images whose own entry point is the server; their tags are vLLM's releases."""
_RELEASE_TAG = re.compile(r":v?(\d+\.\d+\.\d+(?:\.post\d+|rc\d+|\.\d+)?)")
_FOREIGN_TAG = re.compile(r"(?:^|/)(?:lmcache|llm-d)/")
_K8S_EXPANSION = re.compile(r"(?<!\$)\$\(([A-Za-z_][\w.-]*)\)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
Dialect = Literal["none", "kubernetes"]


class ContainerCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What a container definition says about its command."""

    title: str
    form: Form
    span: Span
    image: str | None
    image_unresolved: str | None = None
    entrypoint: tuple[Word, ...] | None
    """None is the image's own; empty is none at all."""
    arguments: tuple[Word, ...]
    env: tuple[Variable, ...]
    container: Container
    dialect: Dialect = "none"
    remarks: tuple[Remark, ...] = ()


def read_container(command: ContainerCommand, *, depth: int = 0) -> Reading:
    """Return the engines that the container starts; nothing when it is no vLLM."""
    # The two readers need each other: a script may run a container, a container a script.
    from service.tuning.lint.shell import (  # noqa: PLC0415
        engine_of_words,
        nested_script,
        read_shell,
    )

    words = _command_line(command)
    if command.dialect == "kubernetes":
        command = msgspec.structs.replace(command, env=expanded_variables(command.env))
        words = tuple(_expanded(word, command.env) for word in words)
    script = nested_script(words[:4])
    if script is not None:
        found = read_shell(script.text, env=command.env, depth=depth + 1).engines
    else:
        engine = engine_of_words(words, title=command.title, env=command.env, form=command.form)
        found = () if engine is None else (engine,)
    return Reading(engines=tuple(_inside(engine, command) for engine in found))


def image_version(image: str | None) -> str | None:
    """Return the vLLM release that an image's tag names; None when it names none."""
    if image is None or not is_server_image(image) or _FOREIGN_TAG.search(image):
        return None
    match = _RELEASE_TAG.search(image)
    return match.group(1) if match is not None else None


def is_server_image(image: str) -> bool:
    """Whether the image starts vLLM's server by itself."""
    return _SERVER_IMAGE.search(image) is not None


def shm_gib_of(text: str) -> float | None:
    """Return a size such as 16g, 64mb or 8Gi in GiB; None when it is none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    number, unit, _ = match.groups()
    return float(number) * 1024.0 ** _POWERS[unit.lower()] / 2**30


def _command_line(command: ContainerCommand) -> tuple[Word, ...]:
    if command.entrypoint is not None:
        return (*command.entrypoint, *command.arguments)
    if command.image is None or not is_server_image(command.image):
        return command.arguments
    anchor = command.arguments[0].place.start if command.arguments else command.span.start
    first = command.arguments[0].value if command.arguments else ""
    if first in {"serve", "vllm", "bash", "sh", "/bin/bash", "/bin/sh"}:
        # Older images start the module, so these are mistakes there; newer ones are called so.
        return command.arguments
    has_model = any(word.value.partition("=")[0] == "--model" for word in command.arguments)
    if has_model:
        return (_made("-m", anchor), _made(SERVER_MODULE, anchor), *command.arguments)
    return (_made("vllm", anchor), _made("serve", anchor), *command.arguments)


def _made(value: str, start: int) -> Word:
    return Word(Text.near(value, start), span=Span(start, start))


def _inside(engine: FoundEngine, command: ContainerCommand) -> FoundEngine:
    return msgspec.structs.replace(
        engine,
        title=command.title,
        container=command.container,
        version_text=image_version(command.image),
        remarks=(*engine.remarks, *command.remarks),
    )


def expanded_variables(env: tuple[Variable, ...]) -> tuple[Variable, ...]:
    """Return a pod's variables with $(NAME) of earlier ones filled in, and $$( made $(."""
    known: dict[str, str | None] = {}
    found: list[Variable] = []
    for variable in env:
        value = _filled(variable.value, known)
        known[variable.name] = value
        found.append(msgspec.structs.replace(variable, value=value))
    return tuple(found)


def _filled(value: str | None, known: dict[str, str | None]) -> str | None:
    """Return the text with known variables; None where one comes from elsewhere."""
    if value is None or "$(" not in value:
        return value
    names = _K8S_EXPANSION.findall(value)
    if any(name in known and known[name] is None for name in names):
        return None
    # Names that the pod does not set stay as they are written.
    filled = _K8S_EXPANSION.sub(
        lambda match: known.get(match.group(1), match.group(0)) or "", value
    )
    return filled.replace("$$(", "$(")


def _expanded(word: Word, env: tuple[Variable, ...]) -> Word:
    """Return the word with $(NAME) replaced by the container's own variables."""
    if "$(" not in word.value and "$$" not in word.value:
        return word
    known = {variable.name: variable.value for variable in env}
    names = _K8S_EXPANSION.findall(word.value)
    if any(known.get(name) is None for name in names):
        return msgspec.structs.replace(word, unresolved=f"$({names[0]})")
    value = _K8S_EXPANSION.sub(lambda match: known[match.group(1)] or "", word.value)
    return msgspec.structs.replace(
        word, text=Text.near(value.replace("$$(", "$("), word.text.start), span=word.place
    )
