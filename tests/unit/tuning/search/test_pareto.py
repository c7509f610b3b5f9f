"""The Pareto front."""

from hypothesis import given
from hypothesis import strategies as st

from service.tuning.search.pareto import pareto_front

POINTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)


def as_scores(point: tuple[int, int]) -> tuple[float, ...]:
    """Return a point's own figures as scores."""
    return (float(point[0]), float(point[1]))


@given(points=POINTS)
def test_no_point_of_the_front_is_beaten(points: list[tuple[int, int]]) -> None:
    """Whoever is on the front is not worse everywhere than anyone."""
    front = pareto_front(points, as_scores)

    assert not any(
        other != mine and other[0] >= mine[0] and other[1] >= mine[1]
        for mine in front
        for other in points
    )


@given(points=POINTS)
def test_every_point_left_out_is_beaten_or_a_double(points: list[tuple[int, int]]) -> None:
    """The front loses nothing: what is missing has an equal or better one on it."""
    front = pareto_front(points, as_scores)

    assert all(any(f[0] >= p[0] and f[1] >= p[1] for f in front) for p in points)
    assert len(set(front)) == len(front)
