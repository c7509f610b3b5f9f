"""Finds the option that a flag names, as argparse does: exactly, or by a unique prefix."""

from service.tuning.engine.argv_report import Problems
from service.tuning.engine.facts import refusal, setting_history
from service.tuning.engine.grammar import NOT_CONFIGURATION, Option, Setting, grammar, options
from service.tuning.engine.versions import EngineVersion

EXTRAS = ("--help", *(f"--{name.replace('_', '-')}" for name in sorted(NOT_CONFIGURATION)))
"""Flags of vLLM that are no settings: help, model, files, secrets."""


class OptionFinder:
    """Looks flags up for one release, and reports those that are not what they seem."""

    def __init__(self, version: EngineVersion, problems: Problems) -> None:
        self._version = version
        self._problems = problems
        self._options = options(version)

    def find(self, index: int, flag: str) -> Option | None:
        """Return the option that a flag names, exactly or by a unique prefix."""
        if flag in self._options:
            return self._options[flag]
        found = [name for name in (*self._options, *EXTRAS) if name.startswith(flag)]
        if len(found) == 1 and found[0] in self._options:
            return self._abbreviated(index, flag, found[0])
        if len(found) > 1:
            listed = ", ".join(sorted(found)[:6])
            self._problems.refuse(index, "ambiguous", f"{flag} could be {listed}")
        elif (past := self._past_setting(flag)) is not None:
            return self._past_option(index, flag, past)
        else:
            self._report_unknown(index, flag)
        return None

    def _abbreviated(self, index: int, flag: str, name: str) -> Option:
        option = self._options[name]
        self._problems.note(
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
        self._problems.refuse(
            index,
            "not-in-version",
            reason or f"vLLM {self._version.text} has no {flag}",
            setting=setting.name,
            suggestion=_replacement(setting, self._version),
        )
        return Option(setting, None if setting.takes_value else flag == setting.flag)

    def _report_unknown(self, index: int, flag: str) -> None:
        name = flag.lstrip("-").replace("-", "_")
        message = refusal(name, self._version) or f"vLLM {self._version.text} has no {flag}"
        self._problems.refuse(index, "unknown-setting", message, setting=name)


def _replacement(setting: Setting, version: EngineVersion) -> str | None:
    history = setting_history(setting.name)
    if history is None:
        return None
    usable = [name for name in history.replaced_by if refusal(name, version) is None]
    return f"--{usable[0].replace('_', '-')}" if usable else None
