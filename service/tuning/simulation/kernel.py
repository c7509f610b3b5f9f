"""The arithmetic that runs compiled: the price of a step, and the steady state of a load.

Everything here is plain arithmetic on arrays, so that it runs uncompiled as well (slower by a
factor of about 40). Importing this module loads the compiler: import it inside a function.

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
    LEAST_GAPS,
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

Floats = NDArray[np.float64]


@compiled
def soft_max(one: float, other: float) -> float:
    """Return (a^4 + b^4)^(1/4)."""
    high, low = max(one, other), min(one, other)
    if low <= 0.0:
        return max(high, 0.0)
    ratio = (low / high) ** 2
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
def touched_share(log_miss: float, tokens: float) -> float:
    """Return the share of the experts that a batch reads when every token chooses by chance.

    Of groups left out of the fit, no other count of tokens that choose alike does better.
    """
    return 1.0 - math.exp(log_miss * tokens)


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
    touched = touched_share(price[LOG_MISS], expert_tokens)
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
    touched = touched_share(price[LOG_MISS], expert_tokens)
    rows = batch[2] / stages
    shares[:] = 0.0
    shares[ATTENTION_READ], shares[ATTENTION_TOKEN] = 1.0, matrix_tokens
    shares[MLP_READ], shares[MLP_TOKEN] = 1.0, matrix_tokens
    shares[EXPERT_READ], shares[EXPERT_TOKEN] = touched, expert_tokens
    shares[HEAD_READ], shares[HEAD_ROW] = 1.0, rows
    shares[CONTEXT], shares[WINDOW_CONTEXT] = batch[3] / stages, batch[4] / stages
    shares[STATE] = decodes
    shares[PAIR], shares[WINDOW_PAIR] = batch[5] / stages, batch[6] / stages
    shares[ACTIVATION], shares[LINK_TOKEN], shares[SCAN] = tokens, tokens, prefill
    shares[EXCHANGE_TOKEN], shares[EXPERT_ACTIVATION] = expert_tokens, expert_tokens
    shares[LINK_LATENCY] = shares[LAYER] = shares[EXPERT_LAYER] = shares[STEP] = 1.0
    shares[ROW] = rows
    shares[LAUNCH] = launched_share(tokens, prefill, price[MAX_CAPTURE])
    for index in range(NUM_PRICES):
        shares[index] *= stages * price[index]
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
    total = 0.0
    for index in range(NUM_PRICES):
        total += shares[index]
    return total


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
    gaps = max(output - 1, LEAST_GAPS)
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
    point[POINT_DECODE_TIME] = gaps * tau


@compiled
def settle_closed(price: Floats, batch: Floats, load: Floats, point: Floats) -> float:
    """Fill `point` with the fixed point of a closed loop; return the decodes that saturate it."""
    most = load[LOAD_MOST]
    saturation: float = load[LOAD_BUDGET] / (
        price[VERIFY] + load[LOAD_COMPUTED] / max(load[LOAD_OUTPUT] - 1, LEAST_GAPS)
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
