"""Compose files: services that start vLLM."""

import re
from collections.abc import Iterator

import msgspec

from service.tuning.lint.container import ContainerCommand, read_container, shm_gib_of
from service.tuning.lint.found import Container, FoundEngine, Reading, Variable, Word
from service.tuning.lint.manifest_words import number, variables, words_of
from service.tuning.lint.text import Text
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, find, find_text, items

_INTERPOLATION = re.compile(
    r"\$(?:\$|\{(?P<braced>[A-Za-z_]\w*)(?P<operator>:?[-?+](?P<word>[^}]*))?\}"
    r"|(?P<plain>[A-Za-z_]\w*))"
)
_DEFAULT_SHM_GIB = 64 / 1024


def is_compose(document: Node) -> bool:
    """Whether the document has services with images or builds."""
    services = find(document, "services")
    if not isinstance(services, Mapping):
        return False
    return any(
        find(value, key) is not None
        for _, value in services.entries
        for key in ("image", "build", "extends")
    )


def read_compose(document: Node, content: str) -> Reading:
    """Return the engines of a compose file."""
    services = find(document, "services")
    engines: list[FoundEngine] = []
    for key, service in services.all_entries() if isinstance(services, Mapping) else ():
        if isinstance(service, Mapping):
            engines += _service(key.text.value, service, content).engines
    return Reading(engines=tuple(engines))


def _service(name: str, service: Mapping, content: str) -> Reading:
    image = find(service, "image")
    image_word = (
        _interpolated(Word(image.text, span=image.span)) if isinstance(image, Scalar) else None
    )
    title = f"compose service {name}"
    text = None if image_word is None or image_word.unresolved else image_word.value
    command = ContainerCommand(
        title=title,
        form="items" if items(service, "command") else "shell",
        span=service.span,
        image=text or (image_word.value if image_word is not None else None),
        entrypoint=_words(find(service, "entrypoint"), content),
        arguments=_words(find(service, "command"), content) or (),
        env=tuple(_variable(v) for v in variables(find(service, "environment"), content)),
        container=Container(
            kind="compose service",
            image=text,
            shm_gib=_shm_gib(service),
            gpus=_gpus(service),
            span=service.span,
        ),
    )
    return read_container(command)


def _words(node: Node | None, content: str) -> tuple[Word, ...] | None:
    words = words_of(node, content)
    if words is None or isinstance(node, Scalar):
        return words
    return tuple(_interpolated(word) for word in words)


def _interpolated(word: Word) -> Word:
    """Return the word as Compose hands it on: defaults filled in, $$ made $."""
    if "$" not in word.value:
        return word
    unresolved: list[str] = []

    def fill(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        operator = match.group("operator") or ""
        if operator.lstrip(":")[:1] == "-":
            return match.group("word")
        unresolved.append(match.group(0))
        return match.group(0)

    value = _INTERPOLATION.sub(fill, word.value)
    return msgspec.structs.replace(
        word,
        text=word.text if value == word.value else Text.near(value, word.text.start),
        unresolved=unresolved[0] if unresolved else None,
        span=word.place,
    )


def _variable(variable: Variable) -> Variable:
    if variable.value is None or "$" not in variable.value:
        return variable
    word = _interpolated(Word(Text.near(variable.value, variable.span.start), span=variable.span))
    return msgspec.structs.replace(variable, value=None if word.unresolved else word.value)


def _shm_gib(service: Mapping) -> float | None:
    if find_text(service, "ipc") == "host":
        return float("inf")
    size = find_text(service, "shm_size")
    if size is not None:
        return shm_gib_of(size)
    mounts = [find_text(item) or find_text(item, "target") or "" for item in _mounts(service)]
    return float("inf") if any("/dev/shm" in mount for mount in mounts) else _DEFAULT_SHM_GIB  # noqa: S108


def _mounts(service: Mapping) -> Iterator[Node]:
    yield from items(service, "volumes")
    yield from items(service, "tmpfs")


def _gpus(service: Mapping) -> float | None:
    for device in items(service, "deploy", "resources", "reservations", "devices"):
        count = number(find(device, "count"))
        if count is not None:
            return count
        ids = items(device, "device_ids")
        if ids:
            return float(len(ids))
    return None
