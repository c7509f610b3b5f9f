"""What the store of validations promises, on every kind of server."""

import itertools
from datetime import timedelta

import msgspec
import pytest
import redis

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Percentiles
from api_schemas.validation import (
    TERMINAL,
    Failure,
    LoadPoint,
    Validation,
    ValidationPlan,
    ValidationStatus,
)
from api_schemas.workload import ClosedLoop
from service.store import keys
from service.store.validations import ALLOWED_MOVES, Change, ValidationStore

_ZERO = Percentiles(mean=1.0, p50=1.0, p90=1.0, p95=1.0, p99=1.0)


def _validation(identifier: str = "v1", **changes: object) -> Validation:
    validation = Validation(
        id=identifier,
        recommendation_id="r1",
        mode="quick",
        plan=ValidationPlan(mode="quick"),
        status="queued",
        stage="queued",
        progress=0.0,
        created_at="2026-01-02T03:04:05.000Z",
        queue="validate.gpu.CPU",
    )
    return msgspec.structs.replace(validation, **changes)


def _point(label: str) -> LoadPoint:
    return LoadPoint(
        label=label,
        config=EngineConfig(max_num_seqs=4),
        offered=ClosedLoop(max_concurrency=4),
        num_requests=1,
        seed=0,
        duration_s=1.0,
        completed=1,
        failed=0,
        ttft_ms=_ZERO,
        tpot_ms=_ZERO,
        itl_ms=_ZERO,
        e2el_ms=_ZERO,
        requests_per_s=1.0,
        output_tokens_per_s=1.0,
        goodput_requests_per_s=None,
        preemptions=0,
        preemptions_per_request=0.0,
        kv_cache_usage_peak=None,
        running_peak=None,
        waiting_peak=None,
        prefix_cache_hit_ratio=None,
        queue_time_mean_ms=None,
        predicted={},
        error_percent={},
    )


@pytest.fixture
def store(client: redis.Redis) -> ValidationStore:
    return ValidationStore(client, retention=None)


def _path_to(status: ValidationStatus) -> list[ValidationStatus]:
    """Return the shortest way from `queued` to a state."""
    ways: list[list[ValidationStatus]] = [["queued"]]
    for way in ways:
        if way[-1] == status:
            return way[1:]
        ways += [[*way, move] for move in ALLOWED_MOVES[way[-1]] if move not in way]
    raise AssertionError(status)


def test_a_record_comes_back_as_it_was_stored(store: ValidationStore) -> None:
    """Every field survives, and an unknown id finds nothing."""
    validation = _validation(notes=["ü"])

    store.create(validation)

    assert store.find("v1") == validation
    assert store.find("nothing") is None
    assert store.unfinished() == ["v1"]


@pytest.mark.parametrize(
    ("at", "to"), list(itertools.product(ALLOWED_MOVES, ALLOWED_MOVES)), ids=str
)
def test_only_the_moves_of_the_table_are_made(
    store: ValidationStore, at: ValidationStatus, to: ValidationStatus
) -> None:
    """From every state exactly the listed moves succeed; a finished record never changes."""
    store.create(_validation())
    for step in _path_to(at):
        assert store.change("v1", attempt=1, to=step) is Change.DONE

    outcome = store.change("v1", attempt=1, to=to, stage="moved")

    found = store.find("v1")
    assert found is not None
    if at in TERMINAL:
        assert (outcome, found.status, found.stage) == (Change.FINISHED, at, "queued")
    elif to in ALLOWED_MOVES[at] or to == at:
        assert (outcome, found.status, found.stage) == (Change.DONE, to, "moved")
    else:
        assert (outcome, found.status, found.stage) == (Change.REFUSED, at, "queued")
    assert (store.unfinished() == []) == (found.status in TERMINAL)


def test_load_points_are_there_as_they_come(store: ValidationStore) -> None:
    """Points are kept in order, each with an event."""
    store.create(_validation())
    for number in range(3):
        store.change("v1", attempt=1, load_point=_point(f"p{number}"))

    found = store.find("v1")
    assert found is not None
    assert [point.label for point in found.load_points] == ["p0", "p1", "p2"]
    events = store.events("v1", after="0")
    assert [event.name for event in events] == ["status", *["load_point"] * 3]
    assert msgspec.json.decode(events[-1].data, type=LoadPoint) == _point("p2")


def test_events_resume_after_any_of_them(store: ValidationStore) -> None:
    """Whatever event was last seen, exactly the later ones follow."""
    store.create(_validation())
    for status in ("leasing", "starting", "warming_up", "measuring", "succeeded"):
        store.change("v1", attempt=1, to=status)
    events = store.events("v1", after="0")

    assert len(events) == 6
    for number, event in enumerate(events):
        assert store.events("v1", after=event.id) == events[number + 1 :]


def test_an_earlier_attempt_can_no_longer_write(store: ValidationStore) -> None:
    """Once a lost run was given to another process, the first one is shut out."""
    store.create(_validation())
    store.change("v1", attempt=1, to="leasing")
    store.change("v1", attempt=1, load_point=_point("old"))
    store.change("v1", attempt=1, to="queued", next_attempt=2)

    assert store.change("v1", attempt=1, to="leasing") is Change.STALE
    assert store.change("v1", attempt=2, to="leasing") is Change.DONE
    found = store.find("v1")
    assert found is not None
    assert (found.attempt, found.load_points) == (2, [])


def test_structured_fields_are_set(store: ValidationStore) -> None:
    """A failure with its stage, reason and log is stored as it is, with any text in it."""
    failure = Failure(stage="start", reason='does_not_fit: "x"', log_tail="a\nb\x00ü")
    store.create(_validation())
    store.change("v1", attempt=1, to="failed", failure=failure, verdict="inconclusive")

    found = store.find("v1")
    assert found is not None
    assert (found.failure, found.verdict) == (failure, "inconclusive")


def test_validations_of_a_recommendation_are_listed_newest_first(store: ValidationStore) -> None:
    """The index is by recommendation, in the order of the ids, and goes with it."""
    for identifier in ("v2", "v1", "v3"):
        store.create(_validation(identifier))
    store.create(_validation("v4", recommendation_id="r2"))

    assert [v.id for v in store.of_recommendation("r1")] == ["v3", "v2", "v1"]
    store.forget_recommendation("r1")
    assert store.of_recommendation("r1") == []
    assert store.find("v1") is not None


def test_claims_and_cancel_requests(store: ValidationStore) -> None:
    """A claim is held until it is dropped, and a cancel request stays."""
    store.create(_validation())
    assert not store.is_claimed("v1")
    store.keep_claim("v1", owner="node", attempt=1)
    assert store.is_claimed("v1")
    store.drop_claim("v1", attempt=1)
    assert not store.is_claimed("v1")

    assert not store.cancel_requested("v1")
    assert store.request_cancel("v1") is True
    assert store.cancel_requested("v1")
    assert store.request_cancel("nothing") is False


def test_a_stale_process_cannot_touch_the_claim_of_its_successor(store: ValidationStore) -> None:
    """Who comes back after the run went to another attempt neither renews nor drops a claim."""
    store.create(_validation())
    assert store.keep_claim("v1", owner="first", attempt=1)
    store.change("v1", attempt=1, to="queued", next_attempt=2)
    assert store.keep_claim("v1", owner="second", attempt=2)

    assert not store.keep_claim("v1", owner="first", attempt=1)
    store.drop_claim("v1", attempt=1)

    assert store.is_claimed("v1")
    assert not store.keep_claim("gone", owner="first", attempt=1)
    assert not store.is_claimed("gone")


def test_retention_is_put_on_every_key(client: redis.Redis) -> None:
    """With a retention every key of a finished validation expires."""
    store = ValidationStore(client, retention=timedelta(days=1))
    store.create(_validation())
    store.change("v1", attempt=1, to="leasing")
    store.change("v1", attempt=1, load_point=_point("p"))
    store.change("v1", attempt=1, to="failed")

    assert all(0 < int(str(client.ttl(key))) <= 24 * 3600 for key in client.scan_iter("*"))


def test_a_record_of_a_later_version_can_be_read(
    store: ValidationStore, client: redis.Redis
) -> None:
    """Fields that a later version added do not stop this one."""
    store.create(_validation())
    client.hset(keys.validation("v1"), "added_later", "true")

    assert store.find("v1") == _validation()
