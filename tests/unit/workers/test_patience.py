"""Waiting that can be left."""

import threading

import pytest

from workers.patience import while_wanted


class _EnoughError(Exception):
    pass


def _leave() -> None:
    raise _EnoughError


def test_an_answer_is_returned_and_an_error_raised() -> None:
    """What the call gives or raises is what one gets."""
    assert while_wanted(lambda: 7, check=lambda: None) == 7
    with pytest.raises(TimeoutError, match="of its own"):
        while_wanted(_time_out, check=lambda: None)


def _time_out() -> None:
    raise TimeoutError("of its own")


def test_a_call_that_never_answers_is_left_when_it_is_no_longer_wanted() -> None:
    """The check is asked while the call goes on, and its error ends the wait."""
    answer = threading.Event()

    with pytest.raises(_EnoughError):
        while_wanted(answer.wait, check=_leave)

    answer.set()


def test_a_call_is_waited_for_as_long_as_it_is_wanted() -> None:
    """A check that finds nothing leaves the call its time."""
    answer = threading.Event()

    assert while_wanted(answer.wait, check=answer.set)
