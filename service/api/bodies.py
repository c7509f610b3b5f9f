"""Reading request bodies: strictly, with the place of a mistake and what is allowed there."""

import contextlib
import json
import re
from collections import Counter
from typing import Any, TypeVar

import msgspec

from service.api.problems import Refusal, refuse_field
from service.field_hints import explain_mistake
from service.whole_numbers import decode_json

T = TypeVar("T")

MAX_DEPTH = 64
"""Nesting of a body: the deepest config.json known needs 8."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_LONG_DIGITS = re.compile(rb"\d{20}")
_SHOWN = 64
"""Characters of a key that an answer repeats."""
_HUGE_INTEGER = re.compile(rb"(?<![\d.eE+])\d{20,}(?![\d.eE])")


def read_body(body: bytes, kind: type[T]) -> T:
    """Return the Struct that a JSON body holds.

    Raises:
        Refusal: It is empty, malformed, too deep, not of this kind, or says one thing twice.
    """
    if not body.strip():
        raise refuse_field("", "it is empty; send a JSON object")
    refuse_extremes(body)
    try:
        read = decode_json(body, kind)
    except msgspec.ValidationError as error:
        mistake = explain_mistake(str(error), kind)
        raise refuse_field(mistake.pointer, mistake.message) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise refuse_field("", str(error)) from None
    except RecursionError:
        raise _too_deep() from None
    refuse_repeated_keys(body)
    return read


def refuse_extremes(body: bytes) -> None:
    """Return when a body is one that a parser can take without trouble.

    Raises:
        Refusal: It is too deep, or holds an integer that nothing here needs.
    """
    _refuse_deep_nesting(body)
    _refuse_huge_integers(body)


def refuse_repeated_keys(body: bytes) -> None:
    """Return when no object of a JSON body has a key twice: decoders keep the last one silently.

    What is no JSON is not judged here.

    Raises:
        Refusal: One has.
    """
    with contextlib.suppress(ValueError):
        _KEYS.decode(body.decode())


def _refuse_repeated_key(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) == len(pairs):
        return
    counted = Counter(name for name, _ in pairs)
    name = counted.most_common(1)[0][0]
    raise refuse_field("", f"the key {name[:_SHOWN]!r} stands twice in one object")


_KEYS = json.JSONDecoder(object_pairs_hook=_refuse_repeated_key)


def _refuse_deep_nesting(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise _too_deep()


def _refuse_huge_integers(body: bytes) -> None:
    """Refuse integers beyond 64 bits: no quantity here needs one, and floats would overflow."""
    if _LONG_DIGITS.search(body) and _HUGE_INTEGER.search(_STRING.sub(b"", body)):
        raise refuse_field("", "it holds an integer of more than 64 bits")


def _too_deep() -> Refusal:
    return Refusal("too-large", f"The body is nested more than {MAX_DEPTH} levels deep.")


def encode(value: Any) -> bytes:  # noqa: ANN401  # any Struct of the wire
    """Return the bytes of an answer; the same value always gives the same bytes."""
    return msgspec.json.encode(value)
