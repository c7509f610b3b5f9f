"""Values of settings as text on vLLM's command line, both ways."""

import json
import math
import re
from collections.abc import Callable

from api_schemas.base import Json
from service.tuning.engine.grammar import Kind, Setting

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LARGEST_INT = 2**63 - 1
"""What fits where such a number goes on: JSON readers, vLLM's own tensors."""
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")


def write_value(setting: Setting, value: Json) -> str:
    """Return one value as vLLM reads it.

    Raises:
        TypeError: the value is of another kind than the setting.
        ValueError: it is of that kind but cannot be written.
    """
    match setting.kind:
        case "int" | "size":
            return str(_whole(value))
        case "size_or_auto":
            return "auto" if value in {"auto", -1} else str(_whole(value))
        case "float":
            return _write_float(value)
        case "json":
            return _write_json(value)
        case "json_or_str" if isinstance(value, dict):
            return _write_json(value)
        case _:
            return _write_text(value)


def read_value(setting: Setting, text: str) -> Json:
    """Return the value that vLLM takes from `text`; None when it reads it as not set.

    Raises:
        ValueError: vLLM refuses the text; the message says why.
    """
    reader = _READERS.get(setting.kind)
    return text if reader is None else reader(text)


def read_size(text: str) -> int:
    """Return a number with an optional suffix: k, m, g, t are decimal, K, M, G, T binary.

    Decimal fractions go with decimal suffixes only: vllm/utils/argparse_utils.py.

    Raises:
        ValueError: the text is neither a whole number nor one with such a suffix.
    """
    match = _SUFFIXED.fullmatch(text.strip())
    if match is None:
        return _read_int(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        product = float(number) * _DECIMAL[suffix]
        if product > _LARGEST_INT:
            raise ValueError(f"{text[:40]} is too large")
        return int(product)
    if "." in number:
        raise ValueError(
            f"{text} mixes a fraction with the binary suffix {suffix};"
            f" {number}{suffix.lower()} counts in thousands"
        )
    return _read_int(str(_read_int(number) * _BINARY[suffix]))


def write_pairs(value: Json) -> str:
    """Return `image=2,video=1`.

    Raises:
        TypeError: the value is no object of counts.
    """
    if not isinstance(value, dict) or not all(isinstance(count, int) for count in value.values()):
        raise TypeError("each modality takes a count there")
    return ",".join(f"{modality}={count}" for modality, count in value.items())


def read_pairs(text: str) -> dict[str, int]:
    """Return the counts of `image=2,video=1`.

    Raises:
        ValueError: a part is no name with a whole number.
    """
    parts = [part.partition("=") for part in text.split(",") if part]
    return {name.strip(): _read_int(count) for name, _, count in parts}


def _whole(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not a whole number")
    return int(value)


def _write_float(value: Json) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not finite")
    return str(int(value)) if float(value).is_integer() and abs(value) < 10**15 else repr(value)


def _write_json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _write_text(value: Json) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"{value!r} is not text")
    text = str(value)
    if "\0" in text:
        raise ValueError("a NUL character cannot stand on a command line")
    return text


def _read_int(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a whole number") from None
    if abs(number) > _LARGEST_INT:
        raise ValueError(f"{text[:40]} is too large")
    return number


def _read_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]!r} is not finite")
    return value


def read_json(text: str) -> Json:
    """Return what JSON text holds: finite numbers, whole ones of at most 64 bits.

    Raises:
        ValueError: the text is not such JSON.
    """
    try:
        return json.loads(text, parse_int=_read_int, parse_constant=_read_float)
    except (ValueError, RecursionError):
        raise ValueError(f"{text[:80]!r} is not JSON") from None


def _read_size_or_auto(text: str) -> Json:
    return "auto" if text.strip().lower() in {"auto", "-1"} else read_size(text)


def _read_optional_json(text: str) -> Json:
    return None if text in {"", "None"} else read_json(text)


def _read_json_or_text(text: str) -> Json:
    return read_json(text) if re.fullmatch(r"(?s)\s*{.*}\s*", text) else text


_READERS: dict[Kind, Callable[[str], Json]] = {
    "int": _read_int,
    "size": read_size,
    "size_or_auto": _read_size_or_auto,
    "float": _read_float,
    "json": _read_optional_json,
    "json_or_str": _read_json_or_text,
}
