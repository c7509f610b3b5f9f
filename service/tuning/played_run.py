"""A run of a benchmark client, request by request: what a prediction of that very run starts from.

A steady state has no beginning and no end, and drawn requests are not those that were sent. Of a
short run both are a large part, and would count as errors of the prediction.
"""

import math

import msgspec
import numpy as np

from api_schemas.workload import Arrivals, ClosedLoop, GammaArrivals, PoissonArrivals
from service.tuning.simulation.traffic import MAX_REQUESTS, Traffic


class PlayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a client sent, in its order: all copies of the engine together."""

    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    sent_s: tuple[float, ...] | None = None
    """Seconds since the client began; None in a closed loop, whose times follow from the engine."""
    max_concurrency: int | None = None
    """Requests in flight at most, in a closed loop."""
    offered_requests_per_s: float | None = None
    """Rate of an open loop."""

    @property
    def can_be_simulated(self) -> bool:
        """Whether it is short enough, and it is known when its requests came."""
        is_timed = self.offered_requests_per_s is None or self.sent_s is not None
        return is_timed and 0 < len(self.prompt_tokens) <= MAX_REQUESTS


def run_of(arrivals: Arrivals, *, num_requests: int) -> Arrivals:
    """Return arrivals that end after so many requests; those that end by themselves as they are."""
    if isinstance(arrivals, PoissonArrivals | GammaArrivals | ClosedLoop):
        return msgspec.structs.replace(arrivals, num_requests=num_requests)
    return arrivals


def traffic_of(played: PlayedRun, *, replicas: int) -> Traffic:
    """Return the requests that one of `replicas` equal engines saw, dealt out in turn."""
    prompts = np.asarray(played.prompt_tokens[::replicas], dtype=np.int64)
    number, rate = len(prompts), played.offered_requests_per_s
    clients = 0
    if played.max_concurrency is not None:
        clients = min(math.ceil(played.max_concurrency / replicas), number)
    sent_s = None if played.sent_s is None or clients else played.sent_s[::replicas]
    return Traffic(
        prompts=prompts,
        outputs=np.asarray(played.output_tokens[::replicas], dtype=np.int64),
        arrivals=np.zeros(number) if sent_s is None else np.asarray(sent_s, dtype=np.float64),
        concurrency=clients,
        weights=np.full(number, 1.0 / number),
        waves=number / clients if clients else 0.0,
        offered_requests_per_s=None if rate is None or clients else rate / replicas,
    )
