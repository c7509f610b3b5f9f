"""Ids in sorted indexes, which are ordered by time because ids are."""

from collections.abc import Iterator, Sequence

import redis

from service.store.client import text

_SCAN_IDS = 500


def ids_in_all(
    client: redis.Redis, indexes: Sequence[str], *, after: str | None
) -> Iterator[list[str]]:
    """Yield batches of the ids that stand in every index, newest first, older than `after`.

    The first index is read through, so it should be the smallest. A batch may be empty.
    """
    position = after
    while ids := _older(client, indexes[0], than=position):
        position = ids[-1]
        yield _of_all(client, ids, indexes[1:])


def _older(client: redis.Redis, index: str, *, than: str | None) -> list[str]:
    newest = f"({than}" if than else "+"
    found = client.zrevrangebylex(index, newest, "-", start=0, num=_SCAN_IDS)
    return [text(identifier) for identifier in found]


def _of_all(client: redis.Redis, ids: list[str], indexes: Sequence[str]) -> list[str]:
    for index in indexes:
        if not ids:
            break
        scores = client.zmscore(index, ids)
        ids = [found for found, score in zip(ids, scores, strict=True) if score is not None]
    return ids
