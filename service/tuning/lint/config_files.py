"""`vllm serve --config FILE` read together with that file, where both are checked."""

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from service.tuning.engine.argv_tokens import first_argument
from service.tuning.lint.found import FoundEngine, Reading, Word
from service.tuning.lint.text import SourceFile, Text
from service.tuning.lint.vllm_yaml import TITLE

_FLAG = "--config"
_PROGRAM = 2
"""`vllm serve` in front of what a configuration file states."""


class ConfigFiles:
    """vLLM's own configuration files among those that are checked."""

    def __init__(self, found: Sequence[tuple[SourceFile, Reading]]) -> None:
        self._engines = {
            file.path: reading.engines[0]
            for file, reading in found
            if [engine.title for engine in reading.engines] == [TITLE]
        }
        self._used = {
            path
            for _, reading in found
            for engine in reading.engines
            if (path := self._named(engine)) is not None
        }

    def is_part(self, file: SourceFile) -> bool:
        """Whether a command that is checked names the file: it is judged with that command."""
        return file.path in self._used

    def whole(self, engine: FoundEngine) -> FoundEngine:
        """Return the engine with the settings of the file that its command names.

        The file's settings come first, so that the command line wins, as in vLLM 0.33.0
        (utils/argparse_utils.py, _pull_args_from_config). Their place is that of the file's name.
        """
        path, place = self._named(engine), _place(engine)
        if path is None or place is None:
            return engine
        ours = self._engines[path].words[_PROGRAM:]
        name = engine.words[place + 1]
        left = [*engine.words[:place], *engine.words[place + 2 :]]
        first = first_argument([word.value for word in left])
        has_model = len(left) > first and not left[first].value.startswith("-")
        return msgspec.structs.replace(
            engine,
            words=(
                *left[: first + has_model],
                *_settings(ours, name, with_model=not has_model),
                *left[first + has_model :],
            ),
        )

    def _named(self, engine: FoundEngine) -> str | None:
        """Return the path of the one file that the engine's command can mean."""
        place = _place(engine)
        if place is None or engine.words[place + 1].unresolved is not None:
            return None
        name = PurePath(engine.words[place + 1].value).name
        fitting = [path for path in self._engines if PurePath(path).name == name]
        return fitting[0] if len(fitting) == 1 else None


def _place(engine: FoundEngine) -> int | None:
    """Return where the flag stands; vLLM reads the file only where its name stands apart."""
    values = [word.value for word in engine.words[:-1]]
    return values.index(_FLAG) if _FLAG in values else None


def _settings(words: Sequence[Word], name: Word, *, with_model: bool) -> list[Word]:
    """Return the words of a file as if they stood where its name stands."""
    states_model = bool(words) and not words[0].value.startswith("-")
    model = [_beside(words[0], name, f"--model={words[0].value}")] if states_model else []
    settings = [_beside(word, name, word.value) for word in words[states_model:]]
    return [*(model if with_model else []), *settings]


def _beside(word: Word, name: Word, value: str) -> Word:
    text = Text.near(value, name.place.start)
    return msgspec.structs.replace(word, text=text, span=name.place)
