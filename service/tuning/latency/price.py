"""The array of prices that the step time and the scheduler's loop work on."""

PRICE_FIELDS = (
    "attention_read",
    "attention_token",
    "mlp_read",
    "mlp_token",
    "expert_read",
    "expert_token",
    "head_read",
    "head_row",
    "context",
    "window_context",
    "state",
    "pair",
    "window_pair",
    "activation",
    "scan",
    "link_latency",
    "link_token",
    "exchange_token",
    "expert_activation",
    "layer",
    "expert_layer",
    "step",
    "row",
    "launch",
)
"""Components in seconds, in the order of the array; the shape follows them."""
SHAPE_FIELDS = ("log_miss", "expert_ranks", "verify", "stages", "max_capture", "window")
"""What is no time: log(1 - k/E), ranks that share the experts' tokens, tokens verified per
sequence and step, pipeline stages, largest captured batch, tokens of the attention window."""
NUM_PRICES = len(PRICE_FIELDS)
PRICE_SIZE = NUM_PRICES + len(SHAPE_FIELDS)

ATTENTION_READ, ATTENTION_TOKEN, MLP_READ, MLP_TOKEN = 0, 1, 2, 3
EXPERT_READ, EXPERT_TOKEN, HEAD_READ, HEAD_ROW = 4, 5, 6, 7
CONTEXT, WINDOW_CONTEXT, STATE, PAIR, WINDOW_PAIR = 8, 9, 10, 11, 12
ACTIVATION, SCAN, LINK_LATENCY, LINK_TOKEN, EXCHANGE_TOKEN = 13, 14, 15, 16, 17
EXPERT_ACTIVATION, LAYER, EXPERT_LAYER, STEP, ROW, LAUNCH = 18, 19, 20, 21, 22, 23
LOG_MISS, EXPERT_RANKS, VERIFY, STAGES, MAX_CAPTURE, WINDOW = 24, 25, 26, 27, 28, 29

BATCH_FIELDS = ("decodes", "prefill", "rows", "context", "window_context", "pairs", "window_pairs")
NUM_BATCH = len(BATCH_FIELDS)
GAP_BINS = 2048
GAP_LOW_S, GAP_HIGH_S = 1e-5, 1e4
"""Gaps between tokens are counted in bins of equal ratio (1.0 %)."""
