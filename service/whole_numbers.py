"""Decoding in which 1.0 says the same as 1, as JSON has it: some serialisers write nothing else.

The decoder is strict, since its lax mode would take the text "1" for a number as well.
"""

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_WANTS_INTEGER = re.compile(r"Expected `[^`]*\bint\b[^`]*`, got `float`")
_MOST_EXACT = 2.0**53
"""Beyond it a float no longer tells neighbouring integers apart."""


def decode_json(content: bytes, kind: type[T]) -> T:
    """Return what JSON holds, whole numbers written as 2.0 or 2e0 included.

    Raises:
        msgspec.DecodeError: It is malformed, or not of this kind.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        if not _WANTS_INTEGER.match(str(error)):
            raise
    return msgspec.convert(_with_integers(msgspec.json.decode(content)), kind)


def convert(value: Any, kind: type[T]) -> T:  # noqa: ANN401  # whatever a parser made
    """Return what parsed YAML or JSON holds, read as `decode_json` does.

    Raises:
        msgspec.ValidationError: It is not of this kind.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if not _WANTS_INTEGER.match(str(error)):
            raise
    return msgspec.convert(_with_integers(value), kind)


def _with_integers(value: Any) -> Any:  # noqa: ANN401  # whatever a parser made
    """Return the same with every whole float as an integer: fields of floats take those too."""
    match value:
        case dict():
            return {name: _with_integers(item) for name, item in value.items()}
        case list():
            return [_with_integers(item) for item in value]
        case float() if value.is_integer() and abs(value) <= _MOST_EXACT:
            return int(value)
        case _:
            return value
