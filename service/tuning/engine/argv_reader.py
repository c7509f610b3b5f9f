"""Reads a vLLM command line with vLLM's own grammar: settings, their places, and what is wrong.

Follows argparse and `FlexibleArgumentParser` (vllm/utils/argparse_utils.py): dashes and
underscores are one, unique prefixes are accepted, booleans take no value, the last one wins.
"""

from collections.abc import Sequence

import msgspec

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.argv_cursor import Cursor
from service.tuning.engine.argv_options import EXTRAS, OptionFinder
from service.tuning.engine.argv_report import ParsedArgv, Problems
from service.tuning.engine.argv_tokens import (
    SERVER_MODULE,
    dashed,
    first_argument,
    is_negative_number,
    loose_value,
    merge,
)
from service.tuning.engine.facts import choices
from service.tuning.engine.grammar import (
    Option,
    Setting,
    negative_flag,
    options,
    takes_pairs,
    takes_truth_value,
)
from service.tuning.engine.values import read_pairs, read_value
from service.tuning.engine.versions import EngineVersion

_LISTS = frozenset({"--api-key"})
_TRUTH_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "0", "1"})
_LEVELS = frozenset("0123")
_DEEPEST = 32
"""Objects nested deeper are no configuration of vLLM; readers of JSON stop at some depth too."""


def from_argv(argv: Sequence[str], version: EngineVersion) -> ParsedArgv:
    """Return the configuration that a command line gives on that release, with its problems.

    `argv` may start with `vllm serve`, with `python -m vllm.entrypoints.openai.api_server`, or
    directly with the model or a flag.
    """
    reader = _Reader(argv, version)
    reader.read()
    return reader.result()


class _Reader:
    """Walks an argument list once, from left to right."""

    def __init__(self, argv: Sequence[str], version: EngineVersion) -> None:
        self._version = version
        self._options = options(version)
        self._tokens = Cursor(argv, start=first_argument(argv), is_flag=self._is_flag)
        self._takes_model = SERVER_MODULE not in argv
        self._model: str | None = None
        self._values: dict[str, Json] = {}
        self._nested: dict[str, dict[str, Json]] = {}
        self._places: dict[str, int] = {}
        self._problems = Problems()
        self._finder = OptionFinder(version, self._problems)
        self._config_file: str | None = None
        self._left_out: list[str] = []

    def read(self) -> None:
        """Read all arguments."""
        while not self._tokens.is_at_end:
            index = self._tokens.index
            argument = self._tokens.take()
            if self._is_flag(argument):
                self._read_flag(index, argument)
            else:
                self._read_positional(index, argument)
        self._merge_nested()
        if self._model is None and self._config_file is None:
            self._problems.note(
                self._tokens.index,
                "no-model",
                "no model is named: vLLM would serve its default one",
            )

    def result(self) -> ParsedArgv:
        """Return what was read."""
        config = EngineConfig()
        for name, value in self._values.items():
            config = self._with_setting(config, name, value)
        return ParsedArgv(
            model=self._model,
            config=config,
            problems=self._problems.in_order(),
            places=self._places,
            config_file=self._config_file,
            left_out=tuple(self._left_out),
        )

    def _with_setting(self, config: EngineConfig, name: str, value: Json) -> EngineConfig:
        try:
            checked = msgspec.convert({name: value}, EngineConfig)
        except msgspec.ValidationError as error:
            self._problems.refuse(self._places[name], "bad-value", f"{name}: {error}", setting=name)
            return config
        return msgspec.structs.replace(config, **{name: getattr(checked, name)})

    def _is_flag(self, argument: str) -> bool:
        """Whether argparse takes the argument for a flag rather than for a value."""
        if not argument.startswith("-") or argument == "-":
            return False
        if is_negative_number(argument):
            return False
        name = dashed(argument.partition("=")[0])
        # Dotted flags are taken apart before argparse looks at blanks.
        is_known = name.partition(".")[0] in self._options or name in EXTRAS
        return " " not in argument or is_known

    def _read_positional(self, index: int, argument: str) -> None:
        if self._model is None and self._takes_model:
            self._model = argument
            return
        self._problems.refuse(
            index,
            "unexpected-argument",
            f"{argument[:80]!r} belongs to no flag",
        )

    def _read_flag(self, index: int, argument: str) -> None:
        if argument == "--":
            self._read_separator(index)
            return
        if self._read_level(index, argument):
            return
        flag, value = self._split(argument)
        if "." in flag:
            self._read_dotted(index, flag, value)
        elif (extra := self._extra(flag)) is not None:
            self._read_extra(index, extra, value)
        elif (option := self._finder.find(index, flag)) is not None:
            self._read_option(index, option, value)
        elif value is None:
            self._skip_value()

    def _read_separator(self, index: int) -> None:
        """Read `--`, which argparse takes only together with a model that nothing follows."""
        is_model_open = self._model is None and self._takes_model
        if not is_model_open or self._tokens.left > 1:
            self._problems.refuse(index, "unexpected-argument", "'--' is left over")

    def _split(self, argument: str) -> tuple[str, str | None]:
        """Return flag and attached value: `--x=y`, `-tp=2`, and `-qfp8` for one-letter flags."""
        flag, equals, text = argument.partition("=")
        option = self._options.get(argument[:2])
        if option is not None and not equals and argument not in self._options:
            return argument[:2], argument[2:]
        return dashed(flag), text if equals else None

    def _read_level(self, index: int, argument: str) -> bool:
        """Read `-O3`, `-O=3` and `-O 3`."""
        if not argument.startswith("-O"):
            return False
        level = argument[2:].removeprefix("=")
        if not level:
            if self._tokens.peek() not in _LEVELS:
                return False
            level = self._tokens.take()
        if self._version.since("0.12.0"):
            self._set(index, "optimization_level", level)
        else:
            self._set(index, "compilation_config", int(level) if level in _LEVELS else level)
        return True

    def _extra(self, flag: str) -> str | None:
        """Return the flag if it is one of those that are no settings."""
        return flag if flag in EXTRAS else None

    def _read_extra(self, index: int, flag: str, value: str | None) -> None:
        if flag == "--help":
            return
        if value is None:
            value = self._take_value(index, flag)
            if flag in _LISTS:
                self._tokens.take_values()
        if flag == "--model":
            self._model = value
        elif flag == "--config":
            self._config_file = value
        else:
            self._left_out.append(flag)

    def _read_option(self, index: int, option: Option, value: str | None) -> None:
        setting = option.setting
        if option.value is not None:
            self._read_truth(index, option, value)
        elif setting.is_list:
            texts = [value] if value is not None else self._take_values(index, setting.flag)
            items = [self._parse(index, setting, text) for text in texts if text is not None]
            if items and None not in items:
                self._set(index, setting.name, items)
        else:
            text = value if value is not None else self._take_value(index, setting.flag)
            parsed = None if text is None else self._parse(index, setting, text)
            if parsed is not None:
                put = self._append if setting.is_repeated else self._set
                put(index, setting.name, parsed)

    def _read_truth(self, index: int, option: Option, value: str | None) -> None:
        setting = option.setting
        negative = negative_flag(setting, self._version)
        if takes_truth_value(setting, self._version):
            text = value if value is not None else self._take_truth_word()
            self._set(index, setting.name, (text or "true").lower() == "true")
            return
        if value is not None:
            self._problems.refuse(
                index,
                "boolean-takes-no-value",
                f"{setting.flag} takes no value, so ={value[:40]} is refused",
                setting=setting.name,
                suggestion=_truth_suggestion(setting, value, negative=negative),
            )
            self._set(index, setting.name, _is_true(value) is option.value)
            return
        self._set(index, setting.name, option.value)
        self._warn_of_truth_word(setting, negative=negative)

    def _warn_of_truth_word(self, setting: Setting, *, negative: str | None) -> None:
        """Report `--enforce-eager False`: the word is taken for the model, or refused."""
        if not self._tokens.has_value or self._tokens.peek().lower() not in _TRUTH_WORDS:
            return
        index, word = self._tokens.index, self._tokens.peek()
        is_model = self._model is None and self._takes_model
        report = self._problems.note if is_model else self._problems.refuse
        report(
            index,
            "boolean-takes-no-value",
            f"{setting.flag} takes no value, so {word!r}"
            f" {'would be taken for the model' if is_model else 'is refused'}",
            setting=setting.name,
            suggestion=_truth_suggestion(setting, word, negative=negative),
        )
        if not is_model:
            self._tokens.take()

    def _read_dotted(self, index: int, flag: str, value: str | None) -> None:
        """Read `--speculative-config.method x` into the setting's JSON object."""
        text = value if value is not None else self._take_raw(index, flag)
        if text is None:
            return
        is_list = flag.endswith("+")
        name, *keys = flag.removesuffix("+").split(".")
        if len(keys) > _DEEPEST:
            self._problems.refuse(index, "bad-value", f"{name} is nested too deep")
            return
        option = self._finder.find(index, name)
        if option is None:
            return
        setting = option.setting
        parsed: Json = text.split(",") if is_list else loose_value(text)
        for key in reversed(keys):
            parsed = {key: parsed}
        self._places[setting.name] = index
        merge(self._nested.setdefault(setting.name, {}), parsed)

    def _merge_nested(self) -> None:
        """Put the dotted parts in place: they come last, so they replace a whole JSON value."""
        self._values.update(self._nested)

    def _parse(self, index: int, setting: Setting, text: str) -> Json:
        try:
            is_paired = takes_pairs(setting, self._version)
            parsed = read_pairs(text) if is_paired else read_value(setting, text)
        except ValueError as error:
            self._problems.refuse(
                index,
                "bad-value",
                f"{setting.flag}: {error}",
                setting=setting.name,
            )
            return None
        allowed = choices(setting.name, self._version)
        if allowed is not None and parsed not in allowed:
            listed = ", ".join(str(choice) for choice in allowed)
            self._problems.refuse(
                index,
                "bad-choice",
                f"{setting.flag} knows {listed} in vLLM {self._version.text}, not {text[:40]!r}",
                setting=setting.name,
            )
        return parsed

    def _append(self, index: int, name: str, value: Json) -> None:
        self._values[name] = [*self._values.get(name, []), value]
        self._places[name] = index

    def _set(self, index: int, name: str, value: Json) -> None:
        if name in self._values:
            self._problems.note(
                index, "duplicate", f"{name} is given twice: the last one wins", setting=name
            )
        self._values[name] = value
        self._places[name] = index

    def _take_value(self, index: int, flag: str) -> str | None:
        if not self._tokens.has_value:
            self._problems.refuse(index, "missing-value", f"{flag} needs a value")
            return None
        return self._tokens.take()

    def _take_raw(self, index: int, flag: str) -> str | None:
        """Take whatever comes next: dotted flags look at no dashes."""
        if self._tokens.is_at_end:
            self._problems.refuse(index, "missing-value", f"{flag} needs a value")
            return None
        return self._tokens.take()

    def _take_values(self, index: int, flag: str) -> list[str]:
        first = self._take_value(index, flag)
        return [] if first is None else [first, *self._tokens.take_values()]

    def _take_truth_word(self) -> str | None:
        is_word = self._tokens.peek().lower() in {"true", "false"}
        return self._tokens.take() if is_word else None

    def _skip_value(self) -> None:
        """Leave out what looks like the value of a flag that is not understood."""
        if self._model is not None and self._tokens.has_value:
            self._tokens.take()


def _truth_suggestion(setting: Setting, word: str, *, negative: str | None) -> str:
    if _is_true(word):
        return setting.flag
    return negative or f"leave {setting.flag} out"


def _is_true(word: str) -> bool:
    return word.strip().lower() in {"true", "yes", "on", "1"}
