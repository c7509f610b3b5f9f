"""The compiled loop of a simulated run: from event to event until every request has its answer.

An event is one step, or as many steps as follow in which nobody comes, ends or runs out of blocks:
each of those is longer than the last by the same time, so that their sum is closed.
"""

import numpy as np

from service.tuning.latency.price import (
    CONTEXT,
    LAUNCH,
    MAX_CAPTURE,
    VERIFY,
    WINDOW,
    WINDOW_CONTEXT,
)
from service.tuning.simulation.columns import (
    ADMITTED,
    AGENDA_DUE,
    ALL_S,
    ALONE,
    APART,
    ARRIVED,
    BEAT,
    BLOCKS,
    CLIENTS,
    COMPUTED,
    EVENT_REACHED,
    FIRST_S,
    FREE,
    GENERATED,
    GIVEN,
    GROWING,
    GROWTH,
    HEAD,
    IDLE,
    IN_STEP,
    IS_UNIFORM,
    ISSUED,
    KEEPS_BLOCKS,
    KNOWN,
    KNOWN_GROWING,
    LOST,
    NOW,
    NUM_STEPS,
    PEAK_RUNNING,
    PEAK_USED,
    PREEMPTED,
    PROMPTS,
    REACHED,
    RUNNING,
    RUNNING_S,
    SENT,
    STACKED,
    START,
    STEPS,
    TAKEN_IN,
    TIE_S,
    TOTAL_S,
    USED_S,
    VERIFIED,
    WAITING_S,
    WHOLE_GATE,
    WINDOW_TOKENS,
    Floats,
    Ints,
)
from service.tuning.simulation.compiled import compiled, inlined
from service.tuning.simulation.in_step import known_tokens, new_blocks
from service.tuning.simulation.kernel import step_seconds
from service.tuning.simulation.outcome import advance
from service.tuning.simulation.pool import window_pairs
from service.tuning.simulation.scheduler import admit_waiting, is_decoding, serve_running


@compiled
def simulate(
    engine: tuple[Floats, Ints, Ints, float],
    load: tuple[Ints, Ints, Floats, Floats, Floats],
    outcome: tuple[Floats, Floats, Floats, Floats],
    scratch: tuple[Ints, Floats, Ints, Floats, Floats],
) -> int:
    """Run the requests through vLLM's scheduler; return the number of events, -1 if stuck.

    See `run.py` for what the arrays mean; `LOST` when more are late than `late` allows.
    """
    price, limits, groups, growth = engine
    table, lists, times, arrivals, front = load
    gaps, totals, record, late = outcome
    counters, flow, crossing, batch, step = scratch
    open_engine(price, limits, growth, counters, flow)
    send_first(table, times, counters, limits, arrivals, front, flow)
    finished = event = 0
    while finished < table.shape[0]:
        receive(table, times, counters, flow, event)
        if is_empty(counters):
            wait_for_next(times, counters, flow, step, batch)
        else:
            schedule(table, lists, times, counters, flow, limits, groups, crossing, totals)
            measure_batch(table, lists, counters, flow, batch)
            if batch[0] + batch[1] == 0.0:
                if counters[PREEMPTED] == 1:
                    continue
                return -1
            steps = equal_steps(table, lists, times, counters, flow, limits, groups, crossing)
            time_steps(price, batch, steps, times, counters, flow, step)
            add_integrals(counters, limits, step, totals)
        if not write_event(record, event, step, batch):
            return -1
        ended = advance(
            table,
            lists,
            times,
            counters,
            flow,
            limits,
            groups,
            crossing,
            event,
            step,
            gaps,
            totals,
            late,
        )
        if late[0, 1] < 0.0 or late[1, 1] < 0.0 or late[2, 1] < 0.0:
            return LOST
        finished += ended
        event += 1
        replace_ended(table, times, counters, front, flow, ended)
    totals[TOTAL_S] = flow[NOW]
    return event


@inlined
def schedule(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    flow: Floats,
    limits: Ints,
    groups: Ints,
    crossing: Ints,
    totals: Floats,
) -> None:
    """Decide who gets how many tokens in this step; who was sent back waits for the next one."""
    serve_running(table, lists, times, counters, flow, limits, groups, crossing)
    if counters[PREEMPTED] == 0:
        admit_waiting(table, lists, times, counters, flow, limits, groups, totals)


@inlined
def open_engine(price: Floats, limits: Ints, growth: float, counters: Ints, flow: Floats) -> None:
    """Fill in counters and flow, which are zeros, before anything has happened."""
    counters[FREE] = limits[BLOCKS]
    counters[VERIFIED] = int(price[VERIFY])
    counters[WINDOW_TOKENS] = int(price[WINDOW])
    counters[IS_UNIFORM] = 1 if growth == 1.0 and counters[VERIFIED] == 1 else 0
    flow[GROWTH] = growth


@compiled
def send(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, times: Floats, r: int, at: float, front: Floats, flow: Floats, share: float
) -> None:
    """Send a request: the front end takes requests in one after the other.

    `share` is that of the full service which taking it in takes.
    """
    prompt = table[r, PROMPTS]
    ready = max(flow[TAKEN_IN], at + front[0] + front[1] * prompt)
    flow[TAKEN_IN] = ready + share * (front[2] + front[3] * prompt)
    times[r, SENT] = at
    times[r, REACHED] = flow[TAKEN_IN]


@inlined
def send_first(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    times: Floats,
    counters: Ints,
    limits: Ints,
    arrivals: Floats,
    front: Floats,
    flow: Floats,
) -> None:
    """Send the requests that wait for no answer: one per client, or all at their time."""
    number, clients = table.shape[0], limits[CLIENTS]
    counters[ISSUED] = min(clients, number) if clients > 0 else number
    if clients > 0 or arrivals[number - 1] == 0.0:
        flow[TAKEN_IN] = front[4]
    for r in range(counters[ISSUED]):
        send(table, times, r, 0.0 if clients > 0 else arrivals[r], front, flow, 1.0)


@inlined
def replace_ended(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, times: Floats, counters: Ints, front: Floats, flow: Floats, ended: int
) -> None:
    """Send a new request for each that ended, while there are any left (none in open loops)."""
    for _ in range(min(ended, table.shape[0] - counters[ISSUED])):
        send(table, times, counters[ISSUED], flow[NOW], front, flow, front[5])
        counters[ISSUED] += 1


@inlined
def receive(table: Ints, times: Floats, counters: Ints, flow: Floats, event: int) -> None:
    """Let in what has reached the engine by now."""
    while (
        counters[ARRIVED] < counters[ISSUED]
        and times[counters[ARRIVED], REACHED] <= flow[NOW] + TIE_S
    ):
        table[counters[ARRIVED], EVENT_REACHED] = max(event - 1, 0)
        counters[ARRIVED] += 1


@inlined
def is_empty(counters: Ints) -> bool:
    """Return whether the engine has nothing to do until the next request reaches it."""
    requests: int = counters[RUNNING] + counters[STACKED] + counters[ARRIVED] - counters[HEAD]
    return requests == 0


@inlined
def wait_for_next(times: Floats, counters: Ints, flow: Floats, step: Floats, batch: Floats) -> None:
    """Let the time pass until a request comes: an event of no step."""
    batch[:] = 0.0
    step[START], step[FIRST_S], step[STEPS] = flow[NOW], 0.0, 0.0
    step[ALL_S] = max(times[counters[ARRIVED], REACHED] - flow[NOW], 0.0)


@inlined
def measure_batch(table: Ints, lists: Ints, counters: Ints, flow: Floats, batch: Floats) -> None:
    """Fill in the batch of this step."""
    number, growing = counters[IN_STEP], counters[GROWING]
    grown, window = flow[GROWTH] * counters[BEAT], counters[WINDOW_TOKENS]
    batch[:] = 0.0
    batch[0] = batch[2] = number
    batch[3] = flow[KNOWN] + number * grown
    batch[4] = flow[KNOWN_GROWING] + growing * grown
    if number > growing:
        batch[4] += (number - growing) * float(window)
    for index in range(counters[APART]):
        r = lists[ALONE, index]
        count = table[r, GIVEN]
        if count == 0:
            continue
        known = known_tokens(table, r, table[r, GENERATED], flow[GROWTH])
        if is_decoding(table, r, known):
            batch[0] += 1
            batch[2] += 1
            batch[3] += known
            batch[4] += min(known, window)
        else:
            start = table[r, COMPUTED]
            batch[1] += count
            batch[5] += float(count) * start + count * (count + 1.0) / 2
            batch[6] += window_pairs(start, count, window)
            batch[2] += 1 if start + count >= known else 0


@inlined
def equal_steps(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    flow: Floats,
    limits: Ints,
    groups: Ints,
    crossing: Ints,
) -> int:
    """Return how many steps like this one follow: nobody comes, ends, or runs out of blocks."""
    is_plain = counters[APART] == 0 and counters[PREEMPTED] == 0
    latest = counters[ARRIVED] - 1
    is_fresh = (
        counters[HEAD] <= latest
        and counters[IDLE] == 0
        and times[latest, REACHED] >= flow[NOW] - TIE_S
    )
    # a preempted request that finds fewer of its blocks needs fewer for its first chunk
    may_shrink = limits[WHOLE_GATE] == 0 and counters[STACKED] > 0 and limits[KEEPS_BLOCKS] == 1
    if not is_plain or counters[ADMITTED] == 1 or is_fresh or may_shrink:
        return 1
    return affordable_steps(table, lists, counters, flow, groups, crossing)


@inlined
def affordable_steps(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, lists: Ints, counters: Ints, flow: Floats, groups: Ints, crossing: Ints
) -> int:
    """Return how many steps all in step can take before blocks run out.

    At most until one of them ends; the blocks of the next step are held already.
    """
    due = lists[AGENDA_DUE, counters[IN_STEP] - 1]
    start = counters[BEAT] + 1
    low, high = 1, max(int(due - counters[BEAT]), 1)
    middle = high
    while low < high:
        need = new_blocks(table, lists, counters, flow, groups, crossing, start, middle - 1)
        if need <= counters[FREE]:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


@inlined
def steps_until(seconds: float, first_s: float, slope: float, limit: int) -> int:
    """Return after how many steps, each `slope` longer than the last, that time has passed."""
    low, high = 1, limit
    while low < high:
        middle = (low + high) // 2
        if middle * first_s + slope * middle * (middle - 1) / 2 >= seconds:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def next_arrival_s(times: Floats, counters: Ints, now: float) -> float:
    """Return the seconds until the next request reaches the engine."""
    is_alone = counters[ARRIVED] == counters[ISSUED]
    seconds: float = np.inf if is_alone else times[counters[ARRIVED], REACHED] - now - TIE_S
    return seconds


@inlined
def time_steps(  # noqa: PLR0917 - compiled code takes no keywords
    price: Floats,
    batch: Floats,
    steps: int,
    times: Floats,
    counters: Ints,
    flow: Floats,
    step: Floats,
) -> None:
    """Fill in the time of the first step and of all, and how many fit until a request comes.

    Between two events every step is longer than the last by the same time. The batch becomes the
    mean over the steps.
    """
    first_s = step_seconds(price, batch)
    slope = 0.0
    longer, wider = flow[GROWTH] * counters[IN_STEP], flow[GROWTH] * counters[GROWING]
    if steps > 1:
        slope = slope_s(price, batch, first_s, longer, wider)
        until = next_arrival_s(times, counters, flow[NOW])
        if until < steps * first_s + slope * steps * (steps - 1) / 2:
            steps = steps_until(until, first_s, slope, steps)
    step[START], step[FIRST_S], step[STEPS] = flow[NOW], first_s, steps
    step[ALL_S] = steps * first_s + slope * steps * (steps - 1) / 2
    batch[3] += longer * (steps - 1) / 2
    batch[4] += wider * (steps - 1) / 2


@inlined
def slope_s(price: Floats, batch: Floats, first_s: float, longer: float, wider: float) -> float:
    """Return how much longer the next step of the same sequences takes, seconds.

    Where the host launches nothing, what grows is the reading of the cache alone.
    """
    if price[LAUNCH] == 0.0 or batch[0] * price[VERIFY] <= price[MAX_CAPTURE]:
        slope: float = price[CONTEXT] * longer + price[WINDOW_CONTEXT] * wider
        return slope
    context, window_context = batch[3], batch[4]
    batch[3], batch[4] = context + longer, window_context + wider
    seconds: float = step_seconds(price, batch) - first_s
    batch[3], batch[4] = context, window_context
    return seconds


@inlined
def write_event(record: Floats, event: int, step: Floats, batch: Floats) -> bool:
    """Record an event; return whether there was room for it."""
    if record.shape[0] == 0:
        return True
    if event >= record.shape[0]:
        return False
    record[event, 0] = step[STEPS]
    record[event, 1] = step[START]
    record[event, 2] = step[START] + step[ALL_S]
    for index in range(batch.shape[0]):
        record[event, 3 + index] = batch[index]
    return True


@inlined
def add_integrals(counters: Ints, limits: Ints, step: Floats, totals: Floats) -> None:
    """Add what runs, waits and is used during these steps to the totals."""
    used = limits[BLOCKS] - counters[FREE]
    waiting = counters[ARRIVED] - counters[HEAD] + counters[STACKED]
    totals[RUNNING_S] += step[ALL_S] * counters[RUNNING]
    totals[WAITING_S] += step[ALL_S] * waiting
    totals[USED_S] += step[ALL_S] * used
    totals[PEAK_USED] = max(totals[PEAK_USED], float(used))
    totals[PEAK_RUNNING] = max(totals[PEAK_RUNNING], float(counters[RUNNING]))
    totals[NUM_STEPS] += step[STEPS]
