"""Which media type is chosen."""

import pytest

from service.api.negotiation import choose_media_type

_OFFERED = ("application/json", "text/markdown")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/markdown", "text/markdown"),
        ("TEXT/Markdown", "text/markdown"),
        ("text/*", "text/markdown"),
        ("text/markdown;q=0.2, application/json;q=0.9", "application/json"),
        ("text/markdown, application/json", "application/json"),
        ("*/*;q=0.1, text/markdown", "text/markdown"),
        ("application/json;q=0, */*", "text/markdown"),
        ("text/html", None),
        ("application/json;q=0", None),
        ("text/html, */*;q=0.01", "application/json"),
        ("application/json;q=many", None),
        (";;;,,,", None),
    ],
)
def test_the_preferred_offer_is_chosen(accept: str, chosen: str | None) -> None:
    """Quality decides, the most specific range rules, and nothing acceptable is None."""
    assert choose_media_type(accept, _OFFERED) == chosen


def test_parameters_of_an_offer_do_not_matter() -> None:
    """An offer with parameters answers to its bare media type."""
    assert choose_media_type("text/plain", ["text/plain; version=0.0.4"]) is not None
