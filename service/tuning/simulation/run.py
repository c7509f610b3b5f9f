"""One simulated run: traffic through the scheduler at given prices."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from api_schemas.slo import Slo
from service.tuning.latency.price import GAP_BINS, NUM_BATCH
from service.tuning.simulation import columns
from service.tuning.simulation.bounds import LimitMissed, latency_bounds
from service.tuning.simulation.limits import SchedulerLimits
from service.tuning.simulation.traffic import Traffic

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


AGAIN_SHARE = 0.3
"""Of 1, 0.7, 0.5, 0.3, 0.2 and 0.1, one of small errors on groups left out of the fit."""


class FrontEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server does before the engine has a request, seconds.

    `latency_s` passes for all requests at once; `service_s` is spent on one after the other, so
    that requests sent together reach the engine apart. Those that a run begins with wait for
    `start_s` before the first of them is taken in.
    """

    latency_s: float = 0.0
    latency_per_token_s: float = 0.0
    service_s: float = 0.0
    service_per_token_s: float = 0.0
    start_s: float = 0.0
    open_share: float = 1.0
    """Share of the service that a request takes which comes at a time of its own, in an open loop:
    what loops and bursts show beyond it is no proof of how many requests a second a host takes."""
    again_share: float = AGAIN_SHARE
    """Share of the service that the later requests of a loop take: their connections stand."""

    def as_array(self, *, is_open: bool) -> Floats:
        """Return the numbers in the kernel's order."""
        share = self.open_share if is_open else 1.0
        return np.array(
            [
                self.latency_s,
                self.latency_per_token_s,
                self.service_s * share,
                self.service_per_token_s * share,
                self.start_s,
                self.again_share,
            ]
        )

    def highest_rate(self, prompt_tokens: float) -> float:
        """Return the requests per second of an open loop that are handed on in time."""
        service_s = self.service_s + self.service_per_token_s * prompt_tokens
        return 1.0 / max(self.open_share * service_s, 1e-12)

    def scaled(self, factor: float) -> "FrontEnd":
        """Return the same front end, slower by this factor."""
        return FrontEnd(
            latency_s=self.latency_s * factor,
            latency_per_token_s=self.latency_per_token_s * factor,
            service_s=self.service_s * factor,
            service_per_token_s=self.service_per_token_s * factor,
            start_s=self.start_s * factor,
            open_share=self.open_share,
            again_share=self.again_share,
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
    peak_running: int
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

    `growth` is the mean number of tokens a sequence gains per step (speculation); `max_events`
    above zero records the batch of every event. `LimitMissed` is raised as soon as a latency limit
    in `limited_by` cannot hold any more (requests of equal weight).
    """
    from service.tuning.simulation.loop import simulate  # noqa: PLC0415 - loads the compiler

    table, lists, times = _tables(traffic, growth=growth)
    gaps, totals = np.zeros(GAP_BINS), np.zeros(columns.NUM_TOTALS)
    record = np.zeros((max_events, 3 + NUM_BATCH))
    late = latency_bounds(limited_by, number=len(table), growth=growth)
    groups = limits.group_array()
    is_open = traffic.offered_requests_per_s is not None
    events = simulate(
        (price, limits.as_array(concurrency=traffic.concurrency), groups, growth),
        (table, lists, times, traffic.arrivals, front_end.as_array(is_open=is_open)),
        (gaps, totals, record, late),
        _scratch(groups),
    )
    if events == columns.LOST:
        raise LimitMissed("a latency limit is missed")
    if events < 0:
        return None
    return _run(
        traffic,
        table=table,
        times=times,
        gaps=gaps,
        totals=totals,
        events=record[:events] if max_events else record,
    )


def _tables(traffic: Traffic, *, growth: float) -> tuple[Ints, Ints, Floats]:
    """Return the tables of requests, lists and times as the loop starts with them."""
    number = len(traffic.prompts)
    table = np.zeros((number, columns.NUM_COLUMNS), dtype=np.int64)
    table[:, columns.PROMPTS] = traffic.prompts
    table[:, columns.OUTPUTS] = _sampling_steps(traffic.outputs, growth=growth)
    lists = np.zeros((columns.NUM_LISTS, number + 1), dtype=np.int64)
    return table, lists, np.zeros((number, columns.NUM_TIMES))


def _scratch(groups: Ints) -> tuple[Ints, Floats, Ints, Floats, Floats]:
    """Return counters, flow, blocks begun by beat, batch and step of a loop that has not begun."""
    widest = int(groups[:, 0].max()) + 1
    return (
        np.zeros(columns.NUM_COUNTERS, dtype=np.int64),
        np.zeros(columns.NUM_FLOW),
        np.zeros((len(groups), widest), dtype=np.int64),
        np.zeros(NUM_BATCH),
        np.zeros(columns.NUM_EVENT),
    )


def _run(
    traffic: Traffic, *, table: Ints, times: Floats, gaps: Floats, totals: Floats, events: Floats
) -> Run:
    """Return the run that the loop has left in its tables."""
    span = max(float(totals[columns.TOTAL_S]), 1e-12)
    num_gaps = float(totals[columns.NUM_GAPS])
    return Run(
        traffic=traffic,
        times=times[:, : columns.LATEST],
        marks=table[:, columns.EVENT_REACHED :],
        gaps=gaps,
        duration_s=span,
        mean_running=float(totals[columns.RUNNING_S]) / span,
        mean_waiting=float(totals[columns.WAITING_S]) / span,
        mean_used_blocks=float(totals[columns.USED_S]) / span,
        peak_used_blocks=float(totals[columns.PEAK_USED]),
        peak_running=int(totals[columns.PEAK_RUNNING]),
        mean_gap_s=float(totals[columns.GAPS_S]) / num_gaps if num_gaps > 0 else 0.0,
        steps=float(totals[columns.NUM_STEPS]),
        recomputed_tokens=float(totals[columns.RECOMPUTED]),
        events=events,
    )


def _sampling_steps(outputs: Ints, *, growth: float) -> Ints:
    """Return the steps that sample: one for the first token, then `growth` tokens each."""
    if growth <= 1.0:
        return outputs
    steps: Ints = 1 + np.ceil((outputs - 1) / growth).astype(np.int64)
    return steps
