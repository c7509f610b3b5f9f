"""One step of vLLM's scheduler: those that run get their tokens, then those that wait."""

from service.tuning.simulation.columns import (
    ADMISSIONS,
    ADMITTED,
    ALONE,
    APART,
    ARRIVED,
    BEAT,
    BUDGET,
    CHUNKED,
    COMMON,
    COMPUTED,
    DUE,
    FREE,
    GENERATED,
    GIVEN,
    GROWTH,
    HANDED_OUT,
    HEAD,
    HELD,
    HIT_TOKENS,
    IDLE,
    IN_ORDER,
    IN_STEP,
    JOINERS_FREE,
    JOINERS_TAKE,
    KEEPS_BLOCKS,
    LEFT,
    LONGEST_CHUNK,
    LOST_AT,
    LOST_BLOCKS,
    LOST_TOKENS,
    MAX_RUNNING,
    NOW,
    ORDER,
    PREEMPTED,
    PREEMPTIONS,
    PREFIX_BLOCKS,
    PREFIX_READY,
    REACHED,
    RECOMPUTED,
    RUNNING,
    SCHEDULED,
    SENT_BACK,
    SHARED,
    STACKED,
    TIE_S,
    VERIFIED,
    WATERMARK,
    WHOLE_GATE,
    Floats,
    Ints,
)
from service.tuning.simulation.compiled import compiled, inlined
from service.tuning.simulation.in_step import (
    begins_no_block,
    extra_blocks,
    known_tokens,
    new_blocks,
    part,
    set_apart,
)
from service.tuning.simulation.pool import sequence_blocks


@inlined
def is_decoding(table: Ints, r: int, known: int) -> bool:
    """Return whether the next step of a request that is apart only adds to its answer."""
    decodes: bool = table[r, GENERATED] > 0 and known - table[r, COMPUTED] <= 1
    return decodes


@inlined
def take_blocks(table: Ints, r: int, extra: int, counters: Ints) -> None:
    """Hand blocks to a request that is apart, or take back those that it attends no longer."""
    counters[FREE] -= extra
    counters[HANDED_OUT] += max(extra, 0)
    table[r, HELD] += extra


@compiled
def preempt_last(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    flow: Floats,
    groups: Ints,
    crossing: Ints,
) -> None:
    """Send the request that was admitted last back to the front of the queue."""
    counters[RUNNING] -= 1
    victim = lists[IN_ORDER, counters[RUNNING]]
    if table[victim, DUE] > 0:
        part(table, lists, times, counters, flow, groups, crossing, victim)
    else:
        counters[APART] -= 1
    table[victim, LOST_BLOCKS] = table[victim, HELD]
    table[victim, LOST_TOKENS] = table[victim, COMPUTED]
    table[victim, LOST_AT] = counters[HANDED_OUT] + counters[FREE]
    counters[FREE] += table[victim, HELD]
    table[victim, HELD] = table[victim, COMMON] = 0
    table[victim, COMPUTED] = table[victim, GIVEN] = 0
    table[victim, PREEMPTIONS] += 1
    lists[SENT_BACK, counters[STACKED]] = victim
    counters[STACKED] += 1
    counters[PREEMPTED] = 1


@inlined
def wanted_tokens(table: Ints, r: int, counters: Ints, limits: Ints, growth: float) -> int:
    """Return the tokens that a request apart asks of this step."""
    known = known_tokens(table, r, table[r, GENERATED], growth)
    if is_decoding(table, r, known):
        verified: int = counters[VERIFIED]
        return verified
    count: int = known - table[r, COMPUTED]
    longest: int = limits[LONGEST_CHUNK]
    return min(count, longest) if longest > 0 else count


@inlined
def blocks_for(table: Ints, r: int, count: int, groups: Ints) -> int:
    """Return the blocks that so many tokens of a request apart need; negative: it frees some."""
    if count <= 0:
        return 0
    blocks: int = sequence_blocks(groups, table[r, COMPUTED] + count, count)
    blocks -= table[r, COMMON] + table[r, HELD]
    return blocks


@inlined
def serve_running(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    flow: Floats,
    limits: Ints,
    groups: Ints,
    crossing: Ints,
) -> None:
    """Give the running requests their tokens, in the order of admission."""
    counters[PREEMPTED] = counters[ADMITTED] = 0
    if not serve_at_once(table, lists, counters, flow, limits, groups, crossing):
        serve_in_order(table, lists, times, counters, flow, limits, groups, crossing)


@inlined
def serve_at_once(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    counters: Ints,
    flow: Floats,
    limits: Ints,
    groups: Ints,
    crossing: Ints,
) -> bool:
    """Serve all without looking at those in step one by one; return whether that was possible.

    It is when tokens and blocks suffice for all in step, and whoever is apart comes behind them.
    """
    apart = counters[APART]
    left = limits[BUDGET] - counters[IN_STEP] * counters[VERIFIED]
    if left < 0:
        return False
    if apart > 0 and lists[IN_ORDER, counters[RUNNING] - apart] != lists[ALONE, 0]:
        return False
    for_all = new_blocks(table, lists, counters, flow, groups, crossing, int(counters[BEAT]), 1)
    needed = for_all + counters[JOINERS_TAKE]
    for index in range(apart):
        r = lists[ALONE, index]
        count = min(wanted_tokens(table, r, counters, limits, flow[GROWTH]), left)
        table[r, GIVEN] = count
        left -= count
        needed += max(blocks_for(table, r, count, groups), 0)
    if needed > counters[FREE]:
        return False
    for index in range(apart):
        r = lists[ALONE, index]
        take_blocks(table, r, blocks_for(table, r, table[r, GIVEN], groups), counters)
    counters[FREE] += counters[JOINERS_FREE] - for_all
    counters[HANDED_OUT] += counters[JOINERS_TAKE] + for_all
    counters[LEFT] = left
    return True


@compiled
def serve_in_order(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    flow: Floats,
    limits: Ints,
    groups: Ints,
    crossing: Ints,
) -> None:
    """Serve one request after the other; the last ones give way when blocks run out."""
    left, index = limits[BUDGET], 0
    while index < counters[RUNNING]:
        r = lists[IN_ORDER, index]
        index += 1
        is_in_step = table[r, DUE] > 0
        if (
            is_in_step
            and left >= counters[VERIFIED]
            and begins_no_block(table, r, counters, groups)
        ):
            left -= counters[VERIFIED]
            continue
        if is_in_step:
            count = min(counters[VERIFIED], left)
        else:
            count = min(wanted_tokens(table, r, counters, limits, flow[GROWTH]), left)
            table[r, GIVEN] = 0
        if count <= 0:
            if is_in_step:
                part(table, lists, times, counters, flow, groups, crossing, r)
                table[r, GIVEN] = 0
                set_apart(table, lists, counters, r)
            continue
        if is_in_step:
            extra = extra_blocks(table, r, counters, flow, groups)
        else:
            extra = blocks_for(table, r, count, groups)
        while extra > counters[FREE] and counters[RUNNING] >= index:
            preempt_last(table, lists, times, counters, flow, groups, crossing)
        if counters[RUNNING] < index:
            break
        counters[FREE] -= extra
        counters[HANDED_OUT] += max(extra, 0)
        left -= count
        if not is_in_step:
            table[r, HELD] += extra
            table[r, GIVEN] = count
    counters[LEFT] = left


@inlined
def next_waiting(lists: Ints, times: Floats, counters: Ints, now: float) -> int:
    """Return the request at the head of the queue, -1 when none may be looked at.

    Who reaches the engine while a step is under way misses the one that follows.
    """
    head: int = counters[HEAD]
    sent_back: int = lists[SENT_BACK, max(counters[STACKED] - 1, 0)]
    if counters[STACKED] > 0:
        return sent_back
    if head < counters[ARRIVED] and (counters[IDLE] == 1 or times[head, REACHED] < now - TIE_S):
        return head
    return -1


@inlined
def cached_tokens(table: Ints, r: int, known: int, counters: Ints, limits: Ints) -> int:
    """Return the tokens of a waiting request that the cache holds.

    The shared prefix, or what a preempted request left behind: its blocks, the last one first, are
    handed out again once those that were free before it are.
    """
    hit = min(limits[SHARED], known - 1) if counters[PREFIX_READY] == 1 else 0
    lost = table[r, LOST_BLOCKS]
    left = lost - max(counters[HANDED_OUT] - table[r, LOST_AT], 0)
    if limits[KEEPS_BLOCKS] == 1 and lost > 0 and left > 0:
        block, tokens = limits[HIT_TOKENS], table[r, LOST_TOKENS]
        found = (tokens + block - 1) // block * block * left // lost // block * block
        hit = max(hit, min(found, tokens // block * block, (known - 1) // block * block))
    return hit


@inlined
def first_chunk(known: int, hit: int, counters: Ints, limits: Ints) -> int:
    """Return the tokens that a waiting request would get in this step; 0 when it must wait."""
    count: int = known - hit
    if limits[LONGEST_CHUNK] > 0:
        count = min(count, limits[LONGEST_CHUNK])
    left: int = counters[LEFT]
    if limits[CHUNKED] == 1:
        return min(count, left)
    return 0 if count > left and counters[RUNNING] > 0 else count


@inlined
def admit_waiting(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    flow: Floats,
    limits: Ints,
    groups: Ints,
    totals: Floats,
) -> None:
    """Admit waiting requests in order while budget, sequence limit and blocks allow."""
    counters[IDLE] = 1 if counters[RUNNING] == 0 else 0
    while counters[LEFT] > 0 and counters[RUNNING] < limits[MAX_RUNNING]:
        r = next_waiting(lists, times, counters, flow[NOW])
        if r < 0:
            break
        known = known_tokens(table, r, table[r, GENERATED], flow[GROWTH])
        hit = cached_tokens(table, r, known, counters, limits)
        own = 0
        if counters[PREFIX_READY] == 1 and hit >= limits[SHARED]:
            own = counters[PREFIX_BLOCKS]
        count = first_chunk(known, hit, counters, limits)
        if count == 0:
            break
        needed = known if limits[WHOLE_GATE] == 1 else hit + count
        kept = limits[WATERMARK] if counters[RUNNING] > 0 else 0
        given = needed if limits[WHOLE_GATE] == 1 else count
        if sequence_blocks(groups, needed, given) - own + kept > counters[FREE]:
            break
        totals[RECOMPUTED] += max(table[r, LOST_TOKENS] - hit, 0)
        table[r, HELD] = 0
        table[r, COMMON] = own
        take_blocks(table, r, sequence_blocks(groups, hit + count, count) - own, counters)
        table[r, COMPUTED] = hit
        admit(table, lists, times, counters, r, count, flow[NOW])


@inlined
def admit(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, lists: Ints, times: Floats, counters: Ints, r: int, count: int, now: float
) -> None:
    """Move the request at the head of the queue to those that run, with its tokens."""
    table[r, LOST_BLOCKS] = table[r, LOST_TOKENS] = 0
    table[r, GIVEN] = count
    table[r, ORDER] = counters[ADMISSIONS]
    if counters[STACKED] > 0:
        counters[STACKED] -= 1
    else:
        counters[HEAD] += 1
        times[r, SCHEDULED] = now
    lists[IN_ORDER, counters[RUNNING]] = lists[ALONE, counters[APART]] = r
    counters[ADMISSIONS] += 1
    counters[RUNNING] += 1
    counters[APART] += 1
    counters[LEFT] -= count
    counters[ADMITTED] = 1
