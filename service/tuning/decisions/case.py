"""What the reasons are given from: the problem, the pick, and what it was picked from."""

import msgspec

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.explanation import Confidence, Decision, Source
from service.tuning.search.finder import Found
from service.tuning.search.problem import Problem
from service.tuning.search.sizing import Sized
from service.tuning.search.trial import Trial


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A recommendation that is to be explained."""

    problem: Problem
    found: Found
    pick: Trial
    config: EngineConfig
    """What is emitted."""
    defaults: EngineConfig
    """What vLLM would take for the same layout when nothing else is set."""

    @property
    def sized(self) -> Sized:
        """The picked configuration with its memory plan."""
        return self.pick.sized

    def is_pinned(self, setting: str) -> bool:
        """Whether the caller fixed the setting."""
        return getattr(self.problem.pin, setting) is not None

    def default_remark(self, setting: str) -> str:
        """Return how the emitted value relates to vLLM's own one, as a closing sentence."""
        default = getattr(self.defaults, setting)
        if default == getattr(self.config, setting):
            return (
                f" It is the same as the default of {self.problem.version.text} here; it is "
                "written down because defaults change with release and "
                "hardware."
            )
        return f" vLLM {self.problem.version.text} would take {_spoken(default)} by itself."


def _spoken(value: Json) -> str:
    return "nothing" if value is None else str(value)


def decision(
    setting: str,
    value: Json,
    *,
    rule: str,
    reason: str,
    if_higher: str,
    if_lower: str,
    source: tuple[Source, ...],
    formula: str | None = None,
    inputs: dict[str, Json] | None = None,
    confidence: Confidence = "medium",
) -> Decision:
    """Return a decision; figures among the inputs are rounded to four digits."""
    return Decision(
        setting=setting,
        value=value,
        rule=rule,
        reason=reason,
        formula=formula,
        inputs={name: rounded(figure) for name, figure in (inputs or {}).items()},
        source=list(source),
        if_higher=if_higher,
        if_lower=if_lower,
        confidence=confidence,
    )


def rounded(figure: Json) -> Json:
    """Return floats with four significant digits, everything else as it is."""
    if isinstance(figure, float):
        short = float(f"{figure:.4g}")
        return int(short) if short.is_integer() and abs(short) >= 1 else short
    return figure
