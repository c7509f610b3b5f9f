"""Keys, budgets, keyed requests and the trail, on every store."""

from datetime import UTC, datetime, timedelta

import pytest
import redis

from api_schemas.access import AuditEvent
from service.access import refusal_of
from service.store import keys
from service.store.api_keys import ApiKeyStore
from service.store.audit import AuditTrail
from service.store.budgets import Budget, Budgets
from service.store.idempotency import Attempt, ClaimState, IdempotencyStore, KeyedAnswer
from service.store.models import ModelRecord, ModelStore

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ATTEMPT = Attempt(started_at=AT, entropy=b"0123456789")
ANSWER = KeyedAnswer(status=201, headers={"Location": "/x"}, media_type="a/b", body=b"{}")


def test_no_key_is_stored_in_the_clear(client: redis.Redis) -> None:
    """Nothing in the whole store holds the secret, and the key still authenticates."""
    store = ApiKeyStore(client)

    record, secret = store.create(
        name="ci", tenant="team-a", scopes=["read"], created_by="operator", at=AT
    )

    private = secret.text.rsplit("_", 1)[1].encode()
    for name in client.scan_iter("*"):
        if client.type(name) == b"hash":
            assert all(private not in value for value in client.hgetall(name).values())
        assert private not in name
    assert store.authenticate(record.id, secret.text) == record
    assert store.authenticate(record.id, secret.text[:-1] + "~") is None


def test_a_rotated_key_makes_room_for_its_successor(client: redis.Redis) -> None:
    """The new key has the same rights; the old one ends after the overlap."""
    store = ApiKeyStore(client)
    old, _ = store.create(name="ci", tenant="a", scopes=["read"], created_by="operator", at=AT)

    new, secret = store.rotate(old, created_by="x", at=AT, overlap=timedelta(seconds=60))

    ending = store.find(old.id)
    assert ending is not None
    assert refusal_of(ending, at=AT + timedelta(seconds=59)) is None
    assert refusal_of(ending, at=AT + timedelta(seconds=60)) == "expired"
    assert (new.tenant, new.scopes, new.name) == (old.tenant, old.scopes, old.name)
    assert store.authenticate(new.id, secret.text) == new


def test_a_revoked_key_stays_on_the_list(client: redis.Redis) -> None:
    """Revoking keeps the record with its first time of revocation, and its last use."""
    store = ApiKeyStore(client)
    key, _ = store.create(name="ci", tenant="a", scopes=["read"], created_by="operator", at=AT)
    store.touch(key.id, at=AT)

    store.revoke(key.id, at=AT)
    store.revoke(key.id, at=AT + timedelta(days=1))

    (found,) = store.all(tenant="a")
    assert found.revoked_at == found.last_used_at == "2026-03-01T12:00:00.000Z"
    assert store.all(tenant="b") == []
    assert store.any_made()


def test_a_budget_ends_and_comes_back(client: redis.Redis) -> None:
    """So much is granted and no more; the answer says when the rest can be had."""
    budgets, budget = Budgets(client), Budget(name="b", capacity=3, window_s=3600)

    grants = [budgets.take(budget, holder="k").granted for _ in range(4)]
    refused = budgets.take(budget, holder="k", amount=2)
    other = budgets.take(budget, holder="other", amount=3)

    assert grants == [True, True, True, False]
    assert not refused.granted
    assert 2000 < refused.wait_s <= 2400
    assert other.granted


def test_a_budget_refills_steadily(client: redis.Redis) -> None:
    """A bucket that was emptied an hour ago is full again, and never fuller."""
    budgets, budget = Budgets(client), Budget(name="b", capacity=3, window_s=60)
    bucket = keys.token_bucket("b", "k")
    budgets.take(budget, holder="k", amount=3)
    client.hincrby(bucket, "at_ms", -3_600_000)

    take = budgets.take(budget, holder="k")

    assert take.granted
    assert take.left == pytest.approx(2)
    assert 0 < client.ttl(bucket) <= 62


def claim(store: IdempotencyStore, token: str, fingerprint: str = "f") -> ClaimState:
    return store.claim("key", fingerprint=fingerprint, token=token, attempt=ATTEMPT).state


def test_one_request_works_and_the_others_replay(client: redis.Redis) -> None:
    """While it works the others are told so; afterwards they get its answer."""
    store = IdempotencyStore(client, tenant="a")

    first, second = claim(store, "1"), claim(store, "2")
    other = claim(store, "3", fingerprint="g")
    done = store.complete("key", token="1", answer=ANSWER)  # noqa: S106
    replayed = store.claim("key", fingerprint="f", token="4", attempt=ATTEMPT)  # noqa: S106

    assert (first, second) == (ClaimState.CLAIMED, ClaimState.RUNNING)
    assert other is ClaimState.REUSED
    assert done
    assert replayed.answer == ANSWER


def test_another_tenant_has_keys_of_its_own(client: redis.Redis) -> None:
    """The same text of two tenants is two keys."""
    assert claim(IdempotencyStore(client, tenant="a"), "1") is ClaimState.CLAIMED
    assert claim(IdempotencyStore(client, tenant="b"), "2", "g") is ClaimState.CLAIMED


def test_a_lost_request_frees_its_key_and_keeps_its_ids(client: redis.Redis) -> None:
    """Once the lock ran out the next one takes over the same attempt, and the lost one is out."""
    store = IdempotencyStore(client, tenant=keys.DEFAULT_TENANT)
    claim(store, "lost")
    locks = list(client.scan_iter("*:lock"))
    assert 0 < client.pttl(locks[0]) <= keys.IDEMPOTENCY_LOCK_LIFETIME_S * 1000
    client.delete(*locks)  # what expiry does

    later = Attempt(started_at=AT + timedelta(hours=1), entropy=b"abcdefghij")
    taken = store.claim("key", fingerprint="f", token="next", attempt=later)  # noqa: S106

    assert taken.attempt == ATTEMPT
    assert not store.complete("key", token="lost", answer=ANSWER)  # noqa: S106
    assert not store.renew("key", token="lost")  # noqa: S106
    assert store.renew("key", token="next")  # noqa: S106


def test_a_refused_request_leaves_its_key_unused(client: redis.Redis) -> None:
    """Nothing was made, so the same key may come with a mended body."""
    store = IdempotencyStore(client, tenant="a")
    claim(store, "1")

    store.forget("key", token="1")  # noqa: S106

    assert claim(store, "2", fingerprint="g") is ClaimState.CLAIMED


def test_the_trail_is_paged_newest_first(client: redis.Redis) -> None:
    """Pages follow each other without a gap, and tenants see their own events."""
    trail = AuditTrail(client)
    for number in range(3):
        event = AuditEvent(
            id="", at="", actor="k", action="x", target=str(number), status=200, request_id=""
        )
        trail.append(event, tenant="a")

    first = trail.newest(tenant="a", limit=2)
    rest = trail.newest(tenant="a", limit=2, before=first[-1].id)

    assert [event.target for event in first + rest] == ["2", "1", "0"]
    assert trail.newest(tenant="a", limit=2, before="0-0") == []
    assert trail.newest(tenant="b", limit=2) == []


def test_registered_models_belong_to_a_tenant(client: redis.Redis) -> None:
    """What one tenant registers changes nothing for another."""
    ModelStore(client, tenant="a").register(ModelRecord(id="acme/m", config={}))

    assert ModelStore(client, tenant="a").find("acme/m") is not None
    assert ModelStore(client, tenant="b").find("acme/m") is None
    assert ModelStore(client).all() == []
