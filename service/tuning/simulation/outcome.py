"""What a step leaves behind: tokens, latencies, those who end, gaps between tokens."""

import math

from service.tuning.latency.price import GAP_BINS, GAP_HIGH_S, GAP_LOW_S
from service.tuning.simulation.columns import (
    AGENDA,
    AGENDA_DUE,
    ALL_S,
    ALONE,
    APART,
    BASE,
    BEAT,
    COMMON,
    COMPUTED,
    DUE,
    END,
    EVENT_END,
    EVENT_FIRST,
    FIRST,
    FIRST_S,
    FREE,
    GAPS_S,
    GENERATED,
    GIVEN,
    GROWTH,
    HELD,
    IN_ORDER,
    IN_STEP,
    LATEST,
    NOW,
    NUM_GAPS,
    ORDER,
    OUTPUTS,
    PREFIX_BLOCKS,
    PREFIX_READY,
    RUNNING,
    SENT,
    SHARED,
    START,
    STEPS,
    Floats,
    Ints,
)
from service.tuning.simulation.compiled import compiled, inlined
from service.tuning.simulation.in_step import (
    count_in,
    count_out,
    join,
    known_tokens,
    own_blocks,
    take_for_all,
)
from service.tuning.simulation.pool import shared_blocks
from service.tuning.simulation.scheduler import is_decoding


@inlined
def gap_bin(seconds: float) -> int:
    """Return the histogram bin of a gap between two tokens."""
    if seconds <= GAP_LOW_S:
        return 0
    position = math.log(seconds / GAP_LOW_S) / math.log(GAP_HIGH_S / GAP_LOW_S) * GAP_BINS
    return min(int(position), GAP_BINS - 1)


@inlined
def count_gaps(gap: float, number: float, gaps: Floats, totals: Floats) -> None:
    """Count so many gaps of this length between tokens."""
    if number > 0.0:
        gaps[gap_bin(gap)] += number
        totals[GAPS_S] += gap * number
        totals[NUM_GAPS] += number


@inlined
def count_late(seconds: float, metric: int, late: Floats) -> None:
    """Count a request whose latency is above what `late` allows for the metric."""
    if seconds > late[metric, 0]:
        late[metric, 1] -= 1.0


@compiled
def share_prefix(table: Ints, r: int, counters: Ints, limits: Ints, groups: Ints) -> None:
    """Let later requests find the prefix that the first one has computed."""
    if limits[SHARED] == 0 or counters[PREFIX_READY] == 1:
        return
    counters[PREFIX_READY] = 1
    counters[PREFIX_BLOCKS] = shared_blocks(groups, limits[SHARED])
    table[r, HELD] -= counters[PREFIX_BLOCKS]
    table[r, COMMON] = counters[PREFIX_BLOCKS]


@compiled
def leave(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    r: int,
    end: float,
    event: int,
    late: Floats,
) -> None:
    """Let a request go whose answer is complete."""
    times[r, END] = end
    count_late((end - times[r, FIRST]) / max(table[r, OUTPUTS] - 1, 1), 1, late)
    count_late(end - times[r, SENT], 2, late)
    table[r, EVENT_END] = event
    counters[FREE] += table[r, HELD]
    table[r, HELD] = table[r, COMMON] = 0
    low, high = 0, counters[RUNNING] - 1
    while low < high:
        middle = (low + high) // 2
        if table[lists[IN_ORDER, middle], ORDER] < table[r, ORDER]:
            low = middle + 1
        else:
            high = middle
    counters[RUNNING] -= 1
    for index in range(low, counters[RUNNING]):
        lists[IN_ORDER, index] = lists[IN_ORDER, index + 1]


@inlined
def advance(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    flow: Floats,
    limits: Ints,
    groups: Ints,
    crossing: Ints,
    event: int,
    step: Floats,
    gaps: Floats,
    totals: Floats,
    late: Floats,
) -> int:
    """Book the outcome of the steps for every running request; return how many ended."""
    end = flow[NOW] = step[START] + step[ALL_S]
    if step[STEPS] == 0.0:
        return 0
    before = counters[RUNNING]
    first_s, steps = step[FIRST_S], int(step[STEPS])
    number = float(counters[IN_STEP])
    count_gaps(first_s, number, gaps, totals)
    later_s = (step[ALL_S] - first_s) / max(steps - 1, 1)
    count_gaps(later_s, number * (steps - 1), gaps, totals)
    take_for_all(table, lists, counters, flow, groups, crossing, steps - 1)
    settle_due(table, lists, times, counters, flow, groups, crossing, end, event, late)
    kept, number_apart = 0, counters[APART]
    for index in range(number_apart):
        r = lists[ALONE, index]
        if has_sampled(table, r, flow[GROWTH]):
            sample(table, times, counters, limits, groups, r, event, step, gaps, totals, late)
            if table[r, GENERATED] >= table[r, OUTPUTS]:
                leave(table, lists, times, counters, r, end, event, late)
            else:
                table[r, COMPUTED] = known_tokens(table, r, table[r, GENERATED], flow[GROWTH]) - 1
                join(table, lists, counters, flow, groups, crossing, r)
        else:
            lists[ALONE, kept] = r
            kept += 1
    counters[APART] = kept
    ended: int = before - counters[RUNNING]
    return ended


@inlined
def settle_due(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    flow: Floats,
    groups: Ints,
    crossing: Ints,
    end: float,
    event: int,
    late: Floats,
) -> None:
    """Look at those in step whose beat has come: their answer ends, or their window is full."""
    while counters[IN_STEP] > 0 and lists[AGENDA_DUE, counters[IN_STEP] - 1] <= counters[BEAT]:
        r = lists[AGENDA, counters[IN_STEP] - 1]
        count_out(table, lists, counters, flow, groups, crossing, r)
        if table[r, BASE] + counters[BEAT] >= table[r, OUTPUTS]:
            table[r, HELD] = own_blocks(table, r, counters, flow, groups)
            table[r, DUE] = 0
            leave(table, lists, times, counters, r, end, event, late)
        else:
            count_in(table, lists, counters, flow, groups, crossing, r)


@inlined
def has_sampled(table: Ints, r: int, growth: float) -> bool:
    """Book the tokens that one apart was given; return whether it got a new token for them."""
    if table[r, GIVEN] == 0:
        return False
    known = known_tokens(table, r, table[r, GENERATED], growth)
    if is_decoding(table, r, known):
        return True
    table[r, COMPUTED] += table[r, GIVEN]
    is_read: bool = table[r, COMPUTED] >= known
    return is_read


@compiled
def sample(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    times: Floats,
    counters: Ints,
    limits: Ints,
    groups: Ints,
    r: int,
    event: int,
    step: Floats,
    gaps: Floats,
    totals: Floats,
    late: Floats,
) -> None:
    """Book the new token of one that is apart."""
    end = step[START] + step[ALL_S]
    if table[r, GENERATED] == 0:
        times[r, FIRST] = end
        count_late(end - times[r, SENT], 0, late)
        table[r, EVENT_FIRST] = event
        share_prefix(table, r, counters, limits, groups)
    else:
        count_gaps(end - times[r, LATEST], 1.0, gaps, totals)
    times[r, LATEST] = end
    table[r, GENERATED] += 1
