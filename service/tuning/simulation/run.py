"""One simulated run: traffic through the scheduler at given prices."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from api_schemas.slo import Slo
from service.tuning.latency.price import GAP_BINS, NUM_BATCH
from service.tuning.simulation.bounds import LimitMissed, latency_bounds
from service.tuning.simulation.limits import SchedulerLimits
from service.tuning.simulation.traffic import Traffic

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_NUM_TOTALS = 9


class FrontEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server does before the engine has a request, seconds.

    `latency_s` passes for all requests at once; `service_s` is spent on one after the other, so
    that requests sent together reach the engine apart.
    """

    latency_s: float = 0.0
    latency_per_token_s: float = 0.0
    service_s: float = 0.0
    service_per_token_s: float = 0.0

    def as_array(self) -> Floats:
        """Return the numbers in the kernel's order."""
        return np.array(
            [self.latency_s, self.latency_per_token_s, self.service_s, self.service_per_token_s]
        )


NO_FRONT_END = FrontEnd()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to every request, raw."""

    traffic: Traffic
    times: Floats
    """Rows of sent, reached the engine, scheduled, first token, end; seconds."""
    marks: Ints
    """Rows of the event under way when it reached the engine, of the first token, of the end;
    preemptions."""
    gaps: Floats
    """Histogram of gaps between tokens."""
    duration_s: float
    mean_running: float
    mean_waiting: float
    mean_used_blocks: float
    peak_used_blocks: float
    mean_gap_s: float
    steps: float
    recomputed_tokens: float
    events: Floats
    """Recorded: steps, start, end, then the batch; empty when nothing was recorded."""

    @property
    def preemptions(self) -> int:
        """Preemptions of all requests together."""
        return int(self.marks[:, 3].sum())


def run_scheduler(
    price: Floats,
    *,
    traffic: Traffic,
    limits: SchedulerLimits,
    front_end: FrontEnd = NO_FRONT_END,
    growth: float = 1.0,
    max_events: int = 0,
    limited_by: Slo | None = None,
) -> Run | None:
    """Return what happens to the requests; None when one of them can never be served.

    The totals of the kernel are: end of the last request; integrals over time of running, waiting
    and blocks used; most blocks used; sum and number of gaps; steps; tokens computed again.
    `growth` is the mean number of tokens a sequence gains per step (speculation); `max_events`
    above zero records the batch of every event. `LimitMissed` is raised as soon as a latency limit
    in `limited_by` cannot hold any more (requests of equal weight).
    """
    from service.tuning.simulation import kernel  # noqa: PLC0415 - loads the compiler

    number = len(traffic.prompts)
    table = _table(traffic, growth=growth)
    times = np.zeros((number, kernel.NUM_TIMES))
    gaps = np.zeros(GAP_BINS)
    totals = np.zeros(_NUM_TOTALS)
    record = np.zeros((max_events, 3 + NUM_BATCH))
    events = kernel.simulate(
        price,
        limits.as_array(concurrency=traffic.concurrency),
        limits.group_array(),
        table,
        np.zeros((2, number), dtype=np.int64),
        times,
        traffic.arrivals,
        front_end.as_array(),
        growth,
        gaps,
        totals,
        record,
        latency_bounds(limited_by, number=number, growth=growth),
    )
    if events == kernel.LOST:
        raise LimitMissed("a latency limit is missed")
    if events < 0:
        return None
    span = max(float(totals[0]), 1e-12)
    return Run(
        traffic=traffic,
        times=times[:, : kernel.LATEST],
        marks=table[:, kernel.EVENT_REACHED :],
        gaps=gaps,
        duration_s=span,
        mean_running=float(totals[1]) / span,
        mean_waiting=float(totals[2]) / span,
        mean_used_blocks=float(totals[3]) / span,
        peak_used_blocks=float(totals[4]),
        mean_gap_s=float(totals[5] / totals[6]) if totals[6] > 0 else 0.0,
        steps=float(totals[7]),
        recomputed_tokens=float(totals[8]),
        events=record[:events] if max_events else record,
    )


def _table(traffic: Traffic, *, growth: float) -> Ints:
    """Return the table of requests as the kernel starts with it."""
    from service.tuning.simulation import kernel  # noqa: PLC0415 - loads the compiler

    shape = len(traffic.prompts), kernel.NUM_COLUMNS
    table = np.zeros(shape, dtype=np.int64, order="F")
    table[:, kernel.PROMPTS] = traffic.prompts
    table[:, kernel.OUTPUTS] = _sampling_steps(traffic.outputs, growth=growth)
    return table


def _sampling_steps(outputs: Ints, *, growth: float) -> Ints:
    """Return the steps that sample: one for the first token, then `growth` tokens each."""
    if growth <= 1.0:
        return outputs
    steps: Ints = 1 + np.ceil((outputs - 1) / growth).astype(np.int64)
    return steps
