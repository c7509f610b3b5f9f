"""How much memory PyTorch's caching allocator counts for a list of tensors."""

import bisect
from collections.abc import Iterable

_MIB = 2**20
_SMALL_BYTES = _MIB
"""Tensors up to this size share small segments that are split to the last 512 bytes."""
_DIRECT_BYTES = 10 * _MIB
_SHARED_SEGMENT_BYTES = 20 * _MIB
_SEGMENT_MULTIPLE_BYTES = 2 * _MIB
_SMALLEST_REST_BYTES = _MIB
"""A block is split only when more than this is left over."""
_ALIGNMENT_BYTES = 512


def allocated_bytes(sizes: Iterable[float], *, expandable_segments: bool = False) -> int:
    """Return the bytes `torch.cuda.memory_allocated` reports after these allocations.

    That is what vLLM logs as the memory its model took. A tensor takes the smallest free block
    that holds it, and keeps the block's tail when the rest is 1 MiB or less; new segments are
    20 MiB for tensors below 10 MiB and whole multiples of 2 MiB above
    (c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.4 to 2.9, default settings). Segments that
    expand split every block to the last 512 bytes, so that no tensor keeps a tail.
    """
    if expandable_segments:
        return sum(_up(size, _ALIGNMENT_BYTES) for size in sizes)
    free: list[int] = []
    total = 0
    for size in sizes:
        needed = _up(size, _ALIGNMENT_BYTES)
        total += needed if needed <= _SMALL_BYTES else _take(needed, free)
    return total


def _take(needed: int, free: list[int]) -> int:
    """Return the bytes of the block given out; `free` keeps what is left over, sorted."""
    index = bisect.bisect_left(free, needed)
    block = free.pop(index) if index < len(free) else _new_segment(needed)
    rest = block - needed
    if rest <= _SMALLEST_REST_BYTES:
        return block
    bisect.insort(free, rest)
    return needed


def _new_segment(needed: int) -> int:
    if needed < _DIRECT_BYTES:
        return _SHARED_SEGMENT_BYTES
    return _up(needed, _SEGMENT_MULTIPLE_BYTES)


def _up(size: float, multiple: int) -> int:
    return -int(-size // multiple) * multiple
