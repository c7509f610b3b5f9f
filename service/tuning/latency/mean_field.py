"""The arrays that the compiled fixed point works on (`simulation.kernel.settle_closed`)."""

LOAD_FIELDS = (
    "prompt_tokens",
    "computed_tokens",
    "output_tokens",
    "has_spread",
    "token_budget",
    "most_running",
)
"""The load of one engine: mean prompt, what of it is computed, mean output, whether lengths vary
(0 or 1), tokens per step, and how many sequences may run."""
LOAD_PROMPT, LOAD_COMPUTED, LOAD_OUTPUT, LOAD_SPREAD, LOAD_BUDGET, LOAD_MOST = 0, 1, 2, 3, 4, 5
NUM_LOAD = len(LOAD_FIELDS)

POINT_FIELDS = ("decodes", "tau", "plain", "mixed", "ttft", "decode_time")
"""One state: decoding sequences, mean step, step without and with prefill, time to the first
token, time from first to last token; seconds."""
POINT_DECODES, POINT_TAU, POINT_PLAIN, POINT_MIXED, POINT_TTFT, POINT_DECODE_TIME = 0, 1, 2, 3, 4, 5
NUM_POINT = len(POINT_FIELDS)

LEAST_GAPS = 0.05
"""Gaps between tokens that a one-token answer counts as having: prompts come at the rate at which
decoding requests end, which needs some that decode."""
ROUNDS = 12
MAX_LOAD = 0.999
"""Share of its capacity that a queue is computed for; beyond, it grows without end."""
