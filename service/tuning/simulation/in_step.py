"""Sequences that all gain a token at every step, booked together instead of one by one.

A sequence that decodes and is served at every step is "in step": what it has done follows from the
beat, the number of such steps so far, and a constant of its own. Their number, their tokens and
the steps at which they need a new block are kept as sums, so that a step, or many at once, cost
the same for one sequence and for a thousand. All others (reading a prompt, held up) are "apart".
"""

from service.tuning.simulation.columns import (
    AGENDA,
    AGENDA_DUE,
    ALONE,
    APART,
    BASE,
    BEAT,
    COMMON,
    COMPUTED,
    DUE,
    FREE,
    GENERATED,
    GROWING,
    GROWTH,
    HANDED_OUT,
    HELD,
    IN_ORDER,
    IN_STEP,
    IS_UNIFORM,
    JOINED,
    JOINERS_FREE,
    JOINERS_TAKE,
    KNOWN,
    KNOWN_GROWING,
    LATEST,
    NOW,
    ORDER,
    OUTPUTS,
    PROMPTS,
    RUNNING,
    SEEN,
    VERIFIED,
    WINDOW_TOKENS,
    Floats,
    Ints,
)
from service.tuning.simulation.compiled import compiled, inlined
from service.tuning.simulation.pool import sequence_blocks


@inlined
def known_tokens(table: Ints, r: int, generated: int, growth: float) -> int:
    """Return the tokens of the prompt and of an answer after so many steps."""
    known: int = table[r, PROMPTS] + int(growth * generated)
    return known


@inlined
def blocks_at(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, r: int, beat: int, counters: Ints, growth: float, groups: Ints
) -> int:
    """Return the blocks that one in step needs for its step at that beat, shared ones included."""
    known = known_tokens(table, r, table[r, BASE] + beat, growth)
    return sequence_blocks(groups, known - 1 + counters[VERIFIED], counters[VERIFIED])


@compiled
def own_blocks(table: Ints, r: int, counters: Ints, flow: Floats, groups: Ints) -> int:
    """Return the blocks of its own that one in step holds now."""
    held: int = table[r, HELD]
    if counters[BEAT] == table[r, JOINED]:
        return held
    held = blocks_at(table, r, counters[BEAT] - 1, counters, flow[GROWTH], groups)
    held -= table[r, COMMON]
    return held


@compiled
def extra_blocks(table: Ints, r: int, counters: Ints, flow: Floats, groups: Ints) -> int:
    """Return the blocks that one in step needs for its next step; negative: it gives some back."""
    blocks: int = blocks_at(table, r, counters[BEAT], counters, flow[GROWTH], groups)
    blocks -= table[r, COMMON] + own_blocks(table, r, counters, flow, groups)
    return blocks


@inlined
def begins_no_block(table: Ints, r: int, counters: Ints, groups: Ints) -> bool:
    """Return whether one in step surely needs no block for its next step (`extra_blocks` is 0).

    Told from the place in the block alone, which holds for most and is quick.
    """
    if counters[IS_UNIFORM] == 0 or counters[BEAT] == table[r, JOINED]:
        return False
    before = table[r, PROMPTS] + table[r, BASE] + counters[BEAT] - 1
    for group in range(groups.shape[0]):
        block = groups[group, 0]
        if block > 0 and before % block == 0:
            return False
    return True


@inlined
def new_blocks(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    counters: Ints,
    flow: Floats,
    groups: Ints,
    crossing: Ints,
    start: int,
    steps: int,
) -> int:
    """Return the new blocks that all in step need for so many steps from that beat on.

    Without what those who come in step at that beat hold too much or too little (`JOINERS_FREE`).
    """
    if counters[IS_UNIFORM] == 1:
        return crossed_blocks(groups, crossing, start, steps)
    growth, total = flow[GROWTH], 0
    for index in range(counters[RUNNING]):
        r = lists[IN_ORDER, index]
        if table[r, DUE] > 0:
            first = start if start == table[r, JOINED] else start - 1
            total += blocks_at(table, r, start + steps - 1, counters, growth, groups)
            total -= blocks_at(table, r, first, counters, growth, groups)
    return total


@inlined
def crossed_blocks(groups: Ints, crossing: Ints, start: int, steps: int) -> int:
    """Return the new blocks of so many steps when each adds one token.

    `crossing` counts by group who begins a block at a beat modulo the block size, and in its last
    column all who still grow.
    """
    total = 0
    for group in range(groups.shape[0]):
        block = groups[group, 0]
        if block == 0:
            continue
        total += steps // block * crossing[group, -1]
        place = start % block
        for _ in range(steps % block):
            total += crossing[group, place]
            place = place + 1 if place + 1 < block else 0
    return total


@inlined
def take_for_all(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    counters: Ints,
    flow: Floats,
    groups: Ints,
    crossing: Ints,
    steps: int,
) -> None:
    """Let all in step take so many further steps, whose blocks are known to be free."""
    if steps > 0:
        start = counters[BEAT] + 1
        blocks = new_blocks(table, lists, counters, flow, groups, crossing, start, steps)
        counters[FREE] -= blocks
        counters[HANDED_OUT] += blocks
    counters[BEAT] += 1 + steps
    counters[JOINERS_FREE] = counters[JOINERS_TAKE] = 0


@compiled
def count_in(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, lists: Ints, counters: Ints, flow: Floats, groups: Ints, crossing: Ints, r: int
) -> None:
    """Add a sequence to the sums, and note when it must be looked at again."""
    beat, growth = counters[BEAT], flow[GROWTH]
    known = known_tokens(table, r, table[r, BASE] + beat, growth)
    table[r, SEEN] = beat
    due = add_to_sums(table, counters, flow, groups, crossing, r, known, 1)
    due = beat + min(due, table[r, OUTPUTS] - table[r, BASE] - beat)
    table[r, DUE] = due
    place = counters[IN_STEP]
    while place > 0 and lists[AGENDA_DUE, place - 1] < due:
        lists[AGENDA_DUE, place] = lists[AGENDA_DUE, place - 1]
        lists[AGENDA, place] = lists[AGENDA, place - 1]
        place -= 1
    lists[AGENDA_DUE, place], lists[AGENDA, place] = due, r
    counters[IN_STEP] += 1


@compiled
def count_out(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, lists: Ints, counters: Ints, flow: Floats, groups: Ints, crossing: Ints, r: int
) -> None:
    """Take a sequence out of the sums."""
    known = known_tokens(table, r, table[r, BASE] + table[r, SEEN], flow[GROWTH])
    add_to_sums(table, counters, flow, groups, crossing, r, known, -1)
    counters[IN_STEP] -= 1
    place = counters[IN_STEP]
    while lists[AGENDA, place] != r:
        place -= 1
    for index in range(place, counters[IN_STEP]):
        lists[AGENDA_DUE, index] = lists[AGENDA_DUE, index + 1]
        lists[AGENDA, index] = lists[AGENDA, index + 1]


@compiled
def add_to_sums(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    counters: Ints,
    flow: Floats,
    groups: Ints,
    crossing: Ints,
    r: int,
    known: int,
    sign: int,
) -> int:
    """Add or take away a sequence of that length; return in how many steps its kind changes."""
    growth, window = flow[GROWTH], counters[WINDOW_TOKENS]
    lasts = 1 << 60
    tokens = table[r, PROMPTS] + growth * table[r, BASE]
    flow[KNOWN] += sign * tokens
    if known < window:
        flow[KNOWN_GROWING] += sign * tokens
        counters[GROWING] += sign
        lasts = max(int((window - known) / growth), 1)
    if counters[IS_UNIFORM] == 0:
        return lasts
    for group in range(groups.shape[0]):
        block, cap, reach = groups[group, 0], groups[group, 1], groups[group, 3]
        if reach > 0:
            cap = min(cap, reach) if cap > 0 else reach
        if block == 0 or known > cap > 0:
            continue
        crossing[group, (1 - table[r, PROMPTS] - table[r, BASE]) % block] += sign
        crossing[group, -1] += sign
        if cap > 0:
            lasts = min(lasts, cap + 1 - known)
    return lasts


@compiled
def join(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, lists: Ints, counters: Ints, flow: Floats, groups: Ints, crossing: Ints, r: int
) -> None:
    """Let a sequence come in step: its latest token is of the step that has just ended."""
    table[r, BASE] = table[r, GENERATED] - counters[BEAT]
    table[r, JOINED] = counters[BEAT]
    count_joiner(table, counters, flow, groups, r, 1)
    count_in(table, lists, counters, flow, groups, crossing, r)


@compiled
def count_joiner(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, counters: Ints, flow: Floats, groups: Ints, r: int, sign: int
) -> None:
    """Add or take away what one that comes in step needs beside what `new_blocks` counts for it.

    A prompt's last chunk may hold more than a decoding sequence: that is given back.
    """
    extra = extra_blocks(table, r, counters, flow, groups)
    counted = 0
    if counters[IS_UNIFORM] == 1:
        counted = blocks_at(table, r, counters[BEAT], counters, flow[GROWTH], groups)
        counted -= blocks_at(table, r, counters[BEAT] - 1, counters, flow[GROWTH], groups)
    counters[JOINERS_FREE] += sign * (counted - extra)
    counters[JOINERS_TAKE] += sign * (max(extra, 0) - counted)


@compiled
def part(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    flow: Floats,
    groups: Ints,
    crossing: Ints,
    r: int,
) -> None:
    """Write down what a sequence in step has done by now; from here on it is apart."""
    count_out(table, lists, counters, flow, groups, crossing, r)
    if counters[BEAT] == table[r, JOINED]:
        count_joiner(table, counters, flow, groups, r, -1)
    table[r, HELD] = own_blocks(table, r, counters, flow, groups)
    table[r, GENERATED] = table[r, BASE] + counters[BEAT]
    table[r, COMPUTED] = known_tokens(table, r, table[r, GENERATED], flow[GROWTH]) - 1
    table[r, DUE] = 0
    times[r, LATEST] = flow[NOW]


@compiled
def set_apart(table: Ints, lists: Ints, counters: Ints, r: int) -> None:
    """Put a request among those that are served one by one, in the order of admission."""
    place = counters[APART]
    while place > 0 and table[lists[ALONE, place - 1], ORDER] > table[r, ORDER]:
        lists[ALONE, place] = lists[ALONE, place - 1]
        place -= 1
    lists[ALONE, place] = r
    counters[APART] += 1
