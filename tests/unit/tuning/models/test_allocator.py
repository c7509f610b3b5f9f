"""How the caching allocator counts tensors."""

from hypothesis import given, settings
from hypothesis import strategies as st

from service.tuning.models.allocator import allocated_bytes

MIB = 2**20
SIZES = st.lists(st.integers(1, 200 * MIB), max_size=40)


def test_small_tensors_take_what_they_need() -> None:
    """Tensors up to 1 MiB cost their size in units of 512 bytes."""
    assert allocated_bytes([1, 512, 513]) == 512 + 512 + 1024


def test_a_large_tensor_keeps_a_short_rest() -> None:
    """A tail of 1 MiB or less stays with the tensor."""
    assert allocated_bytes([31.5 * MIB]) == 32 * MIB


def test_a_longer_rest_is_split_off() -> None:
    """A tail of more than 1 MiB does not count."""
    assert allocated_bytes([24.5 * MIB]) == 24.5 * MIB


def test_a_rest_serves_a_later_tensor() -> None:
    """What was split off is given out again before a new segment is."""
    assert allocated_bytes([24.5 * MIB, 1.25 * MIB]) == 24.5 * MIB + 1.5 * MIB


def test_segments_that_expand_leave_no_rests() -> None:
    """Every tensor then costs its size in units of 512 bytes, however large it is."""
    sizes = [31.5 * MIB, 24.5 * MIB, 513]

    assert allocated_bytes(sizes, expandable_segments=True) == 56 * MIB + 1024


@settings(deadline=None)
@given(SIZES)
def test_no_tensor_is_counted_smaller_and_none_much_larger(sizes: list[int]) -> None:
    """Each tensor costs at least its size and at most 1 MiB and one unit more."""
    counted = allocated_bytes(sizes)

    assert sum(sizes) <= counted <= sum(sizes) + len(sizes) * (MIB + 512)


@settings(deadline=None)
@given(SIZES)
def test_counting_depends_on_nothing_else(sizes: list[int]) -> None:
    """The same tensors always count the same."""
    assert allocated_bytes(sizes) == allocated_bytes(list(sizes))
