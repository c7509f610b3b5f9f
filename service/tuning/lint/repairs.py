"""Which mistakes have one safe correction, and the edits that make it.

Only settings whose removal or new spelling keeps the meaning are touched; everything else keeps its
finding and its suggestion.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import NamedTuple

from api_schemas.base import Json
from service.tuning.engine.argv_tokens import dashed
from service.tuning.engine.facts import refusal
from service.tuning.engine.grammar import Option, grammar, negative_flag, options
from service.tuning.engine.versions import EngineVersion
from service.tuning.lint.edits import Edit, is_literal, remove_keyword, remove_words, replace_word
from service.tuning.lint.found import FoundEngine, Word

_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_DROPPED = "CFG001"


def repairs(engine: FoundEngine, content: str, version: EngineVersion) -> Iterator[Edit]:
    """Yield the edits that correct an engine's settings for the release."""
    if engine.form == "python":
        yield from _keyword_repairs(engine, content, version)
        return
    words = engine.words
    for index, word in enumerate(words):
        if word.value.startswith("--") and is_literal(word, content):
            yield from _flag_repairs(engine, index, content, version)
        elif word.value.startswith("--") and engine.form == "yaml":
            yield from _key_repairs(engine, index, content, version)
    yield from _dropped_keys(engine, content)


def _flag_repairs(
    engine: FoundEngine, index: int, content: str, version: EngineVersion
) -> Iterator[Edit]:
    word = engine.words[index]
    flag, equals, value = word.value.partition("=")
    name = dashed(flag).removeprefix("--").replace("-", "_")
    values = _values_after(engine.words, index, is_joined=bool(equals))
    option = options(version).get(dashed(flag))
    if name in _facts()["left_out"] and refusal(name, version) is not None:
        yield from remove_words((word, *values), engine.words[index - 1], content, form=engine.form)
    elif name in _facts()["renamed"] and option is None:
        yield replace_word(word, _facts()["renamed"][name] + equals + value, content)
    elif option is None:
        yield from _completed(word, flag, equals + value, content, version)
    elif option.value is not None:
        negative = negative_flag(option.setting, version)
        truth = _Truth(option, negative, value if equals else None)
        yield from _truth_repairs(engine, index, truth, content)
    else:
        yield from _value_repairs(word, option, value if equals else None, values, content)


def _completed(
    word: Word, flag: str, rest: str, content: str, version: EngineVersion
) -> Iterator[Edit]:
    """Yield the full name for a unique beginning."""
    found = [name for name in options(version) if name.startswith(dashed(flag))]
    if len(found) == 1 and dashed(flag) != "--":
        yield replace_word(word, found[0] + rest, content)


class _Truth(NamedTuple):
    option: Option
    negative: str | None
    joined: str | None


def _truth_repairs(engine: FoundEngine, index: int, truth: _Truth, content: str) -> Iterator[Edit]:
    """Yield the plain or the negative flag for a boolean that is given a value."""
    word, following = engine.words[index], engine.words[index + 1 : index + 2]
    is_joined = truth.joined is not None
    text = truth.joined or (following[0].value if following and not is_joined else "")
    meant = _TRUTH.get(text.strip().lower())
    if meant is None:
        return
    option = truth.option
    flag = option.setting.flag if meant is option.value else truth.negative
    if flag is None:
        return
    yield replace_word(word, flag, content)
    if not is_joined and is_literal(following[0], content):
        yield from remove_words(following, word, content, form=engine.form)


def _value_repairs(
    word: Word, option: Option, joined: str | None, values: tuple[Word, ...], content: str
) -> Iterator[Edit]:
    """Yield the right word for a value that has one."""
    known = _facts()["values"].get(option.setting.name, {})
    if joined is not None and joined in known:
        flag = word.value.partition("=")[0]
        yield replace_word(word, f"{flag}={known[joined]}", content)
    elif values and values[0].value in known and is_literal(values[0], content):
        yield replace_word(values[0], known[values[0].value], content)


def _values_after(words: tuple[Word, ...], index: int, *, is_joined: bool) -> tuple[Word, ...]:
    """Return the values that belong to a flag; none for booleans."""
    name = dashed(words[index].value.partition("=")[0]).removeprefix("--").replace("-", "_")
    setting = grammar().get(name)
    if is_joined or setting is None or not setting.takes_value:
        return ()
    following = words[index + 1 : index + 2]
    return following if following and not following[0].value.startswith("-") else ()


def _key_repairs(
    engine: FoundEngine, index: int, content: str, version: EngineVersion
) -> Iterator[Edit]:
    """Yield edits of a key in vLLM's own configuration file."""
    word = engine.words[index]
    name = word.value.removeprefix("--").replace("-", "_")
    raw = content[word.place.start : word.place.end]
    if raw.strip("'\"").replace("-", "_") != name:
        return
    values = _values_after(engine.words, index, is_joined=False)
    if name in _facts()["left_out"] and refusal(name, version) is not None:
        yield from remove_words((word, *values), word, content, form="yaml")
    elif values and is_literal(values[0], content):
        known = _facts()["values"].get(name, {})
        if values[0].value in known:
            yield replace_word(values[0], known[values[0].value], content)


def _dropped_keys(engine: FoundEngine, content: str) -> Iterator[Edit]:
    """Yield `no-key: true` for `key: false`, which the loader would drop."""
    for remark in engine.remarks:
        if remark.rule != _DROPPED or remark.suggestion is None:
            continue
        end = content.find("\n", remark.span.end)
        line = content[remark.span.start : len(content) if end < 0 else end]
        place = line.lower().find("false")
        if place > 0:
            start = remark.span.start
            yield Edit(start, start + place + len("false"), remark.suggestion)


def _keyword_repairs(engine: FoundEngine, content: str, version: EngineVersion) -> Iterator[Edit]:
    for given in engine.given:
        if given.name in _facts()["left_out"] and refusal(given.name, version) is not None:
            yield remove_keyword(given.name_span, given.value_span, content)


def is_left_out(name: str) -> bool:
    """Whether a setting can simply be removed where a release refuses it."""
    return name in _facts()["left_out"]


def new_name(name: str) -> str | None:
    """Return the flag that took a setting's place; None where it has none of the same meaning."""
    found: str | None = _facts()["renamed"].get(name)
    return found


@cache
def _facts() -> Json:
    path = resources.files("service.tuning.lint") / "data" / "repairs.json"
    return json.loads(path.read_text(encoding="utf-8"))
