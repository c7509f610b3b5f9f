"""What a refusal of an unknown name says."""

import pytest

from service.api.problems import not_found


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        ("", "There is no release 'x'."),
        ("near names: y.", "There is no release 'x'. Near names: y."),
        ("vLLM x is not known.", "There is no release 'x'. vLLM x is not known."),
    ],
)
def test_the_hint_is_a_sentence_and_names_keep_their_letters(hint: str, sentence: str) -> None:
    """A hint follows as a sentence of its own; vLLM stays vLLM."""
    assert not_found("release", "x", hint=hint).detail == sentence
