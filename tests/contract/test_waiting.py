"""Whose turn it is, on every kind of server: tenants take turns, each in its own order."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rq import Queue
from rq.serializers import JSONSerializer

from api_schemas.study import Choices, Study, StudyRequest
from api_schemas.validation import Validation, ValidationPlan
from service.queue import add_missing_tickets, enqueue, heal, ticket_queue
from service.store import keys
from service.store.studies import StudyStore
from service.store.validations import ValidationStore
from service.store.waiting import (
    WaitingRun,
    count_waiting,
    has_devices,
    is_overtaking,
    is_waiting,
    take_next,
)
from service.studies import heal_studies

_QUEUE = "validate.gpu.L4"
_NOW = datetime(2026, 1, 2, tzinfo=UTC)


def _store(client: redis.Redis, tenant: str | None = None) -> ValidationStore:
    return ValidationStore(client, retention=None, tenant=tenant)


def _add(
    client: redis.Redis, identifier: str, *, tenant: str, queue: str = _QUEUE, devices: int = 1
) -> Validation:
    validation = Validation(
        id=identifier,
        recommendation_id="r1",
        mode="boot",
        plan=ValidationPlan(mode="boot"),
        status="queued",
        stage="queued",
        progress=0.0,
        created_at="2026-01-02T03:04:05.000Z",
        queue=queue,
    )
    _store(client, tenant).create(validation, devices=devices)
    return validation


def _add_study(client: redis.Redis, identifier: str, *, tenant: str, devices: int = 1) -> None:
    request = StudyRequest(recommendation_id="r1", space={"max_num_seqs": Choices(values=[2, 4])})
    StudyStore(client, tenant=tenant).create(
        Study(
            id=identifier,
            created_at="2026-01-02T03:04:05.000Z",
            request=request,
            status="queued",
            stage="queued",
            progress=0.0,
            queue=_QUEUE,
        ),
        devices=devices,
    )


def _take(client: redis.Redis, queue: str = _QUEUE, *, most_devices: int = 1) -> WaitingRun | None:
    return take_next(client, queue, owner="node", most_devices=most_devices)


def _take_all(client: redis.Redis, queue: str = _QUEUE) -> list[str]:
    taken = iter(lambda: _take(client, queue), None)
    return [run.identifier for run in taken]


def test_the_first_of_a_late_tenant_waits_for_nobodys_backlog(client: redis.Redis) -> None:
    """One tenant queues fifteen; another one's first is the very next, then they alternate."""
    for number in range(15):
        _add(client, f"a{number:02}", tenant="a")
    assert _take(client) is not None
    for number in range(3):
        _add(client, f"z{number}", tenant="z")

    order = _take_all(client)

    assert order[:7] == ["z0", "a01", "z1", "a02", "z2", "a03", "a04"]
    assert [name for name in order if name[0] == "a"] == [f"a{n:02}" for n in range(1, 15)]


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(tenants=st.lists(st.sampled_from("abcd"), min_size=1, max_size=25))
def test_no_tenant_waits_longer_than_one_turn_of_each_other(
    client: redis.Redis, tenants: Sequence[str]
) -> None:
    """Between two turns of a tenant that waits every other one has at most one turn."""
    client.flushdb()
    for number, tenant in enumerate(tenants):
        _add(client, f"{number:03}", tenant=tenant)

    order = [tenants[int(name)] for name in _take_all(client)]

    assert sorted(order) == sorted(tenants)
    for place, tenant in enumerate(order):
        before = [p for p in range(place) if order[p] == tenant]
        between = order[before[-1] + 1 : place] if before else order[:place]
        assert len(between) == len(set(between))


def test_what_is_too_large_for_a_node_keeps_its_place_and_its_tenants_turn(
    client: redis.Redis,
) -> None:
    """A small node takes what it can serve; the first turn of a large one makes up for it."""
    _add(client, "a0", tenant="a", devices=4)
    _add(client, "a1", tenant="a")
    _add(client, "b2", tenant="b", devices=2)
    _add(client, "a3", tenant="a")
    _add(client, "a4", tenant="a", devices=10)

    small = [_take(client), _take(client), _take(client)]
    large = [_take(client, most_devices=8) for _ in range(3)]

    assert [run and run.identifier for run in small] == ["a1", "a3", None]
    assert [run and (run.identifier, run.devices) for run in large] == [("b2", 2), ("a0", 4), None]
    assert is_waiting(client, _store(client).waiting_run("a4"))


_SIZES = st.sampled_from([1, 2, 4, 10])


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    runs=st.lists(st.tuples(st.sampled_from("abc"), _SIZES), max_size=20),
    takers=st.lists(_SIZES, max_size=30),
)
def test_every_node_takes_the_fairest_of_what_it_can_serve(
    client: redis.Redis, runs: Sequence[tuple[str, int]], takers: Sequence[int]
) -> None:
    """Of the runs that fit it is the oldest of the tenant whose last turn is longest ago."""
    client.flushdb()
    for number, (tenant, devices) in enumerate(runs):
        _add(client, f"{number:03}", tenant=tenant, devices=devices)
    waiting = dict(enumerate(runs))
    turns: dict[str, int] = {}

    for turn, most in enumerate(takers, start=1):
        fitting = [number for number, (_, devices) in waiting.items() if devices <= most]
        expected = min(fitting, key=lambda n: (turns.get(waiting[n][0], 0), n), default=None)

        taken = _take(client, most_devices=most)

        assert (taken and taken.identifier) == (None if expected is None else f"{expected:03}")
        if expected is not None:
            turns[waiting.pop(expected)[0]] = turn


def test_queues_do_not_mix(client: redis.Redis) -> None:
    """A queue whose name begins like another's has runs of its own, whatever the name holds."""
    for queue in ("validate.node.a", "validate.node.ab", "validate.node.a\nx", 'validate.node."'):
        _add(client, f"in {queue!r}", tenant="t\n1", queue=queue)

    assert count_waiting(client, "validate.node.a", devices=1) == 1
    assert _take_all(client, "validate.node.a") == ["in 'validate.node.a'"]
    assert _take_all(client, "validate.node.a\nx") == ["in 'validate.node.a\\nx'"]
    assert count_waiting(client, "validate.node.ab", devices=1) == 1


def test_what_is_taken_is_claimed_in_the_same_step(client: redis.Redis) -> None:
    """There is no moment at which a run neither waits nor has an owner."""
    _add(client, "v1", tenant="a")
    _add_study(client, "s1", tenant="b")

    first, second = (_take(client) for _ in range(2))

    assert first == WaitingRun(queue=_QUEUE, tenant="b", identifier="s1", kind="study", turn=1)
    assert second == WaitingRun(queue=_QUEUE, tenant="a", identifier="v1", turn=2)
    assert _store(client).is_claimed("v1")
    assert StudyStore(client).is_claimed("s1")
    assert 0 < int(str(client.ttl(keys.validation_owner("v1")))) <= 15
    assert _take(client) is None
    assert heal(client, _store(client), now=_NOW) == []
    assert heal_studies(client, StudyStore(client), now=_NOW) == []


def test_studies_take_turns_with_validations(client: redis.Redis) -> None:
    """Both are runs of their tenant, in the order in which they were made."""
    for number in (0, 2):
        _add(client, f"{number}", tenant="a")
        _add_study(client, f"{number + 1}", tenant="a")
    _add(client, "9", tenant="b")

    assert _take_all(client) == ["0", "9", "1", "2", "3"]


def test_who_is_given_back_is_the_oldest_again(client: redis.Redis) -> None:
    """A run whose process was lost comes before what its tenant queued later."""
    for name in ("v1", "v2", "v3"):
        _add(client, name, tenant="a")
    assert _take(client) is not None
    client.delete(keys.validation_owner("v1"))

    assert heal(client, _store(client), now=_NOW) == ["v1"]

    found = _store(client).find("v1")
    assert found is not None
    assert (found.status, found.attempt) == ("queued", 2)
    assert _take_all(client) == ["v1", "v2", "v3"]


def test_what_an_earlier_release_queued_waits_again(client: redis.Redis) -> None:
    """It has no entry among the waiting and no size: it is queued anew, as a run on one device."""
    _add(client, "v1", tenant="a")
    client.delete(keys.waiting_runs())
    client.hdel(keys.validation("v1"), "devices")

    assert heal(client, _store(client), now=_NOW) == ["v1"]

    assert _take(client) == WaitingRun(queue=_QUEUE, tenant="a", identifier="v1", turn=1)


@pytest.mark.parametrize("to", ["cancelled", "failed", "timed_out"])
def test_what_has_ended_no_longer_waits(client: redis.Redis, to: str) -> None:
    """A run that ends in the queue is never taken."""
    _add(client, "v1", tenant="a")

    _store(client).change("v1", attempt=1, to=to)  # type: ignore[arg-type]  # one of the ends

    assert not is_waiting(client, _store(client).waiting_run("v1"))
    assert _take_all(client) == []


def test_every_waiting_run_has_a_ticket(client: redis.Redis) -> None:
    """Tickets that were lost are made anew, and not more of them than runs that wait."""
    runs = [_add(client, f"v{number}", tenant="a") for number in range(3)]
    queue = Queue(_QUEUE, connection=client, serializer=JSONSerializer)
    enqueue(client, runs[0])
    enqueue(client, runs[0])
    assert queue.count == 1

    heal(client, _store(client), now=_NOW)
    add_missing_tickets(client, {(_QUEUE, 1), ("validate.gpu.other", 1)})

    assert queue.count == 3
    assert Queue("validate.gpu.other", connection=client, serializer=JSONSerializer).count == 0


def test_tickets_lie_where_only_large_enough_nodes_draw_them(client: redis.Redis) -> None:
    """Each size has tickets of its own, also those that are made anew, of studies as well."""
    run = _add(client, "v1", tenant="a", devices=4)
    _add(client, "v2", tenant="a", devices=2)
    _add_study(client, "s1", tenant="a", devices=2)
    enqueue(client, run, devices=4)

    heal(client, _store(client), now=_NOW)
    heal_studies(client, StudyStore(client), now=_NOW)

    assert [_tickets(client, devices=devices) for devices in (1, 2, 4)] == [0, 2, 1]


@pytest.mark.parametrize("kind", ["validation", "study"])
def test_who_is_given_back_is_as_large_as_before(client: redis.Redis, kind: str) -> None:
    """A run whose process was lost waits, with a ticket, for a node that is large enough."""
    if kind == "study":
        _add_study(client, "r1", tenant="a", devices=4)
    else:
        _add(client, "r1", tenant="a", devices=4)
    taken = _take(client, most_devices=4)
    assert taken
    client.delete(keys.validation_owner("r1"), keys.study_owner("r1"))

    heal(client, _store(client), now=_NOW)
    heal_studies(client, StudyStore(client), now=_NOW)

    assert _tickets(client, devices=4) == 1
    assert _take(client, most_devices=2) is None
    again = _take(client, most_devices=4)
    assert again
    assert (again.identifier, again.devices, again.kind) == ("r1", 4, kind)


def _tickets(client: redis.Redis, *, devices: int) -> int:
    name = ticket_queue(_QUEUE, devices=devices)
    return int(Queue(name, connection=client, serializer=JSONSerializer).count)


def test_devices_are_given_in_the_order_of_turns(client: redis.Redis) -> None:
    """Who was taken first has its devices first, unless its process is gone."""
    here, other_queue, alone = "node", "validate.gpu.H100", "validate.node.node"
    for number, queue in enumerate((_QUEUE, _QUEUE, other_queue, alone)):
        _add(client, f"v{number}", tenant="a", queue=queue)
    first, second, elsewhere, pinned = (
        _take(client, queue) for queue in (_QUEUE, _QUEUE, other_queue, alone)
    )
    assert first
    assert second
    assert elsewhere
    assert pinned

    def overtakes(run: WaitingRun, owner: str = here) -> bool:
        return is_overtaking(client, run, owner=owner, node_queue=alone)

    assert not overtakes(first)
    assert overtakes(second)
    assert not overtakes(second, "another node")
    assert not overtakes(elsewhere)
    assert overtakes(pinned)
    has_devices(client, first)
    assert not overtakes(second)
    client.delete(keys.validation_owner("v1"))
    client.delete(keys.validation_owner("v2"))
    assert not overtakes(pinned)
