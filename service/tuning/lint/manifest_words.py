"""Arguments, variables and sizes out of manifests."""

from collections.abc import Iterator

from service.tuning.lint.found import Variable, Word
from service.tuning.lint.limits import MAX_WORDS, Unreadable
from service.tuning.lint.shell_words import Splitter
from service.tuning.lint.template import open_part
from service.tuning.lint.text import Span, Text
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, Sequence, find, find_text


def word_of(node: Scalar, content: str) -> Word:
    """Return one list item as one argument."""
    unresolved = open_part(node.text, content)
    if node.tag is not None:
        unresolved = f"{node.tag} {node.text.value}"[:80]
    only = unresolved is not None and node.text.value.strip() in {unresolved, ""}
    return Word(node.text, unresolved, is_splittable=only, span=node.span)


def words_of(node: Node | None, content: str) -> tuple[Word, ...] | None:
    """Return a command: a list item by item, one text split as a shell would; None if not given."""
    match node:
        case Sequence():
            if len(node.items) > MAX_WORDS:
                raise Unreadable("a command has too many arguments", offset=node.span.start)
            return tuple(word_of(item, content) for item in node.items if isinstance(item, Scalar))
        case Scalar() if node.value is None:
            return None
        case Scalar():
            return split_words(node.text, content)
        case _:
            return None


def split_words(text: Text, content: str) -> tuple[Word, ...]:
    """Return the words of the text's first command, templates marked."""
    found: list[Word] = []
    for words in Splitter(text, {}).commands():
        found += words
    return tuple(_marked(word, content) for word in found)


def _marked(word: Word, content: str) -> Word:
    unresolved = word.unresolved or open_part(word.text, content)
    return Word(word.text, unresolved, is_splittable=word.is_splittable, span=word.span)


def variables(node: Node | None, content: str) -> tuple[Variable, ...]:
    """Return environment variables: a list of {name, value} or NAME=value, or a mapping."""
    return tuple(_variables(node, content))


def _variables(node: Node | None, content: str) -> Iterator[Variable]:
    if isinstance(node, Mapping):
        for key, value in node.all_entries():
            is_known = isinstance(value, Scalar) and value.value is not None
            yield Variable(key.text.value, _known(value, content) if is_known else None, key.span)
        return
    for item in node.items if isinstance(node, Sequence) else ():
        if isinstance(item, Scalar):
            name, equals, _ = item.text.value.partition("=")
            place = len(name) + 1
            known = open_part(item.text, content) is None and equals
            yield Variable(name, item.text.value[place:] if known else None, item.span)
        elif (name_text := find_text(item, "name")) is not None:
            known_value = _known(find(item, "value"), content)
            yield Variable(name_text, known_value, find_name_span(item))


def _known(node: Node | None, content: str) -> str | None:
    if not isinstance(node, Scalar) or open_part(node.text, content) is not None:
        return None
    return node.text.value


def find_name_span(node: Node) -> Span:
    """Return where a variable's name stands."""
    name = find(node, "name")
    return node.span if name is None else name.span


def number(node: Node | None) -> float | None:
    """Return a number, written as such or as text; None for anything else."""
    if not isinstance(node, Scalar):
        return None
    try:
        return float(node.text.value)
    except ValueError:
        return None
