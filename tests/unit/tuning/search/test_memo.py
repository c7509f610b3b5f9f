"""What is remembered between requests."""

from service.tuning.search.memo import Memo


def test_a_result_is_computed_once_for_its_content() -> None:
    """Equal keys share a result, however many objects carry them."""
    asked: list[str] = []
    memo: Memo[int] = Memo(most=4)

    def compute() -> int:
        asked.append("asked")
        return 7

    results = [memo.once(("model", b"settings"), compute) for _ in range(3)]

    assert results == [7, 7, 7]
    assert asked == ["asked"]


def test_the_oldest_result_makes_room() -> None:
    """A memo never holds more than it may."""
    asked: list[int] = []
    memo: Memo[int] = Memo(most=2)

    def ask(key: int) -> int:
        def compute() -> int:
            asked.append(key)
            return key

        return memo.once(key, compute)

    for key in (1, 2, 3, 3, 2, 1):
        assert ask(key) == key

    assert asked == [1, 2, 3, 1]
