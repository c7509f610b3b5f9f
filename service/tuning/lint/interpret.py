"""From words and keywords to settings, as one release reads them."""

import msgspec

from api_schemas.engine import EngineConfig
from service.tuning.engine.argv import from_argv
from service.tuning.engine.argv_report import ArgvProblem, ParsedArgv
from service.tuning.engine.argv_tokens import dashed
from service.tuning.engine.facts import refusal
from service.tuning.engine.grammar import NOT_CONFIGURATION, options
from service.tuning.engine.versions import EngineVersion
from service.tuning.lint.found import FoundEngine, Given, Remark, Word
from service.tuning.lint.object_keys import unknown_keys
from service.tuning.lint.text import Span, Text

_STAND_IN = "unresolved-model"
_ATTACHED = "--config="
_FIELDS = frozenset(EngineConfig.__struct_fields__)
_ONLY_IN_PYTHON = frozenset({"usage_context", "llm_class", "args", "kwargs", "tokenizer_group"})


class PlacedProblem(msgspec.Struct, frozen=True):
    """A mistake of the grammar with its place."""

    problem: ArgvProblem
    span: Span
    rule: str | None = None
    """The rule that it is reported under; None is the one of its code."""


class Interpreted(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine's settings mean to one release."""

    model: str | None
    config: EngineConfig
    env: dict[str, str]
    problems: tuple[PlacedProblem, ...]
    places: dict[str, Span]
    """Where each setting and each environment variable stands."""
    remarks: tuple[Remark, ...]
    unresolved: tuple[str, ...]
    """Settings, or whole expressions, that could not be resolved."""


def interpret(engine: FoundEngine, version: EngineVersion) -> Interpreted:
    """Return what the engine's settings mean to the release."""
    read = _read_keywords if engine.form == "python" else _read_words
    read_engine = read(engine, version)
    env = {variable.name: variable.value for variable in engine.env if variable.value is not None}
    objects = _object_problems(read_engine, engine, version)
    places = {variable.name: variable.span for variable in engine.env}
    return msgspec.structs.replace(
        read_engine,
        env=env,
        problems=(*read_engine.problems, *objects),
        places={**places, **read_engine.places},
        remarks=(*engine.remarks, *read_engine.remarks),
    )


def _object_problems(
    read: Interpreted, engine: FoundEngine, version: EngineVersion
) -> list[PlacedProblem]:
    return [
        PlacedProblem(
            _problem("bad-value", unknown.message, unknown.setting, unknown.suggestion),
            read.places.get(unknown.setting, engine.span),
            rule="CLI011",
        )
        for unknown in unknown_keys(read.config, version)
    ]


def _read_words(engine: FoundEngine, version: EngineVersion) -> Interpreted:
    sieve = _Sieve(engine.words, version)
    parsed = from_argv([word.value for word in sieve.kept], version)
    model, model_remark = _model(engine, parsed)
    problems = [p for p in parsed.problems if p.code != "no-model" or engine.model is None]
    if not engine.words or (parsed.config_file is not None):
        problems = [p for p in problems if p.code != "no-model"]
    path = parsed.config_file
    places = [w for w in sieve.kept if w.value == "--config" or w.value.startswith(_ATTACHED)]
    unread = () if path is None else tuple(_unread(path, word) for word in places[-1:])
    is_open = path is not None and any(remark.rule == "TPL001" for remark in unread)
    return Interpreted(
        model=model,
        config=parsed.config,
        env={},
        problems=tuple(PlacedProblem(p, sieve.place(p.index)) for p in problems),
        places={name: sieve.place(index) for name, index in parsed.places.items()},
        remarks=(*sieve.remarks, *model_remark, *unread),
        unresolved=(*sieve.unresolved, *((path,) if path is not None and is_open else ())),
    )


def _unread(path: str, word: Word) -> Remark:
    """Return that the settings of `--config FILE` are missing from what was judged."""
    if word.value.startswith(_ATTACHED):
        return Remark(
            rule="CFG002",
            message=f"vLLM does not read {path} here: it looks for --config with a blank after it.",
            suggestion=f"--config {path}",
            span=word.place,
        )
    return Remark(
        rule="TPL001",
        message=f"The settings in {path} were not read: it is not among the checked files.",
        suggestion="Check it together with this file.",
        span=word.place,
    )


def _model(engine: FoundEngine, parsed: ParsedArgv) -> tuple[str | None, tuple[Remark, ...]]:
    """Return the model: of the command line, else of the surroundings; a stand-in is none."""
    if parsed.model is not None:
        return (None if parsed.model == _STAND_IN else parsed.model), ()
    if engine.model is None:
        return None, ()
    if engine.model.unresolved is None:
        return engine.model.value, ()
    return None, (_unresolved_remark(engine.model, setting="model"),)


def _unresolved_remark(word: Word, *, setting: str | None) -> Remark:
    expression = word.unresolved or word.value
    what = f"{setting} comes from {expression}" if setting else f"{expression} may bring arguments"
    return Remark(
        rule="TPL001",
        message=f"{what}, which cannot be resolved from the file alone: it was not checked.",
        setting=setting,
        suggestion="State the value, give it a default, or check the rendered file.",
        span=word.place,
    )


class _Sieve:
    """Takes out what cannot be resolved, with the flag that it belongs to."""

    def __init__(self, words: tuple[Word, ...], version: EngineVersion) -> None:
        self.kept: list[Word] = []
        self.remarks: list[Remark] = []
        self.unresolved: list[str] = []
        self._has_model = False
        self._options = options(version)
        self._end = words[-1].place if words else Span(0, 0)
        for index, word in enumerate(words):
            if word.unresolved is None:
                self.kept.append(word)
                self._has_model |= index == self._model_index(words)
            else:
                self._take_out(word, is_first=index == self._model_index(words))

    def place(self, index: int) -> Span:
        """Return where the argument at this index of the kept ones stands."""
        return self.kept[index].place if index < len(self.kept) else self._end

    def _model_index(self, words: tuple[Word, ...]) -> int:
        return 2 if len(words) > 1 and words[1].value == "serve" else -1

    def _take_out(self, word: Word, *, is_first: bool) -> None:
        flag = self._flag_before(word)
        if flag is not None:
            name = flag.lstrip("-").replace("-", "_").partition(".")[0]
            self._note(word, None if name == "model" else name, is_model=name == "model")
            if name == "model":
                self._stand_in(word, flag)
        elif is_first or not (word.is_splittable or word.value.startswith("-") or self._has_model):
            self._note(word, None, is_model=True)
            self.kept.append(_with_text(word, _STAND_IN))
            self._has_model = True
        else:
            self._note(word, None, is_model=False)

    def _flag_before(self, word: Word) -> str | None:
        """Return the flag whose value the word is; a separate flag is taken out as well."""
        name, equals, _ = word.value.partition("=")
        if word.value.startswith("-"):
            return dashed(name) if equals and (word.unresolved or "") not in name else None
        before = self.kept[-1].value if self.kept else ""
        if not before.startswith("-") or "=" in before or len(self.kept) < 2:  # noqa: PLR2004
            return None
        option = self._options.get(dashed(before))
        if option is not None and option.value is not None:
            return None
        self.kept.pop()
        return dashed(before)

    def _stand_in(self, word: Word, flag: str) -> None:
        self.kept.append(_with_text(word, f"{flag}={_STAND_IN}"))

    def _note(self, word: Word, setting: str | None, *, is_model: bool) -> None:
        named = "model" if is_model else setting
        self.remarks.append(_unresolved_remark(word, setting=named))
        self.unresolved.append(named or word.unresolved or word.value)


def _with_text(word: Word, value: str) -> Word:
    return Word(Text.near(value, word.place.start), span=word.place)


def _read_keywords(engine: FoundEngine, version: EngineVersion) -> Interpreted:
    config = EngineConfig()
    problems: list[PlacedProblem] = []
    remarks: list[Remark] = []
    places: dict[str, Span] = {}
    unresolved: list[str] = []
    for given in engine.given:
        if given.unresolved is not None:
            open_word = Word(Text("", ()), given.unresolved, span=given.name_span)
            remarks.append(_unresolved_remark(open_word, setting=given.name))
            unresolved.append(given.name)
            continue
        places[given.name] = given.name_span
        config, problem = _with_keyword(config, given, version)
        if problem is not None:
            problems.append(PlacedProblem(problem, given.name_span))
    word = engine.model
    model = word.value if word is not None and word.unresolved is None else None
    if word is not None and word.unresolved is not None:
        remarks.append(_unresolved_remark(word, setting="model"))
        unresolved.append("model")
    return Interpreted(
        model=model,
        config=config,
        env={},
        problems=tuple(problems),
        places=places,
        remarks=tuple(remarks),
        unresolved=tuple(unresolved),
    )


def _with_keyword(
    config: EngineConfig, given: Given, version: EngineVersion
) -> tuple[EngineConfig, ArgvProblem | None]:
    if given.name in NOT_CONFIGURATION or given.name in _ONLY_IN_PYTHON or given.value is None:
        return config, None
    if given.name not in _FIELDS:
        message = refusal(given.name, version) or f"vLLM {version.text} has no {given.name}"
        return config, _problem("unknown-setting", message, given.name)
    try:
        checked = msgspec.convert({given.name: given.value}, EngineConfig)
    except msgspec.ValidationError as error:
        return config, _problem("bad-value", f"{given.name}: {error}", given.name)
    return (
        msgspec.structs.replace(config, **{given.name: getattr(checked, given.name)}),
        None,
    )


def _problem(code: str, message: str, setting: str, suggestion: str | None = None) -> ArgvProblem:
    return ArgvProblem(
        index=0,
        code=code,  # type: ignore[arg-type]  # one of the two codes that are used here
        message=message,
        is_refused=True,
        setting=setting,
        suggestion=suggestion,
    )
