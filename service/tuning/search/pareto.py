"""Which of several points are best in some direction: the Pareto front."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Point = TypeVar("Point")


def pareto_front(
    points: Sequence[Point], scores: Callable[[Point], tuple[float, ...]]
) -> tuple[Point, ...]:
    """Return the points that no other one beats, in their order; higher scores are better.

    A point is beaten by one that is at least as good in every score and better in one. Of equal
    points the first stays.
    """
    scored = [(point, scores(point)) for point in points]
    front = []
    for index, (point, mine) in enumerate(scored):
        rivals = ((other, place) for place, (_, other) in enumerate(scored) if place != index)
        if not any(_beats(other, mine, earlier=place < index) for other, place in rivals):
            front.append(point)
    return tuple(front)


def _beats(other: tuple[float, ...], mine: tuple[float, ...], *, earlier: bool) -> bool:
    if other == mine:
        return earlier
    return all(theirs >= own for theirs, own in zip(other, mine, strict=True))
