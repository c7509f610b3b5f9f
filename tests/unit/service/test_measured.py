"""What a stored recommendation says of its validations."""

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Percentiles
from api_schemas.validation import LoadPoint, Validation, ValidationPlan
from api_schemas.workload import ClosedLoop
from service.measured import summarise, with_validations

_BODY = b'{"id":"r1","config":{"max_num_seqs":4},"ratio":1.0,"validations":[],"measured":null}'
_ONE = Percentiles(mean=1.0, p50=1.0, p90=1.0, p95=1.0, p99=1.0)


def _point(label: str) -> LoadPoint:
    unknown = dict.fromkeys(
        (
            "goodput_requests_per_s",
            "kv_cache_usage_peak",
            "running_peak",
            "waiting_peak",
            "prefix_cache_hit_ratio",
            "queue_time_mean_ms",
        )
    )
    return LoadPoint(
        label=label,
        config=EngineConfig(),
        offered=ClosedLoop(max_concurrency=1),
        num_requests=1,
        seed=0,
        duration_s=1.0,
        completed=1,
        failed=0,
        ttft_ms=_ONE,
        tpot_ms=_ONE,
        itl_ms=_ONE,
        e2el_ms=_ONE,
        requests_per_s=1.0,
        output_tokens_per_s=1.0,
        preemptions=0,
        preemptions_per_request=0.0,
        predicted={},
        error_percent={},
        **unknown,
    )


def _validation(identifier: str, status: str, *labels: str) -> Validation:
    validation = Validation(
        id=identifier,
        recommendation_id="r1",
        mode="quick",
        plan=ValidationPlan(mode="quick"),
        status="queued",
        stage=status,
        progress=0.0,
        created_at="",
        load_points=[_point(label) for label in labels],
    )
    return msgspec.structs.replace(validation, status=status)


def test_without_validations_the_bytes_stay() -> None:
    """What was answered once is answered again, byte for byte."""
    assert with_validations(_BODY, []) is _BODY


def test_other_fields_keep_their_bytes() -> None:
    """Only the two fields change; numbers are not written anew."""
    body = with_validations(_BODY, [_validation("v1", "measuring")])

    assert body.startswith(b'{"id":"r1","config":{"max_num_seqs":4},"ratio":1.0,"validations":[{')
    fields = msgspec.json.decode(body)
    assert fields["validations"] == [
        {"id": "v1", "status": "measuring", "verdict": None, "url": "/validations/v1"}
    ]
    assert fields["measured"] is None


def test_the_newest_finished_one_is_what_was_measured() -> None:
    """A later one that still runs does not hide the last result."""
    newest_first = [_validation("v2", "measuring"), _validation("v1", "succeeded", "01-quick-1")]

    fields = msgspec.json.decode(with_validations(_BODY, newest_first))

    assert [row["id"] for row in fields["validations"]] == ["v2", "v1"]
    assert fields["measured"]["validation_id"] == "v1"
    assert fields["measured"]["load"]["label"] == "01-quick-1"


def test_the_load_shown_is_that_of_the_recommendation() -> None:
    """Steps of a walk, other settings and defaults do not stand for it."""
    knee = summarise(_validation("v1", "succeeded", "01-as-asked", "02-knee-4", "03-confirm-3"))
    compare = summarise(_validation("v1", "succeeded", "01-recommended", "02-defaults"))
    boot = summarise(_validation("v1", "succeeded"))

    assert knee.load is not None
    assert knee.load.label == "01-as-asked"
    assert compare.load is not None
    assert compare.load.label == "01-recommended"
    assert boot.load is None
