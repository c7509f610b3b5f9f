"""The arithmetic that runs compiled: the price of one step, and the scheduler's loop.

Both live in one module because the compiler's cache is keyed by file. Everything here is plain
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
from service.tuning.simulation.compiled import compiled

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


@compiled
def sequence_blocks(groups: Ints, tokens: int) -> int:
    """Return the block ids that a sequence of `tokens` holds.

    Rows of `groups` are (tokens per block, most tokens held or 0 for no limit, extra blocks);
    a row without block size is a constant per sequence.
    """
    blocks = 0
    for index in range(groups.shape[0]):
        block, cap = groups[index, 0], groups[index, 1]
        held = min(tokens, cap) if cap > 0 else tokens
        blocks += groups[index, 2]
        if block > 0:
            blocks += (held + block - 1) // block
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


@compiled
def affordable_steps(  # noqa: PLR0917 - compiled code takes no keywords
    groups: Ints,
    running: Ints,
    computed: Ints,
    held: Ints,
    common: Ints,
    bounds: Ints,
    growth: float,
) -> int:
    """Return how many steps, up to a limit, all running sequences can take before blocks run out.

    `bounds` is (running sequences, free blocks, tokens verified per step, limit); the blocks of
    the next step are held already, so the answer is at least one.
    """
    number, free, verify, limit = bounds[0], bounds[1], bounds[2], bounds[3]
    low, high, middle = 1, limit, limit
    while low < high:
        need = 0
        for index in range(number):
            r = running[index]
            tokens = computed[r] + int(growth * (middle - 1)) + verify
            need += max(sequence_blocks(groups, tokens) - common[r] - held[r], 0)
        if need <= free:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


@compiled
def simulate(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one loop, compiled as a whole
    price: Floats,
    limits: Ints,
    groups: Ints,
    prompts: Ints,
    outputs: Ints,
    arrivals: Floats,
    front: Floats,
    growth: float,
    times: Floats,
    marks: Ints,
    gaps: Floats,
    totals: Floats,
    record: Floats,
) -> int:
    """Run the requests through vLLM's scheduler; return the number of recorded events, -1 if stuck.

    Args:
        price: Prices of a step.
        limits: Token budget, max_num_seqs, blocks, concurrency of a closed loop (0: arrivals are
            given), whether a prompt must fit as a whole, blocks kept free at admission, tokens of
            the shared prefix, whether prompts may be chunked, longest chunk (0: any), whether
            freed blocks can be found again (prefix caching), tokens of a block.
        groups: KV groups, see `sequence_blocks`.
        prompts: Prompt tokens of each request.
        outputs: Sampling steps of each request.
        arrivals: Arrival times in order (ignored in a closed loop).
        front: What the front end does to a request before the engine has it: latency, latency per
            prompt token, and the same pair for the time it takes one after the other; seconds.
        growth: Tokens that a sequence grows by per sampling step (above one with speculation).
        times: Out, one row per request: sent, reached the engine, scheduled, first token, end;
            seconds.
        marks: Out, one row per request: event under way when it reached the engine, event of
            the first token, of the end, preemptions.
        gaps: Out, histogram of the gaps between tokens.
        totals: Out: end of the last request, integrals over time of running, waiting and blocks
            used, peak of blocks used, sum of gaps, number of gaps, steps, recomputed tokens.
        record: Out, one row per event: steps, start and end, then `BATCH_FIELDS` (means over the
            steps); an event of no steps is idle time. An empty array records nothing.
    """
    budget_limit, max_running, num_blocks, concurrency = limits[0], limits[1], limits[2], limits[3]
    whole_gate, watermark, shared, chunked = limits[4], limits[5], limits[6], limits[7]
    longest_chunk, keeps_blocks, block = limits[8], limits[9], limits[10]
    window = int(price[WINDOW])
    verify = int(price[VERIFY])
    number = prompts.shape[0]
    computed = np.zeros(number, np.int64)
    generated = np.zeros(number, np.int64)
    held = np.zeros(number, np.int64)
    given = np.zeros(number, np.int64)
    last = np.zeros(number, np.float64)
    running = np.zeros(number, np.int64)
    stack = np.zeros(number, np.int64)
    common = np.zeros(number, np.int64)
    lost_blocks = np.zeros(number, np.int64)
    lost_tokens = np.zeros(number, np.int64)
    lost_at = np.zeros(number, np.int64)
    handed_out = 0
    batch = np.zeros(NUM_BATCH)
    bounds = np.zeros(4, np.int64)
    num_running = num_stack = head = arrived = finished = event = 0
    free = num_blocks
    prefix_blocks = 0
    prefix_ready = False
    now = 0.0
    taken_in = 0.0
    issued = min(concurrency, number) if concurrency > 0 else number
    for r in range(issued):
        times[r, 0] = 0.0 if concurrency > 0 else arrivals[r]
        ready = max(taken_in, times[r, 0] + front[0] + front[1] * prompts[r])
        taken_in = ready + front[2] + front[3] * prompts[r]
        times[r, 1] = taken_in
    while finished < number:
        while arrived < issued and times[arrived, 1] <= now + TIE_S:
            marks[arrived, 0] = max(event - 1, 0)
            arrived += 1
        if num_running == 0 and num_stack == 0 and head == arrived:
            if record.shape[0] > 0:
                if event >= record.shape[0]:
                    return -1
                record[event, 1], record[event, 2] = now, times[arrived, 1]
            now = max(now, times[arrived, 1])
            event += 1
            continue
        # 1  running requests, in the order of admission
        budget = budget_limit
        preempted = False
        decodes = 0
        prefill = rows = 0
        context = window_context = pairs = wpairs = 0.0
        index = 0
        while index < num_running:
            r = running[index]
            known = prompts[r] + int(growth * generated[r])
            need = known - computed[r]
            is_decode = generated[r] > 0 and need <= 1
            count = need if not is_decode else verify
            if longest_chunk > 0 and not is_decode:
                count = min(count, longest_chunk)
            count = min(count, budget)
            given[r] = 0
            if count <= 0:
                index += 1
                continue
            target = computed[r] + count
            extra = sequence_blocks(groups, target) - common[r] - held[r]
            while extra > free and num_running > index:
                victim = running[num_running - 1]
                num_running -= 1
                free += held[victim]
                lost_blocks[victim] = held[victim]
                lost_tokens[victim] = computed[victim]
                lost_at[victim] = handed_out
                held[victim] = 0
                common[victim] = 0
                computed[victim] = 0
                given[victim] = 0
                marks[victim, 3] += 1
                stack[num_stack] = victim
                num_stack += 1
                preempted = True
            if num_running <= index:
                break
            if extra > 0:
                free -= extra
                held[r] += extra
                handed_out += extra
            budget -= count
            given[r] = count
            index += 1
        # 2  waiting requests, unless something was preempted
        admitted = False
        idle = num_running == 0
        while not preempted and budget > 0 and num_running < max_running:
            if num_stack > 0:
                r = stack[num_stack - 1]
            elif head < arrived and (idle or times[head, 1] < now - TIE_S):
                r = head
            else:
                break
            known = prompts[r] + int(growth * generated[r])
            hit = min(shared, known - 1) if prefix_ready else 0
            own = prefix_blocks if hit >= shared else 0
            # blocks of a preempted request survive until the free list is handed out again
            left = lost_blocks[r] - (handed_out - lost_at[r])
            if keeps_blocks == 1 and left > 0:
                found = lost_tokens[r] * left // lost_blocks[r] // block * block
                hit = max(hit, min(found, (known - 1) // block * block))
            count = known - hit
            if longest_chunk > 0:
                count = min(count, longest_chunk)
            if count > budget and chunked == 0 and num_running > 0:
                break
            count = min(count, budget) if chunked == 1 else count
            whole = sequence_blocks(groups, known if whole_gate == 1 else hit + count) - own
            kept = watermark if num_running > 0 else 0
            if whole + kept > free:
                break
            taken = max(sequence_blocks(groups, hit + count) - own, 0)
            free -= taken
            handed_out += taken
            totals[8] += max(lost_tokens[r] - hit, 0)
            lost_blocks[r] = lost_tokens[r] = 0
            held[r] = taken
            common[r] = own
            computed[r] = hit
            if num_stack > 0:
                num_stack -= 1
            else:
                head += 1
                times[r, 2] = now
            running[num_running] = r
            num_running += 1
            budget -= count
            given[r] = count
            admitted = True
        # 3  the batch
        remaining = 1 << 60
        for index in range(num_running):
            r = running[index]
            count = given[r]
            if count == 0:
                continue
            known = prompts[r] + int(growth * generated[r])
            if generated[r] > 0 and known - computed[r] <= 1:
                decodes += 1
                context += known
                window_context += min(known, window)
                if known < window:
                    remaining = min(remaining, max(int((window - known) / growth), 1))
                remaining = min(remaining, outputs[r] - generated[r])
                rows += 1
            else:
                start = computed[r]
                prefill += count
                pairs += float(count) * start + count * (count + 1.0) / 2
                wpairs += window_pairs(start, count, window)
                if start + count >= known:
                    rows += 1
        if decodes == 0 and prefill == 0:
            if preempted:
                continue
            return -1
        # 4  how many equal steps follow
        steps = 1
        is_plain = prefill == 0 and not preempted and not admitted and decodes == num_running
        fresh = head < arrived and times[arrived - 1, 1] >= now - TIE_S and not idle
        # a preempted request that finds fewer of its blocks needs fewer for its first chunk
        may_shrink = whole_gate == 0 and num_stack > 0 and keeps_blocks == 1
        if is_plain and not fresh and not may_shrink:
            steps = max(remaining, 1)
            bounds[0], bounds[1], bounds[2], bounds[3] = num_running, free, verify, steps
            steps = affordable_steps(groups, running, computed, held, common, bounds, growth)
        batch[0], batch[1], batch[2] = decodes, prefill, rows
        batch[3], batch[4], batch[5], batch[6] = context, window_context, pairs, wpairs
        first_s = step_seconds(price, batch)
        growing = 0
        if steps > 1:
            for index in range(num_running):
                r = running[index]
                if prompts[r] + int(growth * generated[r]) < window:
                    growing += 1
        slope = 0.0
        if steps > 1:
            batch[3] = context + growth * decodes
            batch[4] = window_context + growth * growing
            slope = step_seconds(price, batch) - first_s
            if arrived < issued:
                until = times[arrived, 1] - now - TIE_S
                low, high = 1, steps
                while low < high:
                    middle = (low + high) // 2
                    if middle * first_s + slope * middle * (middle - 1) / 2 >= until:
                        high = middle
                    else:
                        low = middle + 1
                steps = low
        duration = steps * first_s + slope * steps * (steps - 1) / 2
        if record.shape[0] > 0:
            if event >= record.shape[0]:
                return -1
            record[event, 0] = steps
            record[event, 1], record[event, 2] = now, now + duration
            batch[3] = context + growth * decodes * (steps - 1) / 2
            batch[4] = window_context + growth * growing * (steps - 1) / 2
            for index in range(NUM_BATCH):
                record[event, 3 + index] = batch[index]
        # 5  the clock and the outcome
        end = now + duration
        used = num_blocks - free
        waiting = arrived - head + num_stack
        totals[1] += duration * num_running
        totals[2] += duration * waiting
        totals[3] += duration * used
        totals[4] = max(totals[4], float(used))
        totals[7] += steps
        kept_running = 0
        ended = 0
        for index in range(num_running):
            r = running[index]
            count = given[r]
            running[kept_running] = r
            kept_running += 1
            if count == 0:
                continue
            known = prompts[r] + int(growth * generated[r])
            is_decode = generated[r] > 0 and known - computed[r] <= 1
            if not is_decode:
                computed[r] += count
                if computed[r] < known:
                    continue
            if generated[r] == 0:
                times[r, 3] = end
                marks[r, 1] = event
                if shared > 0 and not prefix_ready:
                    prefix_ready = True
                    prefix_blocks = shared_blocks(groups, shared)
                    held[r] -= prefix_blocks
                    common[r] = prefix_blocks
            else:
                gap = now + first_s - last[r]
                gaps[gap_bin(gap)] += 1.0
                totals[5] += gap
                totals[6] += 1.0
                if steps > 1:
                    rest = (duration - first_s) / (steps - 1)
                    gaps[gap_bin(rest)] += steps - 1.0
                    totals[5] += duration - first_s
                    totals[6] += steps - 1.0
            last[r] = end
            generated[r] += steps
            computed[r] = prompts[r] + int(growth * generated[r]) - 1
            if steps > 1:
                tokens = computed[r] + verify - 1
                extra = sequence_blocks(groups, tokens) - common[r] - held[r]
                if extra > 0:
                    free -= extra
                    held[r] += extra
                    handed_out += extra
            if generated[r] >= outputs[r]:
                times[r, 4] = end
                marks[r, 2] = event
                free += held[r]
                held[r] = 0
                common[r] = 0
                kept_running -= 1
                ended += 1
        num_running = kept_running
        finished += ended
        now = end
        event += 1
        if concurrency > 0:
            for _ in range(min(ended, number - issued)):
                times[issued, 0] = end
                ready = max(taken_in, end + front[0] + front[1] * prompts[issued])
                taken_in = ready + front[2] + front[3] * prompts[issued]
                times[issued, 1] = taken_in
                issued += 1
    totals[0] = now
    return event
