"""YAML with places, within limits."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from service.tuning.lint.limits import MAX_NODES, Unreadable
from service.tuning.lint.text import SourceFile
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, Sequence, find, plain, read_yaml

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc-", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def _read(content: str) -> list[Node]:
    return read_yaml(SourceFile("a.yaml", content))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(value=_VALUES, flow=st.booleans())
def test_values_are_those_of_the_library(value: object, *, flow: bool) -> None:
    """Whatever is dumped is read back as the library's own safe loader reads it."""
    content = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)

    assert [plain(node) for node in _read(content)] == [yaml.safe_load(content)]


def test_merged_keys_come_after_own_ones() -> None:
    """An anchor merged in with << fills only what the mapping itself does not say."""
    (document,) = _read("base: &b {a: 1, c: 2}\nx:\n  <<: *b\n  a: 3\n")

    assert plain(find(document, "x") or document) == {"a": 3, "c": 2}


def test_characters_of_block_text_know_their_line() -> None:
    """In a literal block every character stands where the file has it."""
    content = "run: |\n    vllm serve m \\\n      --a 1\n"
    (document,) = _read(content)
    node = find(document, "run")

    assert isinstance(node, Scalar)
    assert "".join(content[offset] for offset in node.text.offsets) == node.text.value


_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (_BOMB, "aliases"),
        ("a: !!python/object/apply:os.system [id]", "Python"),
        ("!!python/name:os.system x", "Python"),
        ("[" * 100_000, "deep|nesting"),
        ("- " * 100 + "x", "deep"),
        ("a: [", "not YAML"),
        ("a: *nowhere", "names nothing"),
        ("a: \x07", "not YAML"),
        ("a: x\0y", "NUL"),
        ("x" * 5_000_000, "longer"),
        ("&a [*a]", "names nothing"),
    ],
)
def test_hostile_files_are_refused_within_limits(content: str, why: str) -> None:
    """Bombs, foreign objects, depth, size and broken syntax end in a refusal that says why."""
    with pytest.raises(Unreadable, match=why):
        _read(content)


def test_lists_and_mappings_know_their_place() -> None:
    """A node's span begins at its first character."""
    content = "a:\n  - x\n  - {b: 1}\n"
    (document,) = _read(content)
    node = find(document, "a")

    assert isinstance(node, Sequence)
    assert isinstance(node.items[1], Mapping)
    assert content[node.items[1].span.start : node.items[1].span.end] == "{b: 1}"


def test_the_limit_counts_every_value_once() -> None:
    """A long manifest is read whatever its depth: a value counts once, not once per level."""
    levels = 20
    line = "{a: " * levels + "1" + "}" * levels
    items = MAX_NODES // (2 * levels + 1) - 1

    (document,) = _read("\n".join(f"- {line}" for _ in range(items)))

    assert isinstance(document, Sequence)
    assert len(document.items) == items
