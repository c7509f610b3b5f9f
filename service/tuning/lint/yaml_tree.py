"""YAML as a tree in which every value knows its place; read within limits, never constructed.

The events of the parser are assembled here instead of composed by the library: no recursion in C,
no objects of foreign classes, and a count of what aliases multiply.
"""

import re
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import yaml

from api_schemas.base import Json
from service.tuning.lint.limits import MAX_DEPTH, MAX_NODES, Unreadable
from service.tuning.lint.text import SourceFile, Span, Text
from service.tuning.lint.yaml_text import scalar_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOREIGN = re.compile(r"tag:yaml\.org,2002:python|!!python")


class Scalar(msgspec.Struct, frozen=True):
    """One value that is neither list nor mapping."""

    text: Text
    value: Json
    """As YAML resolves it: text, number, truth value or nothing."""
    span: Span
    tag: str | None = None
    """A tag that is not YAML's own, such as !Ref."""


class Sequence(msgspec.Struct, frozen=True):
    """A list."""

    items: "tuple[Node, ...]"
    span: Span


class Mapping(msgspec.Struct, frozen=True):
    """A mapping; of a key given twice the last one counts."""

    entries: "tuple[tuple[Scalar, Node], ...]"
    span: Span

    def get(self, name: str) -> "Node | None":
        """Return the value of a key; keys that are merged in with << come after its own."""
        found: Node | None = None
        for key, value in self.entries:
            if key.text.value == name:
                found = value
        return found if found is not None else self._merged(name)

    def _merged(self, name: str) -> "Node | None":
        for source in self._merges():
            found = source.get(name)
            if found is not None:
                return found
        return None

    def _merges(self) -> "Iterator[Mapping]":
        for key, value in self.entries:
            if key.text.value == "<<":
                candidates = value.items if isinstance(value, Sequence) else (value,)
                yield from (node for node in candidates if isinstance(node, Mapping))

    def all_entries(self) -> "Iterator[tuple[Scalar, Node]]":
        """Yield every key with its value, those that are merged in first."""
        for source in self._merges():
            yield from source.all_entries()
        for key, value in self.entries:
            if key.text.value != "<<":
                yield key, value


Node = Scalar | Sequence | Mapping


def read_yaml(file: SourceFile) -> list[Node]:
    """Return the documents of a file.

    Raises:
        Unreadable: it is no YAML, asks for foreign objects, or goes beyond the limits.
    """
    builder = _Builder(file)
    try:
        for event in yaml.parse(file.content, Loader=_loader()):
            builder.add(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        offset = 0 if mark is None else file.offset_of(mark.line, mark.column)
        reason = f"it is not YAML: {error.problem}"
        raise Unreadable(reason, offset=offset, is_malformed=True) from None
    except (yaml.YAMLError, ValueError) as error:
        reason = f"it is not YAML: {str(error).splitlines()[0]}"
        raise Unreadable(reason, is_malformed=True) from None
    return builder.documents


@cache
def _loader() -> type:
    """Return the quick reader where it is built in, else the plain one."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Open:
    """A list or mapping that is still being read."""

    def __init__(self, event: yaml.CollectionStartEvent) -> None:
        self.event = event
        self.is_mapping = isinstance(event, yaml.MappingStartEvent)
        self.children: list[Node] = []
        self.size = 1


class _Builder:
    """Assembles documents from events."""

    def __init__(self, file: SourceFile) -> None:
        self.documents: list[Node] = []
        self._content = file.content
        self._open: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._sizes: dict[str, int] = {}
        self._count = 0

    def add(self, event: yaml.Event) -> None:
        """Take the next event."""
        match event:
            case yaml.ScalarEvent():
                self._put(self._scalar(event), anchor=event.anchor, size=1)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.CollectionStartEvent():
                _refuse_foreign(event)
                self._open.append(_Open(event))
                if len(self._open) > MAX_DEPTH:
                    raise Unreadable(
                        f"it is nested more than {MAX_DEPTH} levels deep",
                        offset=_start(event),
                    )
            case yaml.CollectionEndEvent():
                self._close(event)
            case _:
                pass

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        _refuse_foreign(event)
        start, end = _start(event), _end(event)
        raw = self._content[start:end]
        text = scalar_text(event.value, raw=raw, start=start, style=event.style)
        tag = event.tag if event.tag and not event.tag.startswith("tag:yaml.org,2002:") else None
        is_plain = not event.style and event.tag is None
        value = _resolve(event.value) if is_plain else event.value
        return Scalar(text, value, Span(start, max(end, start)), tag)

    def _alias(self, event: yaml.AliasEvent) -> None:
        name = event.anchor
        if name not in self._anchors:
            raise Unreadable(f"the alias *{name} names nothing", offset=_start(event))
        size = self._sizes[name]
        self._put(self._anchors[name], anchor=None, size=size, new=size)

    def _close(self, event: yaml.CollectionEndEvent) -> None:
        done = self._open.pop()
        span = Span(_start(done.event), _end(event))
        node: Node
        if done.is_mapping:
            node = Mapping(_pairs(done.children), span)
        else:
            node = Sequence(tuple(done.children), span)
        self._put(node, anchor=done.event.anchor, size=done.size)

    def _put(self, node: Node, *, anchor: str | None, size: int, new: int = 1) -> None:
        """Hang a node into what is open; `size` is all it holds, `new` what was not counted yet."""
        self._count += new
        if self._count > MAX_NODES:
            raise Unreadable(
                f"it holds more than {MAX_NODES:,} values once its aliases are followed",
                offset=node.span.start,
            )
        if anchor is not None:
            self._anchors[anchor], self._sizes[anchor] = node, size
        if self._open:
            self._open[-1].children.append(node)
            self._open[-1].size += size
        else:
            self.documents.append(node)


def _pairs(children: list[Node]) -> tuple[tuple[Scalar, Node], ...]:
    """Return keys with their values; a key that is a list or mapping names no setting."""
    pairs = zip(children[::2], children[1::2], strict=True)
    return tuple((key, value) for key, value in pairs if isinstance(key, Scalar))


def _start(event: yaml.Event) -> int:
    return 0 if event.start_mark is None else event.start_mark.index


def _end(event: yaml.Event) -> int:
    return 0 if event.end_mark is None else event.end_mark.index


def _refuse_foreign(event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
    if event.tag is not None and _FOREIGN.search(event.tag):
        raise Unreadable(
            f"it asks for an object of Python ({event.tag[:60]})", offset=_start(event)
        )


_resolver = yaml.resolver.Resolver()
_constructor = yaml.constructor.SafeConstructor()
_KINDS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "null"))


def _resolve(value: str) -> Json:
    """Return a plain scalar as YAML 1.1 reads it; dates stay text."""
    tag = _resolver.resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
    if tag not in _KINDS:
        return value
    try:
        return _constructor.construct_object(yaml.ScalarNode(tag, value))
    except (ValueError, OverflowError):
        return value


def plain(node: Node) -> Json:
    """Return the values of a tree without their places."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key.text.value: plain(value) for key, value in node.all_entries()}


def find(node: "Node | None", *path: str) -> "Node | None":
    """Return what stands under a path of keys; None where a step is missing."""
    for name in path:
        if not isinstance(node, Mapping):
            return None
        node = node.get(name)
    return node


def find_text(node: "Node | None", *path: str) -> str | None:
    """Return the text under a path of keys; None where there is no single value."""
    found = find(node, *path)
    return found.text.value if isinstance(found, Scalar) else None


def items(node: "Node | None", *path: str) -> "tuple[Node, ...]":
    """Return the items of the list under a path of keys; nothing where there is none."""
    found = find(node, *path)
    return found.items if isinstance(found, Sequence) else ()
