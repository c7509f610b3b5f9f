"""How much one file may make the gate think about: nonsense costs most, since it has no match."""

from collections.abc import Iterator

from service.tuning.engine.argv_tokens import dashed
from service.tuning.engine.facts import setting_history
from service.tuning.engine.grammar import NOT_CONFIGURATION
from service.tuning.lint.found import FoundEngine, Reading
from service.tuning.lint.limits import MAX_ARGUMENTS, MAX_ENGINES, MAX_UNKNOWN, Unreadable


def within_budget(reading: Reading) -> Reading:
    """Return the reading as it is.

    Raises:
        Unreadable: it holds more engines, arguments or unknown names than any real file.
    """
    if len(reading.engines) > MAX_ENGINES:
        raise Unreadable(f"it starts more than {MAX_ENGINES:,} engines")
    unknown = 0
    for engine in reading.engines:
        if max(len(engine.words), len(engine.given), len(engine.env)) > MAX_ARGUMENTS:
            reason = f"one engine has more than {MAX_ARGUMENTS:,} arguments or variables"
            raise Unreadable(reason, offset=engine.span.start)
        unknown += sum(not _is_known(name) for name in _names(engine))
        if unknown > MAX_UNKNOWN:
            reason = f"it holds more than {MAX_UNKNOWN:,} names that no release of vLLM has"
            raise Unreadable(reason, offset=engine.span.start)
    return reading


def _names(engine: FoundEngine) -> Iterator[str]:
    for word in engine.words:
        if word.value.startswith("--"):
            flag = dashed(word.value.partition("=")[0]).partition(".")[0]
            yield flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    yield from (given.name for given in engine.given)


def _is_known(name: str) -> bool:
    return name in NOT_CONFIGURATION or setting_history(name) is not None
