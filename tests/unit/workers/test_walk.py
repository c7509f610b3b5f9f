"""Walking up to a limit."""

from hypothesis import given
from hypothesis import strategies as st

from workers.walk import Walk


def _walk(limit: int, *, start: int, highest: int) -> tuple[Walk, list[int]]:
    """Walk where everything up to `limit` holds; return the walk and what it tried."""
    walk, tried = Walk(start=start, highest=highest), []
    while (value := walk.ask()) is not None:
        tried.append(value)
        walk.tell(value, broken_by=None if value <= limit else "preemptions")
    return walk, tried


@given(limit=st.integers(1, 2000), start=st.integers(0, 2000), highest=st.integers(1, 2000))
def test_a_walk_ends_close_below_the_limit(limit: int, start: int, highest: int) -> None:
    """It ends after few steps, its knee held, and the next value tried above it broke."""
    walk, tried = _walk(limit, start=start, highest=highest)

    assert len(tried) <= 25
    assert len(set(tried)) == len(tried)
    assert all(1 <= value <= highest for value in tried)
    assert walk.knee <= min(limit, highest)
    assert walk.suggestion <= walk.knee
    if walk.broke is None:
        assert walk.knee == highest
    else:
        assert walk.broke > limit
        assert walk.broke - walk.knee <= 1 or walk.broke <= 1.15 * walk.knee


def test_it_begins_where_it_is_told() -> None:
    """The guides begin at half of the theoretical concurrency."""
    _, tried = _walk(100, start=12, highest=200)

    assert tried[:4] == [12, 24, 48, 96]


def test_what_broke_is_left_with_a_margin() -> None:
    """Preemptions from 11 on suggest 8, the guides' four fifths."""
    walk, _ = _walk(10, start=2, highest=64)

    assert (walk.knee, walk.broke, walk.suggestion) == (10, 11, 8)
    assert walk.reason == "preemptions"


def test_nothing_broken_leaves_the_highest() -> None:
    """A walk that meets no limit suggests what was already allowed."""
    walk, _ = _walk(1000, start=4, highest=16)

    assert (walk.knee, walk.suggestion, walk.reason) == (16, 16, "")


def test_even_one_at_once_may_break() -> None:
    """When nothing holds the walk ends, and suggests the least there is."""
    walk, tried = _walk(0, start=4, highest=16)

    assert tried[-1] == 1
    assert walk.suggestion == 1
