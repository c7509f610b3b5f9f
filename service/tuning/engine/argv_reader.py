"""Reads a vLLM command line with vLLM's own grammar: settings, their places, and what is wrong.

Follows argparse and `FlexibleArgumentParser` (vllm/utils/argparse_utils.py): dashes and
underscores are one, unique prefixes are accepted, booleans take no value, the last one wins.
"""

from collections.abc import Sequence

import msgspec

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.argv_report import ArgvProblem, ParsedArgv, ProblemCode
from service.tuning.engine.argv_tokens import (
    SERVER_MODULE,
    dashed,
    first_argument,
    is_negative_number,
    loose_value,
    merge,
)
from service.tuning.engine.facts import choices, refusal, setting_history
from service.tuning.engine.grammar import (
    NOT_CONFIGURATION,
    Option,
    Setting,
    grammar,
    negative_flag,
    options,
    takes_pairs,
    takes_truth_value,
)
from service.tuning.engine.values import read_pairs, read_value
from service.tuning.engine.versions import EngineVersion

_EXTRAS = ("--help", *(f"--{name.replace('_', '-')}" for name in sorted(NOT_CONFIGURATION)))
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
        self._argv = list(argv)
        self._version = version
        self._options = options(version)
        self._next = first_argument(argv)
        self._takes_model = SERVER_MODULE not in argv
        self._model: str | None = None
        self._values: dict[str, Json] = {}
        self._nested: dict[str, dict[str, Json]] = {}
        self._places: dict[str, int] = {}
        self._problems: list[ArgvProblem] = []
        self._config_file: str | None = None
        self._left_out: list[str] = []

    def read(self) -> None:
        """Read all arguments."""
        while self._next < len(self._argv):
            index = self._next
            self._next += 1
            argument = self._argv[index]
            if self._is_flag(argument):
                self._read_flag(index, argument)
            else:
                self._read_positional(index, argument)
        self._merge_nested()
        if self._model is None and self._config_file is None:
            self._report(
                len(self._argv), "no-model", "no model is named: vLLM would serve its default one"
            )

    def result(self) -> ParsedArgv:
        """Return what was read."""
        config = EngineConfig()
        for name, value in self._values.items():
            config = self._with_setting(config, name, value)
        return ParsedArgv(
            model=self._model,
            config=config,
            problems=tuple(sorted(self._problems, key=lambda problem: problem.index)),
            places=self._places,
            config_file=self._config_file,
            left_out=tuple(self._left_out),
        )

    def _with_setting(self, config: EngineConfig, name: str, value: Json) -> EngineConfig:
        try:
            checked = msgspec.convert({name: value}, EngineConfig)
        except msgspec.ValidationError as error:
            self._report(
                self._places[name], "bad-value", f"{name}: {error}", setting=name, is_refused=True
            )
            return config
        return msgspec.structs.replace(config, **{name: getattr(checked, name)})

    def _report(
        self,
        index: int,
        code: ProblemCode,
        message: str,
        *,
        is_refused: bool = False,
        setting: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        self._problems.append(
            ArgvProblem(
                index=index,
                code=code,
                message=message,
                is_refused=is_refused,
                setting=setting,
                suggestion=suggestion,
            )
        )

    def _is_flag(self, argument: str) -> bool:
        """Whether argparse takes the argument for a flag rather than for a value."""
        if not argument.startswith("-") or argument == "-":
            return False
        if is_negative_number(argument):
            return False
        name = dashed(argument.partition("=")[0])
        return " " not in argument or name in self._options or name in _EXTRAS

    def _read_positional(self, index: int, argument: str) -> None:
        if self._model is None and self._takes_model:
            self._model = argument
            return
        self._report(
            index,
            "unexpected-argument",
            f"{argument[:80]!r} belongs to no flag",
            is_refused=True,
        )

    def _read_flag(self, index: int, argument: str) -> None:
        if argument == "--":
            return
        if self._read_level(index, argument):
            return
        flag, value = self._split(argument)
        if "." in flag:
            self._read_dotted(index, flag, value)
        elif (extra := self._extra(flag)) is not None:
            self._read_extra(index, extra, value)
        elif (option := self._find_option(index, flag)) is not None:
            self._read_option(index, option, value)

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
            if self._next >= len(self._argv) or self._argv[self._next] not in _LEVELS:
                return False
            level = self._argv[self._next]
            self._next += 1
        if self._version.since("0.12.0"):
            self._set(index, "optimization_level", level)
        else:
            self._set(index, "compilation_config", int(level) if level in _LEVELS else level)
        return True

    def _extra(self, flag: str) -> str | None:
        """Return the flag if it is one of those that are no settings."""
        return flag if flag in _EXTRAS else None

    def _read_extra(self, index: int, flag: str, value: str | None) -> None:
        if flag == "--help":
            return
        if value is None:
            value = self._take_value(index, flag)
            while flag in _LISTS and self._has_value():
                self._next += 1
        if flag == "--model":
            self._model = value
        elif flag == "--config":
            self._config_file = value
        else:
            self._left_out.append(flag)

    def _find_option(self, index: int, flag: str) -> Option | None:
        """Return the option that a flag names, exactly or by a unique prefix."""
        if flag in self._options:
            return self._options[flag]
        found = [name for name in (*self._options, *_EXTRAS) if name.startswith(flag)]
        if len(found) == 1 and found[0] in self._options:
            return self._abbreviated(index, flag, found[0])
        if len(found) > 1:
            listed = ", ".join(sorted(found)[:6])
            self._report(index, "ambiguous", f"{flag} could be {listed}", is_refused=True)
            self._skip_value()
        elif (past := self._past_setting(flag)) is not None:
            return self._past_option(index, flag, past)
        else:
            self._report_unknown(index, flag)
        return None

    def _abbreviated(self, index: int, flag: str, name: str) -> Option:
        option = self._options[name]
        self._report(
            index,
            "abbreviated",
            f"{flag} is taken for {name}",
            setting=option.setting.name,
            suggestion=name,
        )
        return option

    def _past_setting(self, flag: str) -> Setting | None:
        """Return a setting of another release that the flag names."""
        name = flag.removeprefix("--").replace("-", "_")
        return grammar().get(name) or grammar().get(name.removeprefix("no_"))

    def _past_option(self, index: int, flag: str, setting: Setting) -> Option:
        """Take a flag that only other releases know, so that its meaning can be explained."""
        reason = refusal(setting.name, self._version)
        self._report(
            index,
            "not-in-version",
            reason or f"vLLM {self._version.text} has no {flag}",
            is_refused=True,
            setting=setting.name,
            suggestion=_replacement(setting, self._version),
        )
        return Option(setting, None if setting.takes_value else flag == setting.flag)

    def _report_unknown(self, index: int, flag: str) -> None:
        name = flag.lstrip("-").replace("-", "_")
        message = refusal(name, self._version) or f"vLLM {self._version.text} has no {flag}"
        self._report(index, "unknown-setting", message, is_refused=True, setting=name)
        self._skip_value()

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
            self._report(
                index,
                "boolean-takes-no-value",
                f"{setting.flag} takes no value, so ={value[:40]} is refused",
                is_refused=True,
                setting=setting.name,
                suggestion=_truth_suggestion(setting, value, negative=negative),
            )
            self._set(index, setting.name, _is_true(value) is option.value)
            return
        self._set(index, setting.name, option.value)
        self._warn_of_truth_word(setting, negative=negative)

    def _warn_of_truth_word(self, setting: Setting, *, negative: str | None) -> None:
        """Report `--enforce-eager False`: the word is taken for the model, or refused."""
        if not self._has_value() or self._argv[self._next].lower() not in _TRUTH_WORDS:
            return
        word = self._argv[self._next]
        is_refused = self._model is not None or not self._takes_model
        taken = "is refused" if is_refused else "would be taken for the model"
        self._report(
            self._next,
            "boolean-takes-no-value",
            f"{setting.flag} takes no value, so {word!r} {taken}",
            is_refused=is_refused,
            setting=setting.name,
            suggestion=_truth_suggestion(setting, word, negative=negative),
        )
        if is_refused:
            self._next += 1

    def _read_dotted(self, index: int, flag: str, value: str | None) -> None:
        """Read `--speculative-config.method x` into the setting's JSON object."""
        text = value if value is not None else self._take_raw(index, flag)
        if text is None:
            return
        is_list = flag.endswith("+")
        name, *keys = flag.removesuffix("+").split(".")
        if len(keys) > _DEEPEST:
            self._report(index, "bad-value", f"{name} is nested too deep", is_refused=True)
            return
        option = self._find_option(index, name)
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
            self._report(
                index,
                "bad-value",
                f"{setting.flag}: {error}",
                is_refused=True,
                setting=setting.name,
            )
            return None
        allowed = choices(setting.name, self._version)
        if allowed is not None and parsed not in allowed:
            listed = ", ".join(str(choice) for choice in allowed)
            self._report(
                index,
                "bad-choice",
                f"{setting.flag} knows {listed} in vLLM {self._version.text}, not {text[:40]!r}",
                is_refused=True,
                setting=setting.name,
            )
        return parsed

    def _append(self, index: int, name: str, value: Json) -> None:
        self._values[name] = [*self._values.get(name, []), value]
        self._places[name] = index

    def _set(self, index: int, name: str, value: Json) -> None:
        if name in self._values:
            self._report(
                index, "duplicate", f"{name} is given twice: the last one wins", setting=name
            )
        self._values[name] = value
        self._places[name] = index

    def _has_value(self) -> bool:
        return self._next < len(self._argv) and not self._is_flag(self._argv[self._next])

    def _take_value(self, index: int, flag: str) -> str | None:
        if not self._has_value():
            self._report(index, "missing-value", f"{flag} needs a value", is_refused=True)
            return None
        return self._take_next()

    def _take_raw(self, index: int, flag: str) -> str | None:
        """Take whatever comes next: dotted flags look at no dashes."""
        if self._next >= len(self._argv):
            self._report(index, "missing-value", f"{flag} needs a value", is_refused=True)
            return None
        return self._take_next()

    def _take_next(self) -> str:
        self._next += 1
        return self._argv[self._next - 1]

    def _take_values(self, index: int, flag: str) -> list[str]:
        first = self._take_value(index, flag)
        if first is None:
            return []
        found = [first]
        while self._has_value():
            found.append(self._take_next())
        return found

    def _take_truth_word(self) -> str | None:
        if self._has_value() and self._argv[self._next].lower() in {"true", "false"}:
            return self._take_next()
        return None

    def _skip_value(self) -> None:
        """Leave out what looks like the value of a flag that is not understood."""
        if self._model is not None and self._has_value():
            self._next += 1


def _replacement(setting: Setting, version: EngineVersion) -> str | None:
    history = setting_history(setting.name)
    if history is None:
        return None
    usable = [name for name in history.replaced_by if refusal(name, version) is None]
    return f"--{usable[0].replace('_', '-')}" if usable else None


def _truth_suggestion(setting: Setting, word: str, *, negative: str | None) -> str:
    if _is_true(word):
        return setting.flag
    return negative or f"leave {setting.flag} out"


def _is_true(word: str) -> bool:
    return word.strip().lower() in {"true", "yes", "on", "1"}
