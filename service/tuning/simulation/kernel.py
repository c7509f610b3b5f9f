"""The arithmetic that runs compiled: the price of a step, the scheduler's loop, its steady state.

All live in one module because the compiler's cache is keyed by file. Everything here is plain
arithmetic on arrays, so that it runs uncompiled as well (slower by a factor of about 40).
Importing this module loads the compiler: import it inside a function.

Prices: `price` is a flat array of seconds (see `PRICE_FIELDS`). A step of `decodes` sequences,
`prefill` prompt tokens, `rows` sampled sequences, and so on costs

    max4(attention read, attention token * T) + ... one pair per operator class
    + context * KV tokens read + pair * query-key pairs of the prompt chunks
    + link latency + link token * T + layer            (the GPU's part, at least `launch`)
    + step + row * rows                                 (the host's part)

A step that no captured graph covers takes at least the host's time to launch its kernels.
Here T = decodes * verify + prefill and max4(a, b) = (a^4 + b^4)^(1/4), a soft maximum: a matrix
product takes the longer of reading its weights and doing its arithmetic.
"""

import math

import numpy as np
from numpy.typing import NDArray

from service.tuning.latency.mean_field import (
    LOAD_BUDGET,
    LOAD_COMPUTED,
    LOAD_MOST,
    LOAD_OUTPUT,
    LOAD_PROMPT,
    LOAD_SPREAD,
    MAX_LOAD,
    POINT_DECODE_TIME,
    POINT_DECODES,
    POINT_MIXED,
    POINT_PLAIN,
    POINT_TAU,
    POINT_TTFT,
    ROUNDS,
)
from service.tuning.latency.price import (
    ACTIVATION,
    ATTENTION_READ,
    ATTENTION_TOKEN,
    CONTEXT,
    EXCHANGE_TOKEN,
    EXPERT_ACTIVATION,
    EXPERT_LAYER,
    EXPERT_RANKS,
    EXPERT_READ,
    EXPERT_TOKEN,
    GAP_BINS,
    GAP_HIGH_S,
    GAP_LOW_S,
    HEAD_READ,
    HEAD_ROW,
    LAUNCH,
    LAYER,
    LINK_LATENCY,
    LINK_TOKEN,
    LOG_MISS,
    MAX_CAPTURE,
    MLP_READ,
    MLP_TOKEN,
    NUM_BATCH,
    NUM_PRICES,
    PAIR,
    ROW,
    SCAN,
    STAGES,
    STATE,
    STEP,
    VERIFY,
    WINDOW,
    WINDOW_CONTEXT,
    WINDOW_PAIR,
)
from service.tuning.simulation.compiled import compiled, inlined

TIE_S = 1e-9
"""Instants this close count as the same, so that rounding decides nothing."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def soft_max(one: float, other: float) -> float:
    """Return (a^4 + b^4)^(1/4)."""
    high = max(one, other)
    if high <= 0.0:
        return 0.0
    ratio = (min(one, other) / high) ** 2
    return high * math.sqrt(math.sqrt(1.0 + ratio * ratio))


@compiled
def padded_tokens(tokens: float, max_capture: float) -> float:
    """Return the batch that a captured graph runs: 1, 2, 4, then steps of 8, of 16 from 256 on."""
    if tokens > max_capture or tokens <= 1.0:
        return tokens
    if tokens <= 4.0:  # noqa: PLR2004 - the grid of the docstring
        return 2.0 if tokens <= 2.0 else 4.0  # noqa: PLR2004
    step = 8.0 if tokens <= 256.0 else 16.0  # noqa: PLR2004
    return min(math.ceil(tokens / step) * step, max_capture)


@compiled
def launched_share(tokens: float, prefill: float, max_capture: float) -> float:
    """Return the share of a step's kernels that the host launches one by one.

    None in a decode step that a captured graph covers, a fifth (attention) where the graph is in
    pieces, all beyond the largest capture.
    """
    if tokens > max_capture:
        return 1.0
    return 0.2 if prefill > 0.0 else 0.0


@compiled
def step_seconds(price: Floats, batch: Floats) -> float:
    """Return the time of one step with this batch (`BATCH_FIELDS`), seconds.

    A pipeline of s stages runs s such steps in turn, each with its share of the batch.
    """
    stages = price[STAGES]
    decodes, prefill = batch[0] / stages, batch[1] / stages
    rows, context, window_context = batch[2] / stages, batch[3] / stages, batch[4] / stages
    pairs, window_pairs = batch[5] / stages, batch[6] / stages
    tokens = decodes * price[VERIFY] + prefill
    matrix_tokens = padded_tokens(tokens, price[MAX_CAPTURE]) if prefill == 0.0 else tokens
    expert_tokens = tokens * price[EXPERT_RANKS]
    touched = 1.0 - math.exp(price[LOG_MISS] * expert_tokens)
    device = (
        soft_max(price[ATTENTION_READ], price[ATTENTION_TOKEN] * matrix_tokens)
        + soft_max(price[MLP_READ], price[MLP_TOKEN] * matrix_tokens)
        + soft_max(price[EXPERT_READ] * touched, price[EXPERT_TOKEN] * expert_tokens)
        + soft_max(price[HEAD_READ], price[HEAD_ROW] * rows)
        + price[CONTEXT] * context
        + price[WINDOW_CONTEXT] * window_context
        + price[STATE] * decodes
        + price[PAIR] * pairs
        + price[WINDOW_PAIR] * window_pairs
        + (price[ACTIVATION] + price[LINK_TOKEN]) * tokens
        + price[SCAN] * prefill
        + (price[EXCHANGE_TOKEN] + price[EXPERT_ACTIVATION]) * expert_tokens
        + price[LINK_LATENCY]
        + price[LAYER]
        + price[EXPERT_LAYER]
    )
    launches = price[LAUNCH] * launched_share(tokens, prefill, price[MAX_CAPTURE])
    total: float = stages * (soft_max(device, launches) + price[STEP] + price[ROW] * rows)
    return total


@compiled
def step_shares(price: Floats, batch: Floats, shares: Floats) -> float:
    """Return the time of one step, and fill `shares` with each component's part of it, seconds.

    The parts are price times the derivative with respect to it, and add up to the time.
    """
    stages = price[STAGES]
    decodes, prefill = batch[0] / stages, batch[1] / stages
    tokens = decodes * price[VERIFY] + prefill
    matrix_tokens = padded_tokens(tokens, price[MAX_CAPTURE]) if prefill == 0.0 else tokens
    expert_tokens = tokens * price[EXPERT_RANKS]
    touched = 1.0 - math.exp(price[LOG_MISS] * expert_tokens)
    rows = batch[2] / stages
    usage = np.zeros(NUM_PRICES)
    usage[ATTENTION_READ], usage[ATTENTION_TOKEN] = 1.0, matrix_tokens
    usage[MLP_READ], usage[MLP_TOKEN] = 1.0, matrix_tokens
    usage[EXPERT_READ], usage[EXPERT_TOKEN] = touched, expert_tokens
    usage[HEAD_READ], usage[HEAD_ROW] = 1.0, rows
    usage[CONTEXT], usage[WINDOW_CONTEXT] = batch[3] / stages, batch[4] / stages
    usage[STATE] = decodes
    usage[PAIR], usage[WINDOW_PAIR] = batch[5] / stages, batch[6] / stages
    usage[ACTIVATION], usage[LINK_TOKEN], usage[SCAN] = tokens, tokens, prefill
    usage[EXCHANGE_TOKEN], usage[EXPERT_ACTIVATION] = expert_tokens, expert_tokens
    usage[LINK_LATENCY] = usage[LAYER] = usage[EXPERT_LAYER] = usage[STEP] = 1.0
    usage[ROW] = rows
    usage[LAUNCH] = launched_share(tokens, prefill, price[MAX_CAPTURE])
    total = 0.0
    for index in range(NUM_PRICES):
        shares[index] = stages * price[index] * usage[index]
    for index in range(0, 8, 2):
        one, other = shares[index], shares[index + 1]
        both = soft_max(one, other)
        if both > 0.0:
            shares[index] = one * (one / both) ** 3
            shares[index + 1] = other * (other / both) ** 3
    device = 0.0
    for index in range(NUM_PRICES):
        if index not in (STEP, ROW, LAUNCH):
            device += shares[index]
    both = soft_max(device, shares[LAUNCH])
    scale = (device / both) ** 3 if both > 0.0 else 0.0
    for index in range(NUM_PRICES):
        if index not in (STEP, ROW, LAUNCH):
            shares[index] *= scale
    if both > 0.0:
        shares[LAUNCH] *= (shares[LAUNCH] / both) ** 3
    for index in range(NUM_PRICES):
        total += shares[index]
    return total


@inlined
def sequence_blocks(groups: Ints, tokens: int, given: int) -> int:
    """Return the block ids that a sequence of `tokens` holds, the last `given` of them this step.

    Rows of `groups` are (tokens per block, most tokens held or 0 for no limit, extra blocks,
    tokens attended or 0 for all); a row without block size is a constant per sequence. Blocks
    that no later token attends are free again before the step.
    """
    blocks = 0
    for index in range(groups.shape[0]):
        block, cap, reach = groups[index, 0], groups[index, 1], groups[index, 3]
        held = min(tokens, cap) if cap > 0 else tokens
        if reach > 0:
            held = min(held, reach - 1 + given)
        blocks += groups[index, 2]
        if block > 0:
            blocks += (held + block - 1) // block
    return blocks


@compiled
def covered_tokens(groups: Ints, tokens: int) -> int:
    """Return how many tokens the blocks of a sequence of `tokens` hold."""
    covered = 1 << 60
    for index in range(groups.shape[0]):
        block, reach = groups[index, 0], groups[index, 3]
        if block > 0 and (reach == 0 or tokens < reach):
            covered = min(covered, (tokens + block - 1) // block * block)
    return covered


@compiled
def most_new_blocks(groups: Ints, tokens: int) -> int:
    """Return the most blocks that a sequence can need for so many more tokens."""
    blocks = 0
    for index in range(groups.shape[0]):
        if groups[index, 0] > 0:
            blocks += tokens // groups[index, 0] + 1
    return blocks


@compiled
def shared_blocks(groups: Ints, tokens: int) -> int:
    """Return the block ids of a prefix that all sequences share (groups that keep every token)."""
    blocks = 0
    for index in range(groups.shape[0]):
        if groups[index, 0] > 0 and groups[index, 1] == 0:
            blocks += tokens // groups[index, 0]
    return blocks


@compiled
def window_pairs(start: int, count: int, window: int) -> float:
    """Return the query-key pairs of `count` prompt tokens after `start`, each seeing a window."""
    before = max(min(count, window - start), 0)
    return before * start + before * (before + 1) / 2 + (count - before) * float(window)


@compiled
def gap_bin(seconds: float) -> int:
    """Return the histogram bin of a gap between two tokens."""
    if seconds <= GAP_LOW_S:
        return 0
    position = math.log(seconds / GAP_LOW_S) / math.log(GAP_HIGH_S / GAP_LOW_S) * GAP_BINS
    return min(int(position), GAP_BINS - 1)


(
    PROMPTS,
    OUTPUTS,
    COMPUTED,
    GENERATED,
    HELD,
    COMMON,
    GIVEN,
    LOST_BLOCKS,
    LOST_TOKENS,
    LOST_AT,
    COVERED,
    EVENT_REACHED,
    EVENT_FIRST,
    EVENT_END,
    PREEMPTIONS,
) = range(15)
"""Columns of the table of requests: prompt tokens and sampling steps; tokens computed and steps
done; blocks of its own and shared ones; tokens of this step; blocks and tokens that a preemption
took and how many blocks had been handed out by then; tokens that its blocks hold; events of its
way; preemptions."""
NUM_COLUMNS = 15
SENT, REACHED, SCHEDULED, FIRST, END, LATEST = range(6)
"""Columns of the times: of the way of a request, and of its latest token."""
NUM_TIMES = 6
IN_ORDER, SENT_BACK = 0, 1
"""Rows of the lists: running requests in order of admission; preempted ones, the next on top."""

(
    BUDGET,
    MAX_RUNNING,
    BLOCKS,
    CLIENTS,
    WHOLE_GATE,
    WATERMARK,
    SHARED,
    CHUNKED,
    LONGEST_CHUNK,
    KEEPS_BLOCKS,
    HIT_TOKENS,
) = range(11)
"""Places in the array of limits."""
(
    RUNNING,
    STACKED,
    HEAD,
    ARRIVED,
    ISSUED,
    FREE,
    HANDED_OUT,
    PREFIX_BLOCKS,
    PREFIX_READY,
    LEFT,
    PREEMPTED,
    ADMITTED,
    IDLE,
    REMAINING,
    GROWING,
    DECODING,
) = range(16)
"""Places in the array of counters: running, sent back, first waiting, reached and sent requests;
free blocks and all ever handed out; blocks of the shared prefix and whether it is computed; token
budget left, whether this step preempted, admitted, found the engine idle; steps until an answer
ends or a window fills, sequences whose window still grows, decoding sequences."""
NUM_COUNTERS = 16
LOST = -2
"""Returned by a run that cannot keep its limits any more."""
NOW, TAKEN_IN = 0, 1
"""Places in the array of clocks: the engine's, and when the front end is free again."""


@inlined
def known_tokens(table: Ints, r: int, growth: float) -> int:
    """Return the tokens of the prompt and of the answer so far."""
    known: int = table[r, PROMPTS] + int(growth * table[r, GENERATED])
    return known


@inlined
def is_decoding(table: Ints, r: int, known: int) -> bool:
    """Return whether the next step of a request only adds to its answer."""
    decodes: bool = table[r, GENERATED] > 0 and known - table[r, COMPUTED] <= 1
    return decodes


@compiled
def send(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, times: Floats, r: int, at: float, front: Floats, clocks: Floats
) -> None:
    """Send a request: the front end takes requests in one after the other."""
    prompt = table[r, PROMPTS]
    ready = max(clocks[TAKEN_IN], at + front[0] + front[1] * prompt)
    clocks[TAKEN_IN] = ready + front[2] + front[3] * prompt
    times[r, SENT] = at
    times[r, REACHED] = clocks[TAKEN_IN]


@compiled
def preempt_last(table: Ints, lists: Ints, counters: Ints) -> None:
    """Send the request that was admitted last back to the front of the queue."""
    counters[RUNNING] -= 1
    victim = lists[IN_ORDER, counters[RUNNING]]
    counters[FREE] += table[victim, HELD]
    table[victim, LOST_BLOCKS] = table[victim, HELD]
    table[victim, LOST_TOKENS] = table[victim, COMPUTED]
    table[victim, LOST_AT] = counters[HANDED_OUT]
    table[victim, HELD] = table[victim, COMMON] = table[victim, COVERED] = 0
    table[victim, COMPUTED] = table[victim, GIVEN] = 0
    table[victim, PREEMPTIONS] += 1
    lists[SENT_BACK, counters[STACKED]] = victim
    counters[STACKED] += 1
    counters[PREEMPTED] = 1


@inlined
def take_blocks(table: Ints, r: int, extra: int, counters: Ints) -> None:
    """Hand blocks to a request, or take back those that it attends no longer."""
    counters[FREE] -= extra
    counters[HANDED_OUT] += max(extra, 0)
    table[r, HELD] += extra


@compiled
def serve_running(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, lists: Ints, counters: Ints, limits: Ints, groups: Ints, verify: int, growth: float
) -> None:
    """Give the running requests their tokens, in the order of admission."""
    counters[PREEMPTED], counters[ADMITTED] = 0, 0
    left, longest = limits[BUDGET], limits[LONGEST_CHUNK]
    index = 0
    while index < counters[RUNNING]:
        r = lists[IN_ORDER, index]
        known = known_tokens(table, r, growth)
        count = verify
        if not is_decoding(table, r, known):
            count = known - table[r, COMPUTED]
            if longest > 0:
                count = min(count, longest)
        count = min(count, left)
        table[r, GIVEN] = 0
        index += 1
        if count <= 0:
            continue
        target = table[r, COMPUTED] + count
        if target > table[r, COVERED]:
            extra = sequence_blocks(groups, target, count) - table[r, COMMON] - table[r, HELD]
            while extra > counters[FREE] and counters[RUNNING] >= index:
                preempt_last(table, lists, counters)
            if counters[RUNNING] < index:
                break
            take_blocks(table, r, extra, counters)
            table[r, COVERED] = covered_tokens(groups, target) if count <= verify else target
        left -= count
        table[r, GIVEN] = count
    counters[LEFT] = left


@compiled
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


@compiled
def cached_tokens(table: Ints, r: int, known: int, counters: Ints, limits: Ints) -> int:
    """Return the tokens of a waiting request that the cache holds.

    The shared prefix, or what a preempted request left behind: its blocks survive until the free
    list has been handed out again.
    """
    hit = min(limits[SHARED], known - 1) if counters[PREFIX_READY] == 1 else 0
    lost = table[r, LOST_BLOCKS]
    left = lost - (counters[HANDED_OUT] - table[r, LOST_AT])
    if limits[KEEPS_BLOCKS] == 1 and lost > 0 and left > 0:
        block = limits[HIT_TOKENS]
        found = table[r, LOST_TOKENS] * left // lost // block * block
        hit = max(hit, min(found, (known - 1) // block * block))
    return hit


@compiled
def admit_waiting(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    limits: Ints,
    groups: Ints,
    growth: float,
    now: float,
    totals: Floats,
) -> None:
    """Admit waiting requests in order while budget, sequence limit and blocks allow."""
    counters[IDLE] = 1 if counters[RUNNING] == 0 else 0
    while counters[LEFT] > 0 and counters[RUNNING] < limits[MAX_RUNNING]:
        r = next_waiting(lists, times, counters, now)
        if r < 0:
            break
        known = known_tokens(table, r, growth)
        hit = cached_tokens(table, r, known, counters, limits)
        own = 0
        if counters[PREFIX_READY] == 1 and hit >= limits[SHARED]:
            own = counters[PREFIX_BLOCKS]
        count = known - hit
        if limits[LONGEST_CHUNK] > 0:
            count = min(count, limits[LONGEST_CHUNK])
        if limits[CHUNKED] == 1:
            count = min(count, counters[LEFT])
        elif count > counters[LEFT] and counters[RUNNING] > 0:
            break
        needed = known if limits[WHOLE_GATE] == 1 else hit + count
        kept = limits[WATERMARK] if counters[RUNNING] > 0 else 0
        given = needed if limits[WHOLE_GATE] == 1 else count
        if sequence_blocks(groups, needed, given) - own + kept > counters[FREE]:
            break
        table[r, HELD] = 0
        table[r, COMMON] = own
        take_blocks(table, r, sequence_blocks(groups, hit + count, count) - own, counters)
        totals[8] += max(table[r, LOST_TOKENS] - hit, 0)
        table[r, LOST_BLOCKS] = table[r, LOST_TOKENS] = 0
        table[r, COMPUTED] = hit
        table[r, GIVEN] = count
        if counters[STACKED] > 0:
            counters[STACKED] -= 1
        else:
            counters[HEAD] += 1
            times[r, SCHEDULED] = now
        lists[IN_ORDER, counters[RUNNING]] = r
        counters[RUNNING] += 1
        counters[LEFT] -= count
        counters[ADMITTED] = 1


@compiled
def measure_batch(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, lists: Ints, counters: Ints, batch: Floats, window: int, growth: float
) -> None:
    """Fill in the batch of this step, and until when the same requests go on alike."""
    decoding = growing = rows = prefill = 0
    remaining = 1 << 60
    context = window_context = pairs = wpairs = 0.0
    for index in range(counters[RUNNING]):
        r = lists[IN_ORDER, index]
        count = table[r, GIVEN]
        if count == 0:
            continue
        known = known_tokens(table, r, growth)
        if is_decoding(table, r, known):
            decoding += 1
            rows += 1
            context += known
            window_context += min(known, window)
            left = table[r, OUTPUTS] - table[r, GENERATED]
            if known < window:
                growing += 1
                left = min(left, max(int((window - known) / growth), 1))
            remaining = min(remaining, left)
        else:
            start = table[r, COMPUTED]
            prefill += count
            pairs += float(count) * start + count * (count + 1.0) / 2
            wpairs += window_pairs(start, count, window)
            if start + count >= known:
                rows += 1
    batch[0], batch[1], batch[2], batch[3] = decoding, prefill, rows, context
    batch[4], batch[5], batch[6] = window_context, pairs, wpairs
    counters[REMAINING], counters[GROWING], counters[DECODING] = remaining, growing, decoding


@compiled
def affordable_steps(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, lists: Ints, counters: Ints, groups: Ints, verify: int, growth: float
) -> int:
    """Return how many steps all running sequences can take before blocks run out.

    At most until one of them ends; the blocks of the next step are held already.
    """
    low, high = 1, max(int(counters[REMAINING]), 1)
    if counters[RUNNING] * most_new_blocks(groups, int(growth * (high - 1))) <= counters[FREE]:
        return high
    middle = high
    while low < high:
        need = 0
        for index in range(counters[RUNNING]):
            r = lists[IN_ORDER, index]
            tokens = table[r, COMPUTED] + int(growth * (middle - 1)) + verify
            blocks = sequence_blocks(groups, tokens, verify) - table[r, COMMON]
            need += max(blocks - table[r, HELD], 0)
        if need <= counters[FREE]:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


@compiled
def equal_steps(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    limits: Ints,
    groups: Ints,
    verify: int,
    growth: float,
    now: float,
) -> int:
    """Return how many steps like this one follow: nobody comes, ends, or runs out of blocks."""
    is_plain = counters[DECODING] == counters[RUNNING] and counters[PREEMPTED] == 0
    latest = counters[ARRIVED] - 1
    is_fresh = (
        counters[HEAD] <= latest and counters[IDLE] == 0 and times[latest, REACHED] >= now - TIE_S
    )
    # a preempted request that finds fewer of its blocks needs fewer for its first chunk
    may_shrink = limits[WHOLE_GATE] == 0 and counters[STACKED] > 0 and limits[KEEPS_BLOCKS] == 1
    if not is_plain or counters[ADMITTED] == 1 or is_fresh or may_shrink:
        return 1
    return affordable_steps(table, lists, counters, groups, verify, growth)


@compiled
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


@compiled
def count_gaps(gap: float, number: float, gaps: Floats, totals: Floats) -> None:
    """Count so many gaps of this length between tokens."""
    if number > 0.0:
        gaps[gap_bin(gap)] += number
        totals[5] += gap * number
        totals[6] += number


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
def count_late(seconds: float, metric: int, late: Floats) -> None:
    """Count a request whose latency is above what `late` allows for the metric."""
    if seconds > late[metric, 0]:
        late[metric, 1] -= 1.0


@compiled
def leave(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, times: Floats, counters: Ints, r: int, end: float, event: int, late: Floats
) -> None:
    """Let a request go whose answer is complete."""
    times[r, END] = end
    count_late((end - times[r, FIRST]) / max(table[r, OUTPUTS] - 1, 1), 1, late)
    count_late(end - times[r, SENT], 2, late)
    table[r, EVENT_END] = event
    counters[FREE] += table[r, HELD]
    table[r, HELD] = table[r, COMMON] = 0


@compiled
def advance(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    lists: Ints,
    times: Floats,
    counters: Ints,
    limits: Ints,
    groups: Ints,
    booked: tuple[int, float, int],
    step: Floats,
    gaps: Floats,
    totals: Floats,
    late: Floats,
) -> int:
    """Book the outcome of the steps for every running request; return how many ended.

    `booked` is the tokens checked and the tokens gained per step, and the event.
    `step` holds the start, the time of the first step, the time of all, and their number.
    """
    verify, growth, event = booked
    start, first_s, duration, steps = step[0], step[1], step[2], int(step[3])
    end = start + duration
    number, kept, plain, later = counters[RUNNING], 0, 0, 0
    for index in range(number):
        r = lists[IN_ORDER, index]
        lists[IN_ORDER, kept] = r
        kept += 1
        if table[r, GIVEN] == 0:
            continue
        known = known_tokens(table, r, growth)
        if not is_decoding(table, r, known):
            table[r, COMPUTED] += table[r, GIVEN]
            if table[r, COMPUTED] < known:
                continue
        if table[r, GENERATED] == 0:
            times[r, FIRST] = end
            count_late(end - times[r, SENT], 0, late)
            table[r, EVENT_FIRST] = event
            share_prefix(table, r, counters, limits, groups)
        elif times[r, LATEST] == start:
            plain += 1
            later += steps - 1
        else:
            count_gaps(start + first_s - times[r, LATEST], 1.0, gaps, totals)
            later += steps - 1
        times[r, LATEST] = end
        table[r, GENERATED] += steps
        table[r, COMPUTED] = known_tokens(table, r, growth) - 1
        target = table[r, COMPUTED] + verify - 1
        if steps > 1 and target > table[r, COVERED]:
            blocks = sequence_blocks(groups, target, verify)
            take_blocks(table, r, blocks - table[r, COMMON] - table[r, HELD], counters)
            table[r, COVERED] = covered_tokens(groups, target)
        if table[r, GENERATED] >= table[r, OUTPUTS]:
            leave(table, times, counters, r, end, event, late)
            kept -= 1
    counters[RUNNING] = kept
    count_gaps(first_s, float(plain), gaps, totals)
    count_gaps((duration - first_s) / max(steps - 1, 1), float(later), gaps, totals)
    ended: int = number - kept
    return ended


@compiled
def receive(table: Ints, times: Floats, counters: Ints, clocks: Floats, event: int) -> None:
    """Let in what has reached the engine by now."""
    while (
        counters[ARRIVED] < counters[ISSUED]
        and times[counters[ARRIVED], REACHED] <= clocks[NOW] + TIE_S
    ):
        table[counters[ARRIVED], EVENT_REACHED] = max(event - 1, 0)
        counters[ARRIVED] += 1


@compiled
def replace_ended(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints, times: Floats, counters: Ints, front: Floats, clocks: Floats, ended: int
) -> None:
    """Send a new request for each that ended, while there are any left (none in open loops)."""
    for _ in range(min(ended, table.shape[0] - counters[ISSUED])):
        send(table, times, counters[ISSUED], clocks[NOW], front, clocks)
        counters[ISSUED] += 1


@compiled
def is_empty(counters: Ints) -> bool:
    """Return whether the engine has nothing to do until the next request reaches it."""
    requests: int = counters[RUNNING] + counters[STACKED] + counters[ARRIVED] - counters[HEAD]
    return requests == 0


@compiled
def write_event(  # noqa: PLR0917 - compiled code takes no keywords
    record: Floats, event: int, steps: int, start: float, end: float, batch: Floats
) -> bool:
    """Record an event; return whether there was room for it."""
    if record.shape[0] == 0:
        return True
    if event >= record.shape[0]:
        return False
    record[event, 0] = steps
    record[event, 1] = start
    record[event, 2] = end
    record[event, 3:] = batch
    return True


@compiled
def add_integrals(counters: Ints, limits: Ints, step: Floats, totals: Floats) -> None:
    """Add what runs, waits and is used during these steps to the totals."""
    used = limits[BLOCKS] - counters[FREE]
    waiting = counters[ARRIVED] - counters[HEAD] + counters[STACKED]
    totals[1] += step[2] * counters[RUNNING]
    totals[2] += step[2] * waiting
    totals[3] += step[2] * used
    totals[4] = max(totals[4], float(used))
    totals[7] += step[3]


@compiled
def time_steps(  # noqa: PLR0917 - compiled code takes no keywords
    price: Floats,
    batch: Floats,
    steps: int,
    counters: Ints,
    growth: float,
    until: float,
    step: Floats,
) -> None:
    """Fill in the time of the first step and of all, and how many fit until a request comes.

    Between two events every step is longer than the last by the same time. The batch becomes the
    mean over the steps.
    """
    first_s = step_seconds(price, batch)
    slope = 0.0
    context, window_context = batch[3], batch[4]
    longer, wider = growth * counters[DECODING], growth * counters[GROWING]
    if steps > 1:
        batch[3], batch[4] = context + longer, window_context + wider
        slope = step_seconds(price, batch) - first_s
        steps = steps_until(until, first_s, slope, steps)
    step[1], step[3] = first_s, steps
    step[2] = steps * first_s + slope * steps * (steps - 1) / 2
    batch[3] = context + longer * (steps - 1) / 2
    batch[4] = window_context + wider * (steps - 1) / 2


@compiled
def next_arrival_s(times: Floats, counters: Ints, now: float) -> float:
    """Return the seconds until the next request reaches the engine."""
    is_alone = counters[ARRIVED] == counters[ISSUED]
    seconds: float = np.inf if is_alone else times[counters[ARRIVED], REACHED] - now - TIE_S
    return seconds


@compiled
def send_first(  # noqa: PLR0917 - compiled code takes no keywords
    table: Ints,
    times: Floats,
    counters: Ints,
    limits: Ints,
    arrivals: Floats,
    front: Floats,
    clocks: Floats,
) -> None:
    """Send the requests that wait for no answer: one per client, or all at their time."""
    number, clients = table.shape[0], limits[CLIENTS]
    counters[FREE] = limits[BLOCKS]
    counters[ISSUED] = min(clients, number) if clients > 0 else number
    for r in range(counters[ISSUED]):
        send(table, times, r, 0.0 if clients > 0 else arrivals[r], front, clocks)


@compiled
def simulate(  # noqa: PLR0917 - compiled code takes no keywords
    price: Floats,
    limits: Ints,
    groups: Ints,
    table: Ints,
    lists: Ints,
    times: Floats,
    arrivals: Floats,
    front: Floats,
    growth: float,
    gaps: Floats,
    totals: Floats,
    record: Floats,
    late: Floats,
) -> int:
    """Run the requests through vLLM's scheduler; return the number of events, -1 if stuck.

    See `run.py` for what the arrays mean; `LOST` when more are late than `late` allows.
    """
    window, verify = int(price[WINDOW]), int(price[VERIFY])
    number = table.shape[0]
    counters, clocks = np.zeros(NUM_COUNTERS, np.int64), np.zeros(2)
    batch, step = np.zeros(NUM_BATCH), np.zeros(4)
    send_first(table, times, counters, limits, arrivals, front, clocks)
    finished = event = 0
    while finished < number:
        receive(table, times, counters, clocks, event)
        now = clocks[NOW]
        if is_empty(counters):
            clocks[NOW] = max(now, times[counters[ARRIVED], REACHED])
            if not write_event(record, event, 0, now, clocks[NOW], 0.0 * batch):
                return -1
            event += 1
            continue
        serve_running(table, lists, counters, limits, groups, verify, growth)
        if counters[PREEMPTED] == 0:
            admit_waiting(table, lists, times, counters, limits, groups, growth, now, totals)
        measure_batch(table, lists, counters, batch, window, growth)
        if batch[0] + batch[1] == 0.0:
            if counters[PREEMPTED] == 1:
                continue
            return -1
        steps = equal_steps(table, lists, times, counters, limits, groups, verify, growth, now)
        step[0] = now
        until = next_arrival_s(times, counters, now)
        time_steps(price, batch, steps, counters, growth, until, step)
        clocks[NOW] = now + step[2]
        if not write_event(record, event, int(step[3]), now, clocks[NOW], batch):
            return -1
        add_integrals(counters, limits, step, totals)
        booked = (verify, growth, event)
        ended = advance(
            table, lists, times, counters, limits, groups, booked, step, gaps, totals, late
        )
        if late[:, 1].min() < 0.0:
            return LOST
        finished += ended
        event += 1
        replace_ended(table, times, counters, front, clocks, ended)
    totals[0] = clocks[NOW]
    return event


@compiled
def mean_step(  # noqa: PLR0917 - compiled code takes no keywords
    price: Floats, batch: Floats, load: Floats, decodes: float, prefill: float, prompts: float
) -> float:
    """Return the time of a step of decoding sequences and `prefill` tokens of `prompts`.

    `batch` is scratch; `load` is laid out as `LOAD_FIELDS`.
    """
    prompt = load[LOAD_PROMPT]
    length = prompt + load[LOAD_OUTPUT] / 2
    chunk = prefill / prompts if prompts > 0 else 0.0
    window: float = price[WINDOW]
    batch[0], batch[1], batch[2] = decodes, prefill, decodes + prompts
    batch[3], batch[4] = decodes * length, decodes * min(length, window)
    batch[5] = prefill * max(prompt, chunk) / 2
    batch[6] = prefill * min(prompt / 2, window)
    seconds: float = step_seconds(price, batch)
    return seconds


@compiled
def evaluate(price: Floats, batch: Floats, load: Floats, decodes: float, point: Floats) -> None:
    """Fill `point` (`POINT_FIELDS`) with the step times when that many sequences decode."""
    prompt, output = load[LOAD_COMPUTED], load[LOAD_OUTPUT]
    budget, most = load[LOAD_BUDGET], load[LOAD_MOST]
    has_spread = load[LOAD_SPREAD] > 0
    gaps = max(output - 1, 1e-9)
    cohort = 1.0 if has_spread else min(max(float(math.floor(budget / prompt)), 1.0), most)
    room = max(budget - decodes * price[VERIFY], 0.05 * budget)
    finishing = decodes / gaps
    load_tokens = finishing * prompt
    rho = min(load_tokens / room, MAX_LOAD)
    chunks = max(1.0, float(math.ceil(prompt / room)))
    share = 1 - math.exp(-finishing * chunks)
    if not has_spread:
        share = min(1.0, finishing * chunks / cohort)
    share = min(max(share, load_tokens / room), 1.0)
    tokens = min(load_tokens / max(share, 1e-12), room)
    prompts = max(tokens / prompt, 1 / chunks)
    tokens = max(tokens, min(prompt / chunks, room))
    plain = mean_step(price, batch, load, decodes, 0.0, 0.0)
    mixed = mean_step(price, batch, load, decodes, tokens, prompts)
    tau = (1 - share) * plain + share * mixed
    queue = rho * chunks / (2 * (1 - rho)) if has_spread else 0.0
    wait = tau if has_spread else plain
    point[POINT_DECODES], point[POINT_TAU] = decodes, tau
    point[POINT_PLAIN], point[POINT_MIXED] = plain, mixed
    point[POINT_TTFT] = (wait if decodes > 1 else 0.0) + (
        chunks + min(queue, most * chunks)
    ) * mixed
    point[POINT_DECODE_TIME] = (output - 1) * tau


@compiled
def settle_closed(price: Floats, batch: Floats, load: Floats, point: Floats) -> float:
    """Fill `point` with the fixed point of a closed loop; return the decodes that saturate it."""
    most = load[LOAD_MOST]
    saturation: float = load[LOAD_BUDGET] / (
        price[VERIFY] + load[LOAD_COMPUTED] / max(load[LOAD_OUTPUT] - 1, 1e-9)
    )
    evaluate(price, batch, load, 0.9 * most, point)
    for _ in range(ROUNDS):
        total = point[POINT_DECODE_TIME] + point[POINT_TTFT]
        busy = most * point[POINT_DECODE_TIME] / total if total > 0 else 0.0
        decodes = (point[POINT_DECODES] + max(min(busy, saturation), 1e-3)) / 2
        evaluate(price, batch, load, decodes, point)
    return saturation


@compiled
def settle_open(price: Floats, batch: Floats, load: Floats, rate: float, point: Floats) -> None:
    """Fill `point` with the fixed point of an open loop that is served at its rate."""
    most = load[LOAD_MOST]
    decodes = 0.0
    evaluate(price, batch, load, 1.0, point)
    for _ in range(2 * ROUNDS):
        decodes = (decodes + min(rate * point[POINT_DECODE_TIME], most)) / 2
        evaluate(price, batch, load, max(decodes, 1e-3), point)
