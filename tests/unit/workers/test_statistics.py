"""How sure a measurement is."""

import numpy as np
import pytest

from workers.statistics import (
    percentile_interval,
    rate_interval,
    ratio_interval,
    requests_needed,
)


@pytest.mark.parametrize(("percentile", "count"), [(0.5, 5), (0.9, 29), (0.95, 59), (0.99, 299)])
def test_enough_requests_bound_a_percentile(percentile: float, count: int) -> None:
    """With so many the largest lies above the percentile in 95 of 100 cases, with one less not."""
    assert requests_needed([percentile]) == count
    assert 1 - percentile**count >= 0.95
    assert 1 - percentile ** (count - 1) < 0.95


def test_intervals_hold_the_true_percentile_as_often_as_they_say() -> None:
    """Over many draws from a known distribution about nine in ten intervals hold the truth."""
    generator = np.random.default_rng(5)
    truth = float(np.log(20.0))  # the 95th percentile of the standard exponential
    hits = 0
    for _ in range(400):
        low, high = percentile_interval(generator.exponential(size=400), 0.95, independent=400)
        hits += high is not None and low <= truth <= high
    assert 0.85 <= hits / 400 <= 0.95


def test_too_few_requests_leave_the_upper_end_open() -> None:
    """Ten requests say nothing of how large the 95th percentile may be."""
    low, high = percentile_interval([1.0] * 10, 0.95, independent=10)

    assert (low, high) == (1.0, None)


def test_a_rate_is_as_sure_as_its_count() -> None:
    """A hundred requests in ten seconds are ten per second, give or take a sixth."""
    low, high = rate_interval(100, 10.0)

    assert high is not None
    assert (low, high) == (pytest.approx(8.355), pytest.approx(11.645))


def test_equal_repeats_show_no_difference() -> None:
    """The interval of a ratio of like noise holds 1; a clear gain lies outside of it."""
    same = ratio_interval([10.0, 10.4, 9.7], [10.1, 9.9, 10.3])
    better = ratio_interval([20.0, 20.5, 19.8], [10.1, 9.9, 10.3])

    assert same is not None
    assert same[0] < 1 < same[1]
    assert better is not None
    assert better[0] > 1.5


def test_noise_alone_rarely_wins() -> None:
    """Of many comparisons of like with like about one in twenty claims a difference."""
    generator = np.random.default_rng(11)
    wins = 0
    for _ in range(500):
        old, new = generator.normal(100, 5, 3).tolist(), generator.normal(100, 5, 3).tolist()
        interval = ratio_interval(new, old)
        assert interval is not None
        wins += not interval[0] <= 1 <= interval[1]
    assert wins / 500 < 0.07


@pytest.mark.parametrize(("new", "old"), [([1.0], [1.0, 2.0]), ([0.0, 1.0], [1.0, 2.0])])
def test_single_repeats_claim_nothing(new: list[float], old: list[float]) -> None:
    """Without a second repeat, or with a zero, there is no interval."""
    assert ratio_interval(new, old) is None
