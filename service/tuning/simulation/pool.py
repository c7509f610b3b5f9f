"""How many blocks of the KV cache a sequence holds, and the pairs that its prompt attends to."""

from service.tuning.simulation.columns import Ints
from service.tuning.simulation.compiled import compiled, inlined


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
