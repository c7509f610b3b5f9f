"""How long a request may be: `max_model_len` from the workload, never the model's maximum."""

import math

import msgspec

from service.tuning.search.demand import Demand

HEADROOM = 1.2
"""Business peak x 1.2 (tuning guide 3, max_model_len)."""
STEP_TOKENS = 128
_BLOCK_TOKENS = 16


class LengthChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The longest request to accept, and the least that the workload needs."""

    wanted_tokens: int
    """With head-room, capped by the model."""
    needed_tokens: int
    """Without head-room: below this, requests of the workload would be refused."""
    peak_tokens: int
    """Longest request that the workload shows or states."""
    model_limit_tokens: int
    stated: bool
    """Whether the peak was stated as `max_request_tokens`."""

    @property
    def capped_by_model(self) -> bool:
        """Whether the model cannot take the peak."""
        return self.model_limit_tokens < self.peak_tokens


def choose_length(demand: Demand, *, model_limit_tokens: int) -> LengthChoice:
    """Return the wanted and the needed `max_model_len`.

    Peak is `max_request_tokens` when stated, else the 99th percentile of the prompts plus the
    longest answer; wanted is min(peak x 1.2 rounded up, the model's limit).
    """
    peak = demand.max_request_tokens or math.ceil(
        demand.prompt_p99_tokens + demand.output_longest_tokens
    )
    return LengthChoice(
        wanted_tokens=min(_round_up(peak * HEADROOM, STEP_TOKENS), model_limit_tokens),
        needed_tokens=min(_round_up(peak, _BLOCK_TOKENS), model_limit_tokens),
        peak_tokens=peak,
        model_limit_tokens=model_limit_tokens,
        stated=demand.max_request_tokens is not None,
    )


def _round_up(tokens: float, step: int) -> int:
    return max(step, math.ceil(tokens / step - 1e-9) * step)
