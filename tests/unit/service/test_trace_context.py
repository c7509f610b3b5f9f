"""W3C trace context."""

import pytest

from service.trace_context import parse_traceparent, trace_id_of

_TRACE, _PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_GOOD = f"00-{_TRACE}-{_PARENT}-01"


@pytest.mark.parametrize("text", [_GOOD, f" {_GOOD}\t", _GOOD[:-2] + "00"])
def test_a_well_formed_context_is_taken_as_it_is(text: str) -> None:
    """All its fields are kept, whether it is sampled or not."""
    assert parse_traceparent(text) == text.strip()
    assert trace_id_of(text.strip()) == _TRACE


def test_of_a_later_version_the_known_fields_are_kept() -> None:
    """A later version may have more fields behind ours."""
    assert parse_traceparent(f"cc-{_TRACE}-{_PARENT}-01-what-comes") == f"cc-{_TRACE}-{_PARENT}-01"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        _GOOD.upper(),
        _GOOD[1:],
        _GOOD + "-00",
        _GOOD + "\n",
        f"ff-{_TRACE}-{_PARENT}-01",
        f"00-{'0' * 32}-{_PARENT}-01",
        f"00-{_TRACE}-{'0' * 16}-01",
        f"cc-{_TRACE}-{_PARENT}-01-" + "x" * 300,
        f"cc-{_TRACE}-{_PARENT}-01x",
    ],
)
def test_a_broken_context_is_none(text: str) -> None:
    """What the recommendation calls invalid starts no trace and breaks no request."""
    assert parse_traceparent(text) is None
