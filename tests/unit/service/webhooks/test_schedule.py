"""When a message is sent again."""

import pytest

from api_schemas.webhook import DeliveryOutcome
from service.webhooks.schedule import PAUSES_S, pause_after


def _pauses(outcome: DeliveryOutcome, retry_after_s: float = 0.0) -> list[float]:
    found = []
    for tries in range(1, 100):
        pause = pause_after(tries, outcome=outcome, retry_after_s=retry_after_s, seed="v1")
        if pause is None:
            return found
        found.append(pause.total_seconds())
    raise AssertionError(found)


@pytest.mark.parametrize("outcome", ["refused", "timed_out", "unreachable", "secret_missing"])
def test_pauses_grow_and_end(outcome: DeliveryOutcome) -> None:
    """Each pause is that of the schedule and at most a tenth more; then it is given up."""
    found = _pauses(outcome)

    assert len(found) == len(PAUSES_S)
    assert all(pause <= real <= 1.1 * pause for real, pause in zip(found, PAUSES_S, strict=True))


@pytest.mark.parametrize(
    "outcome", ["delivered", "gone", "address_refused", "redirect_refused", "record_missing"]
)
def test_what_another_try_would_not_change_is_not_tried(outcome: DeliveryOutcome) -> None:
    """Taken, unwanted or forbidden: once is enough."""
    assert _pauses(outcome) == []


def test_a_receiver_may_ask_for_more_time() -> None:
    """Retry-After lengthens a pause, up to a day, and never shortens one."""
    assert _pauses("refused", retry_after_s=600)[0] == 600
    assert _pauses("refused", retry_after_s=1)[0] >= PAUSES_S[0]
    assert max(_pauses("refused", retry_after_s=1e9)) == 24 * 3600
