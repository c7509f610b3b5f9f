"""What the store of recommendations promises, on every kind of server."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import redis

from service.identifiers import time_ordered_id, timestamp
from service.store import keys
from service.store.recommendations import (
    Filters,
    RecommendationRecord,
    RecommendationStore,
)

_START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_EVERYTHING = Filters()


def _record(number: int = 0, **changes: object) -> RecommendationRecord:
    made_at = _START + timedelta(seconds=number)
    record = RecommendationRecord(
        id=time_ordered_id(made_at, entropy=number.to_bytes(10, "big")),
        created_at=timestamp(made_at),
        etag='"tag"',
        model="a/model",
        gpu="H100-SXM5-80GB",
        feasible=True,
        headline="fits",
        labels={},
    )
    return msgspec.structs.replace(record, **changes)


@pytest.fixture
def store(client: redis.Redis) -> RecommendationStore:
    return RecommendationStore(client, retention=None)


def _ids(store: RecommendationStore, filters: Filters, *, limit: int = 100) -> list[str]:
    """Return all ids over all pages."""
    found: list[str] = []
    position = None
    while True:
        page = store.page(filters, limit=limit, after=position)
        found += [record.id for record in page.records]
        position = page.last_id
        if position is None:
            return found


def test_a_stored_body_comes_back_byte_for_byte(store: RecommendationStore) -> None:
    """The bytes of an answer are kept exactly as they are, whatever they hold."""
    body = bytes(range(256)) + '{"é": 1.0}'.encode()
    record = _record()

    store.save(record, body, at=_START)

    found = store.find(record.id)
    assert found is not None
    assert (found.body, found.etag) == (body, record.etag)


def test_an_unknown_id_finds_nothing(store: RecommendationStore) -> None:
    """Looking for what was never stored answers None, and deleting it says so."""
    assert store.find("nothing") is None
    assert store.delete("nothing") is False


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_hold_everything_once_newest_first(store: RecommendationStore, limit: int) -> None:
    """Over all pages every record appears once, newest first, whatever the page size."""
    records = [_record(number) for number in (5, 2, 9, 1, 4, 0, 7)]
    for record in records:
        store.save(record, b"{}", at=_START)

    assert _ids(store, _EVERYTHING, limit=limit) == sorted(
        (record.id for record in records), reverse=True
    )


def test_a_full_last_page_has_no_successor(store: RecommendationStore) -> None:
    """A page that ends exactly with the last record says that nothing follows."""
    for number in range(4):
        store.save(_record(number), b"{}", at=_START)

    assert store.page(_EVERYTHING, limit=4, after=None).last_id is None


def test_records_made_while_paging_do_not_shift_pages(store: RecommendationStore) -> None:
    """A new record between two pages neither repeats nor hides an older one."""
    for number in range(4):
        store.save(_record(number), b"{}", at=_START)
    first = store.page(_EVERYTHING, limit=2, after=None)

    store.save(_record(50), b"{}", at=_START)
    second = store.page(_EVERYTHING, limit=2, after=first.last_id)

    seen = [record.id for record in (*first.records, *second.records)]
    assert seen == [_record(number).id for number in (3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        (Filters(model="a/model"), [3, 1, 0]),
        (Filters(gpu="L4"), [3]),
        (Filters(model="a/model", gpu="H100-SXM5-80GB"), [1, 0]),
        (Filters(labels=("team",)), [2, 1, 0]),
        (Filters(labels=("team=x",)), [2, 0]),
        (Filters(labels=("team=x", "env")), [0]),
        (Filters(model="a/model", labels=("team=x",)), [0]),
        (Filters(labels=("team=z",)), []),
        (Filters(model="nobody's"), []),
    ],
)
def test_filters_narrow_the_list(
    store: RecommendationStore, filters: Filters, numbers: list[int]
) -> None:
    """Only records that match every filter are listed, still newest first."""
    saved = [
        _record(0, labels={"team": "x", "env": "a=b"}),
        _record(1, labels={"team": "y"}),
        _record(2, labels={"team": "x"}, model="other/model"),
        _record(3, gpu="L4"),
    ]
    for record in saved:
        store.save(record, b"{}", at=_START)

    assert _ids(store, filters, limit=2) == [saved[number].id for number in numbers]


def test_deleting_leaves_nothing_behind(store: RecommendationStore, client: redis.Redis) -> None:
    """A deleted record is gone with all its index entries, and a second delete says so."""
    record = _record(labels={"team": "x", "env": ""})
    store.save(record, b"{}", at=_START)

    assert store.delete(record.id) is True
    assert store.delete(record.id) is False
    assert list(client.scan_iter("*")) == []


def test_expired_records_leave_the_list(store: RecommendationStore, client: redis.Redis) -> None:
    """A record whose time is over is neither found nor listed, and its index entry goes."""
    kept, expired = _record(1), _record(2)
    for record in (kept, expired):
        store.save(record, b"{}", at=_START)
    client.delete(keys.recommendation(expired.id))  # what expiry does

    assert _ids(store, _EVERYTHING, limit=1) == [kept.id]
    assert client.zcard(keys.recommendations()) == 1


def test_retention_is_put_on_every_key_and_old_entries_are_pruned(client: redis.Redis) -> None:
    """With a retention, every key expires, and saving drops index entries past it."""
    store = RecommendationStore(client, retention=timedelta(days=1))
    old, new = _record(0), _record(2 * 24 * 3600)

    store.save(old, b"{}", at=_START)
    store.save(new, b"{}", at=_START + timedelta(days=2))

    assert all(0 < int(str(client.ttl(key))) <= 24 * 3600 for key in client.scan_iter("*"))
    assert client.zscore(keys.recommendations(), old.id) is None
    assert client.zscore(keys.recommendations(), new.id) is not None


def test_records_without_retention_stay(store: RecommendationStore, client: redis.Redis) -> None:
    """Without a retention nothing ever expires."""
    store.save(_record(), b"{}", at=_START)

    assert {client.ttl(key) for key in client.scan_iter("*")} == {-1}


def test_a_record_of_a_later_version_can_be_read(
    store: RecommendationStore, client: redis.Redis
) -> None:
    """Fields that a later version added to a stored record do not stop this one."""
    record = _record()
    store.save(record, b"{}", at=_START)
    newer = msgspec.to_builtins(record) | {"schema_version": 2, "added_later": True}
    client.hset(keys.recommendation(record.id), "record", msgspec.json.encode(newer))

    assert store.find(record.id) is not None
    assert store.page(_EVERYTHING, limit=1, after=None).records[0].schema_version == 2
