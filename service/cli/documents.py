"""Reading requests: JSON or YAML from a file or standard input, decoded once."""

import sys
from codecs import BOM_UTF8
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
import yaml

from api_schemas.problem import Problem
from service.field_hints import explain_mistake
from service.problems import make_problem
from service.whole_numbers import convert, decode_json

T = TypeVar("T")
_MAX_BYTES = 16 * 1024 * 1024


class Refused(Exception):
    """A request that is not carried out; the problem says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def read_document(source: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`."""
    if source == "-":
        content = standard_input().read(_MAX_BYTES + 1)
    else:
        try:
            with Path(source).open("rb") as handle:
                content = handle.read(_MAX_BYTES + 1)
        except OSError as error:
            raise refused(f"cannot read {source}: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise refused(f"{source} is larger than {_MAX_BYTES:,} bytes")
    return content


def standard_input() -> BinaryIO:
    """Return standard input as bytes; Python has none when it was closed before the start."""
    if sys.stdin is None:
        raise refused("standard input is closed")
    return sys.stdin.buffer


def decode(content: bytes, kind: type[T], *, source: str = "") -> T:
    """Return the Struct that JSON bytes, or YAML for `.yaml` and `.yml`, hold."""
    try:
        if source.endswith((".yaml", ".yml")):
            return convert(yaml.safe_load(content), kind)
        return decode_json(content.removeprefix(BOM_UTF8), kind)
    except msgspec.ValidationError as error:
        field = explain_mistake(str(error), kind)
        where = field.pointer or "the document"
        problem = make_problem(
            "invalid-request", f"{where}: {field.message}", errors=(field,), instance=source
        )
        raise Refused(problem) from error
    except (msgspec.DecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise refused(f"{source or 'the document'} cannot be read: {error}") from error


def refused(detail: str) -> Refused:
    """Return the refusal of an input that is no request at all."""
    return Refused(make_problem("invalid-request", detail))
