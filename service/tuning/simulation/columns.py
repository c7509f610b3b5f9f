"""Where things stand in the arrays that the scheduler's compiled loop works on."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TIE_S = 1e-9
"""Instants this close count as the same, so that rounding decides nothing."""

(
    PROMPTS,
    OUTPUTS,
    COMPUTED,
    GENERATED,
    BASE,
    JOINED,
    SEEN,
    DUE,
    ORDER,
    HELD,
    COMMON,
    GIVEN,
    LOST_BLOCKS,
    LOST_TOKENS,
    LOST_AT,
    EVENT_REACHED,
    EVENT_FIRST,
    EVENT_END,
    PREEMPTIONS,
) = range(19)
"""Columns of the table of requests: prompt tokens and sampling steps; tokens computed and steps
done. Of those in step: steps done less the beat, the beats at which they came and were counted in,
and the beat at which they must be looked at again (0: apart). Place in the order of admission;
blocks of its own and shared ones; tokens of this step; blocks and tokens that a preemption took and
how many blocks are handed out before those; events of its way; preemptions."""
NUM_COLUMNS = 19

SENT, REACHED, SCHEDULED, FIRST, END, LATEST = range(6)
"""Columns of the times: of the way of a request, and of its latest token while it is apart."""
NUM_TIMES = 6

IN_ORDER, SENT_BACK, ALONE, AGENDA, AGENDA_DUE = range(5)
"""Rows of the lists: running requests in order of admission; preempted ones, the next on top; those
apart in order of admission; those in step by the beat at which they are due, the next one last, and
that beat."""
NUM_LISTS = 5

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
    APART,
    IN_STEP,
    GROWING,
    BEAT,
    HEAD,
    ARRIVED,
    ISSUED,
    ADMISSIONS,
    FREE,
    HANDED_OUT,
    PREFIX_BLOCKS,
    PREFIX_READY,
    LEFT,
    PREEMPTED,
    ADMITTED,
    IDLE,
    VERIFIED,
    WINDOW_TOKENS,
    IS_UNIFORM,
    JOINERS_FREE,
    JOINERS_TAKE,
) = range(23)
"""Places in the array of counters: running, sent back, apart, in step, in step with a window that
still grows; steps taken by those in step; first waiting, reached, sent and ever admitted requests;
free blocks and all ever handed out; blocks of the shared prefix and whether it is computed; token
budget left, whether this step preempted, admitted, found the engine idle; tokens verified per step
and sequence, tokens of the attention window, whether each step adds exactly one token; blocks that
those who just came in step free and take beyond what is counted for all."""
NUM_COUNTERS = 23

NOW, TAKEN_IN, GROWTH, KNOWN, KNOWN_GROWING = range(5)
"""Places in the array of the flow: the engine's clock and when the front end is free again, tokens
a sequence gains per step; tokens at beat zero of all in step, and of those whose window grows."""
NUM_FLOW = 5

START, FIRST_S, ALL_S, STEPS = range(4)
"""Places in the array of an event: its start, the time of the first step and of all, how many."""
NUM_EVENT = 4

(
    TOTAL_S,
    RUNNING_S,
    WAITING_S,
    USED_S,
    PEAK_USED,
    GAPS_S,
    NUM_GAPS,
    NUM_STEPS,
    RECOMPUTED,
    PEAK_RUNNING,
) = range(10)
"""Places in the array of totals: end of the last request; integrals over time of running, waiting
and blocks used; most blocks used; sum and number of gaps; steps; tokens computed again; most
sequences running at once."""
NUM_TOTALS = 10

LOST = -2
"""Returned by a run that cannot keep its limits any more."""
