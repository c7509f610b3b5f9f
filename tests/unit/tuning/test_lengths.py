"""Statistics and samples of request lengths."""

import math

import numpy as np
import pytest

from api_schemas.workload import (
    FixedLength,
    HistogramLength,
    Lengths,
    LognormalLength,
    SampleLengths,
    UniformLength,
)
from service.tuning.lengths import (
    has_spread,
    lognormal_parameters,
    max_tokens,
    mean_tokens,
    quantile_tokens,
    sample_tokens,
)

LOGNORMAL = LognormalLength(mean=500, p99=2500)
KINDS = [
    300,
    FixedLength(tokens=300),
    UniformLength(low=100, high=900),
    LOGNORMAL,
    HistogramLength(upper=[100, 200, 1000], weight=[1, 2, 1]),
    SampleLengths(tokens=[10, 20, 20, 400]),
]


@pytest.mark.parametrize("lengths", KINDS)
def test_samples_have_the_mean_of_their_distribution(lengths: Lengths) -> None:
    """Stratified draws come out at the mean within two per cent."""
    drawn = sample_tokens(lengths, 4000, np.random.default_rng(3))

    assert drawn.mean() == pytest.approx(mean_tokens(lengths), rel=0.02)
    assert drawn.min() >= 1
    assert drawn.max() <= max_tokens(lengths) * 1.2


@pytest.mark.parametrize("lengths", KINDS)
def test_quantiles_rise_and_end_at_the_longest(lengths: Lengths) -> None:
    """A higher fraction never has a shorter length."""
    points = [quantile_tokens(lengths, f) for f in (0.0, 0.1, 0.5, 0.9, 0.999)]

    assert points == sorted(points)
    assert points[-1] <= max_tokens(lengths)


@pytest.mark.parametrize("lengths", KINDS)
def test_the_same_seed_draws_the_same_lengths(lengths: Lengths) -> None:
    """Sampling depends on the generator alone."""
    one, two = (sample_tokens(lengths, 50, np.random.default_rng(9)) for _ in range(2))

    assert one.tolist() == two.tolist()


def test_a_lognormal_keeps_its_mean_and_its_99th_percentile() -> None:
    """Mu and sigma give back what they were made from."""
    mu, sigma = lognormal_parameters(LOGNORMAL)

    assert math.exp(mu + sigma**2 / 2) == pytest.approx(500)
    assert quantile_tokens(LOGNORMAL, 0.99) == pytest.approx(2500, rel=1e-6)


def test_an_impossible_tail_gets_the_widest_shape_there_is() -> None:
    """A p99 of more than fifteen means has no lognormal; the answer is finite all the same."""
    _, sigma = lognormal_parameters(LognormalLength(mean=10, p99=10_000))

    assert sigma == pytest.approx(2.326, abs=0.001)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        (100, False),
        (UniformLength(low=99, high=101), False),
        (UniformLength(low=50, high=100), True),
    ],
)
def test_spread_means_more_than_a_few_per_cent(lengths: Lengths, expected: object) -> None:
    """Nearly equal lengths count as equal."""
    assert has_spread(lengths) is expected
