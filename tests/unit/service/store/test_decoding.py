"""Records of other releases."""

import msgspec
import pytest

from api_schemas.study import Choices, Study, StudyRequest
from api_schemas.validation import Validation, ValidationPlan, Webhook
from api_schemas.worker import VllmEnvironment, WorkerDevice, WorkerNode
from service.store.decoding import UnreadableRecord, decode_record

_DEVICE = WorkerDevice(name="L4", uuid="GPU-1", memory_gib=24.0, free_gib=24.0)
_NODE = WorkerNode(
    node="n",
    started_at="",
    heartbeat_at="",
    setpoint_version="0",
    driver=None,
    devices=[_DEVICE, _DEVICE],
    environments=[VllmEnvironment(version="0.33.0", path="/v", is_cpu=False)],
    queues=[],
)
_VALIDATION = Validation(
    id="v1",
    recommendation_id="r1",
    mode="boot",
    plan=ValidationPlan(
        mode="boot",
        webhook=Webhook(url="https://example.org", secret_ref="s"),  # noqa: S106  # a name
    ),
    status="queued",
    stage="queued",
    progress=0.0,
    created_at="2026-01-02T03:04:05.000Z",
)
_STUDY = Study(
    id="s1",
    created_at="2026-01-02T03:04:05.000Z",
    request=StudyRequest(recommendation_id="r1", space={"max_num_seqs": Choices(values=[2])}),
    status="queued",
    stage="queued",
    progress=0.0,
)


def _raw(record: object) -> dict[str, object]:
    raw: dict[str, object] = msgspec.json.decode(msgspec.json.encode(record))
    return raw


def test_what_a_later_release_added_is_left_out() -> None:
    """At the top, inside shared nouns, in every item of a list, behind a name of a map."""
    node, validation, study = map(_raw, (_NODE, _VALIDATION, _STUDY))
    for device in node["devices"]:  # type: ignore[attr-defined]
        device |= {"colour": "green", "slots": [1]}
    validation["later"] = 1
    validation["plan"] |= {"priority": 3}  # type: ignore[operator]
    validation["plan"]["webhook"] |= {"format": "x"}  # type: ignore[index]
    study["request"]["space"]["max_num_seqs"] |= {"weights": [1]}  # type: ignore[index]
    study["request"] |= {"sampler": "x"}  # type: ignore[operator]

    assert decode_record(msgspec.json.encode(node), WorkerNode) == _NODE
    assert decode_record(msgspec.json.encode(validation), Validation) == _VALIDATION
    assert decode_record(msgspec.json.encode(study), Study) == _STUDY


def test_what_an_earlier_release_did_not_know_has_its_default() -> None:
    """Fields that came later are absent in old records."""
    raw = _raw(_VALIDATION)
    for name in ("notes", "queue", "attempt", "traceparent", "schema_version", "command"):
        del raw[name]

    assert decode_record(msgspec.json.encode(raw), Validation) == _VALIDATION


@pytest.mark.parametrize("change", [{"mode": "marathon"}, {"id": None}, {"plan": {}}])
def test_what_cannot_be_read_says_so(change: dict[str, object]) -> None:
    """A value that this release has no word for, or that is missing, is not guessed."""
    with pytest.raises(UnreadableRecord):
        decode_record(msgspec.json.encode(_raw(_VALIDATION) | change), Validation)

    with pytest.raises(UnreadableRecord):
        decode_record(b"{", Validation)
