"""vLLM's own recipes: arguments by model, feature, variant and hardware, and a guide with commands.

The format is that of vllm 0.33.0 recipes/ (model.base_args, features.*.args, variants.*.extra_args,
hardware_overrides). Each feature and variant is read as a command of its own beside the base.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from service.tuning.lint.found import FoundEngine, Reading, Word
from service.tuning.lint.line_files import read_markdown
from service.tuning.lint.manifest_words import variables, word_of, words_of
from service.tuning.lint.nested import read_nested
from service.tuning.lint.text import SourceFile, Text
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, find

_ARGUMENT_KEYS = frozenset({"args", "extra_args", "base_args"})
_FLAG_WITH_VALUE = re.compile(r"(--[\w-]+) +(\S+)")
_DEEPEST = 8


class _Found(NamedTuple):
    path: tuple[str, ...]
    node: Mapping
    model: Scalar


def is_recipe(document: Node) -> bool:
    """Whether the document names a model and its base arguments the way recipes do."""
    return find(document, "model", "model_id") is not None and find(document, "meta") is not None


def read_recipe(
    document: Node, content: str, *, read_block: Callable[[SourceFile], Reading]
) -> Reading:
    """Return an engine for the base and each addition to it, and those of the guide."""
    engines = [*_engines(document, content)]
    guide = find(document, "guide")
    if isinstance(guide, Scalar):
        reading = read_nested(guide.text, "guide.md", lambda f: read_markdown(f, read_block))
        engines += reading.engines
    return Reading(engines=tuple(engines))


def _engines(document: Node, content: str) -> Iterator[FoundEngine]:
    model_node = find(document, "model", "model_id")
    if not isinstance(model_node, Scalar):
        return
    base = _arguments(find(document, "model", "base_args"), content)
    model = word_of(model_node, content)
    yield _engine("recipe, base", model, base, find(document, "model"), content)
    for found in _argument_lists(document, (), model_node):
        if found.path != ("model", "base_args"):
            title = f"recipe, {'.'.join(found.path[:-1])}"
            added = _arguments(find(found.node, found.path[-1]), content)
            used = word_of(found.model, content)
            yield _engine(title, used, (*base, *added), found.node, content)


def _arguments(node: Node | None, content: str) -> tuple[Word, ...]:
    """Return the arguments of a list; an item may hold a flag with its value, as text does."""
    words: list[Word] = []
    for word in words_of(node, content) or ():
        match = _FLAG_WITH_VALUE.fullmatch(word.value)
        if match is None or word.unresolved is not None:
            words.append(word)
            continue
        flag, value = word.text.cut(0, match.end(1)), word.text.cut(match.start(2))
        words += [Word(flag, span=flag.span), Word(value, span=value.span)]
    return tuple(words)


def _engine(
    title: str, model: Word, arguments: tuple[Word, ...], node: Node | None, content: str
) -> FoundEngine:
    start = arguments[-1].place if arguments else model.place
    words = [Word(Text.near(value, start.start), span=start) for value in ("vllm", "serve")]
    env = find(node, "base_env") or find(node, "extra_env") or find(node, "env")
    return FoundEngine(
        title=title,
        form="items",
        span=model.place if not arguments else arguments[0].place,
        words=(*words, model, *arguments),
        env=variables(env, content),
    )


def _argument_lists(node: Node, path: tuple[str, ...], model: Scalar) -> Iterator[_Found]:
    """Yield every list of arguments with the mapping around it and the model it is for."""
    if not isinstance(node, Mapping) or len(path) > _DEEPEST:
        return
    own = find(node, "model_id")
    used = own if isinstance(own, Scalar) else model
    for key, value in node.all_entries():
        name = key.text.value
        if name in _ARGUMENT_KEYS:
            yield _Found((*path, name), node, used)
        else:
            yield from _argument_lists(value, (*path, name), used)
