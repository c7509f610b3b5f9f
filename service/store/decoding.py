"""Reading records that another release wrote: what it knew beyond this one is left out.

Several releases meet on one store while they are rolled out, and a rollback finds records of its
successor. Shared nouns refuse unknown fields from callers; in a record they are no mistake.
"""

import re
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>[^`]*)`( - at `\$(?P<path>.*)`)?$")
_STEP = re.compile(r"\.([^.\[]+)|(\[[^\]]*\])")
_MOST_UNKNOWN = 100


class UnreadableRecord(Exception):
    """A record that this release cannot read, whatever is left out of it."""


def decode_record(data: bytes, kind: type[_T]) -> _T:
    """Return a stored record of any release.

    Raises:
        UnreadableRecord: It lacks what this release needs, or holds what it does not know.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        if not isinstance(error, msgspec.ValidationError):
            raise UnreadableRecord(str(error)) from error
        return _decode_known(msgspec.json.decode(data), kind)


def _decode_known(raw: Any, kind: type[_T]) -> _T:  # noqa: ANN401  # any JSON
    for _ in range(_MOST_UNKNOWN):
        try:
            return msgspec.json.decode(msgspec.json.encode(raw), type=kind)
        except msgspec.ValidationError as error:
            unknown = _UNKNOWN.match(str(error))
            if unknown is None:
                raise UnreadableRecord(str(error)) from error
            _drop(raw, [*_STEP.finditer(unknown["path"] or "")], unknown["name"])
    raise UnreadableRecord("too many unknown fields")


def _drop(node: Any, path: list[re.Match[str]], name: str) -> None:  # noqa: ANN401  # any JSON
    """Drop a field at a path, in which `[...]` stands for every item."""
    if isinstance(node, list | dict) and path:
        step, *rest = path
        if step[1] is not None:
            children = [node.get(step[1])] if isinstance(node, dict) else []
        else:
            children = list(node.values()) if isinstance(node, dict) else node
        for child in children:
            _drop(child, rest, name)
    elif isinstance(node, dict):
        node.pop(name, None)
