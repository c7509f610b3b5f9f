"""When a message that was not taken is sent again."""

import hashlib
from datetime import timedelta

from api_schemas.webhook import DeliveryOutcome

PAUSES_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)
"""Pauses after each try, the schedule that webhook services share: eight tries in 28 hours."""
_FINAL: frozenset[DeliveryOutcome] = frozenset(
    {"gone", "redirect_refused", "address_refused", "record_missing"}
)
"""Outcomes that another try would only repeat; somebody may ask for a replay."""
_LONGEST_WAIT_S = 24 * 3600.0
_JITTER = 0.1


def pause_after(
    tries: int, *, outcome: DeliveryOutcome, retry_after_s: float, seed: str
) -> timedelta | None:
    """Return the wait after so many tries; None when the message is taken or given up.

    Up to a tenth is added, by the seed, so that not all meet a receiver as it comes back.
    """
    if outcome == "delivered" or outcome in _FINAL or tries > len(PAUSES_S):
        return None
    digest = hashlib.sha256(f"{seed}/{tries}".encode()).digest()
    jitter = 1 + _JITTER * digest[0] / 255
    wished_s = min(retry_after_s, _LONGEST_WAIT_S)
    return timedelta(seconds=max(PAUSES_S[tries - 1] * jitter, wished_s))
