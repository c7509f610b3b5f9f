"""Typed access to a config.json that nobody has checked yet."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from api_schemas.base import Json
from service.tuning.errors import InvalidRequest, UnsupportedArchitecture

_MOST_LAYERS = 1_000
_LARGEST_SIZE = 2**32


class ConfigFields:
    """One object of a config.json; every access names the key when the value makes no sense."""

    def __init__(
        self, values: Mapping[str, Json], *, architecture: str, pointer: str = "/model/config"
    ) -> None:
        self._values = values
        self.architecture = architecture
        self.pointer = pointer

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def states(self, key: str) -> bool:
        """Whether the key is there at all, be it null."""
        return key in self._values

    def extended(self, values: Mapping[str, Json]) -> "ConfigFields":
        """Return these fields with others added."""
        return ConfigFields(
            {**self._values, **values}, architecture=self.architecture, pointer=self.pointer
        )

    def is_switched_off(self, key: str) -> bool:
        """Whether the key is there and null or 0, which says more than leaving it out."""
        return key in self._values and self._values[key] in (None, 0)

    def raw(self, key: str) -> Json:
        """Return the value as it stands, None when absent."""
        return self._values.get(key)

    def integer(self, *keys: str, minimum: int = 1, maximum: int = _LARGEST_SIZE) -> int:
        """Return the first of these keys that is set; raises when none is."""
        value = self.maybe_integer(*keys, minimum=minimum, maximum=maximum)
        if value is None:
            self.reject_missing(*keys)
        return value

    def maybe_integer(
        self, *keys: str, minimum: int = 1, maximum: int = _LARGEST_SIZE
    ) -> int | None:
        """Return the first of these keys that is set, or None."""
        for key in keys:
            value = self._values.get(key)
            if value is not None:
                return self._checked_integer(key, value, minimum=minimum, maximum=maximum)
        return None

    def integer_or(
        self, default: int, *keys: str, minimum: int = 1, maximum: int = _LARGEST_SIZE
    ) -> int:
        """Return the first of these keys that is set, else the default of the config class."""
        value = self.maybe_integer(*keys, minimum=minimum, maximum=maximum)
        return default if value is None else value

    def same_integer_or(
        self, default: int, *keys: str, minimum: int = 1, maximum: int = _LARGEST_SIZE
    ) -> int:
        """Return the first of these keys that is set; a list per layer must hold one value."""
        for key in keys:
            if not isinstance(self._values.get(key), list):
                continue
            values = set(self.integers(key, minimum=minimum) or ())
            if len(values) != 1:
                self.reject(key, "must be one number, or the same one for every layer")
            return self._checked_integer(key, values.pop(), minimum=minimum, maximum=maximum)
        return self.integer_or(default, *keys, minimum=minimum, maximum=maximum)

    def layers(self, *keys: str) -> int:
        """Return a number of layers."""
        return self.integer(
            *(keys or ("num_hidden_layers", "n_layer", "n_layers", "num_layers")),
            maximum=_MOST_LAYERS,
        )

    def number_or(
        self, default: float, *keys: str, minimum: float = 0.0, maximum: float = 1e9
    ) -> float:
        """Return the first of these keys that is set, as a float."""
        for key in keys:
            value = self._values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                self.reject(key, f"must be a number, got {_shown(value)}")
            if not minimum <= value <= maximum:
                shown = _shown(value)
                self.reject(key, f"must be between {minimum:g} and {maximum:g}, got {shown}")
            return float(value)
        return default

    def flag(self, *keys: str, default: bool = False) -> bool:
        """Return the first of these keys that is set, as a boolean."""
        for key in keys:
            value = self._values.get(key)
            if value is None:
                continue
            if not isinstance(value, bool):
                self.reject(key, f"must be true or false, got {_shown(value)}")
            return value
        return default

    def text(self, key: str) -> str | None:
        """Return a string, or None when absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            self.reject(key, f"must be a string, got {_shown(value)}")
        return value

    def strings(self, key: str) -> tuple[str, ...] | None:
        """Return a list of strings, or None when absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.reject(key, f"must be a list of strings, got {_shown(value)}")
        found = tuple(item for item in value if isinstance(item, str))
        if len(found) != len(value):
            self.reject(key, "must be a list of strings")
        return found

    def integers(self, key: str, *, minimum: int = 0) -> tuple[int, ...] | None:
        """Return a list of integers, or None when absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.reject(key, f"must be a list of integers, got {_shown(value)}")
        return tuple(
            self._checked_integer(key, item, minimum=minimum, maximum=_LARGEST_SIZE)
            for item in value
        )

    def per_layer(self, key: str, *, count: int) -> tuple[str, ...] | None:
        """Return one string per layer, or None when absent; a short list is refused."""
        values = self.strings(key)
        if values is None:
            return None
        if len(values) < count:
            self.reject(key, f"must name all {count} layers, names {len(values)}")
        return values[:count]

    def section(self, key: str) -> "ConfigFields | None":
        """Return a nested object, or None when absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.reject(key, f"must be an object, got {_shown(value)}")
        return ConfigFields(value, architecture=self.architecture, pointer=f"{self.pointer}/{key}")

    def sections(self, key: str) -> "tuple[ConfigFields, ...] | None":
        """Return a list of nested objects, or None when absent."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.reject(key, f"must be a list of objects, got {_shown(value)}")
        found = [
            ConfigFields(
                item, architecture=self.architecture, pointer=f"{self.pointer}/{key}/{index}"
            )
            for index, item in enumerate(value)
            if isinstance(item, Mapping)
        ]
        if len(found) != len(value):
            self.reject(key, "must be a list of objects")
        return tuple(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def sections_within(self) -> tuple[str, ...]:
        """Return the keys whose values are objects."""
        return tuple(key for key, value in self._values.items() if isinstance(value, Mapping))

    def reject(self, key: str, why: str) -> NoReturn:
        """Refuse a value that makes no sense."""
        raise InvalidRequest(f"{key} {why}", pointer=f"{self.pointer}/{key}")

    def reject_missing(self, *keys: str) -> NoReturn:
        """Refuse a config that lacks what its layout needs."""
        named = " or ".join(keys)
        raise UnsupportedArchitecture(
            f"{self.architecture}: the config has no {named}",
            missing=(keys[0],),
            pointer=self.pointer,
        )

    def reject_layout(self, what: str) -> NoReturn:
        """Refuse a layout that is not known."""
        raise UnsupportedArchitecture(
            f"{self.architecture}: unsupported layout, {what}",
            missing=(what,),
            pointer=self.pointer,
        )

    def _checked_integer(self, key: str, value: Json, *, minimum: int, maximum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.reject(key, f"must be an integer, got {_shown(value)}")
        if isinstance(value, float) and not value.is_integer():
            self.reject(key, f"must be an integer, got {value!r}")
        if not minimum <= value <= maximum:
            self.reject(key, f"must be between {minimum} and {maximum}, got {_shown(value)}")
        return int(value)


def _shown(value: Json) -> str:
    if isinstance(value, int) and abs(value) > _LARGEST_SHOWN:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


_SHOWN_CHARACTERS = 60
_LARGEST_SHOWN = 10**18
