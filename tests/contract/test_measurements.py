"""What the stores of measurements and studies promise, on every server that can hold them."""

import msgspec
import redis

from api_schemas.engine import Engine, EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.measurement import Calibration, Measurement, MeasurementSource, Observed
from api_schemas.model import ModelRef
from api_schemas.study import Choices, Study, StudyRequest, StudyTrial
from api_schemas.workload import ClosedLoop, Workload
from service.store.measurements import MeasurementFilters, MeasurementStore
from service.store.studies import StudyStore
from service.store.validations import Change


def _id(number: int) -> str:
    return f"019acfb4-5c00-7000-8000-{number:012d}"


def _measurement(number: int, **changes: object) -> Measurement:
    record = Measurement(
        id=_id(number),
        created_at="2026-01-02T03:04:05.000Z",
        digest=str(number),
        model=ModelRef(id="a/model"),
        hardware=Hardware(gpu="L4"),
        engine=Engine(version="0.33.0"),
        workload=Workload(prompt_tokens=8, output_tokens=8, arrivals=ClosedLoop(max_concurrency=1)),
        observed=Observed(requests_per_s=1.0),
        source=MeasurementSource(),
        cpu=False,
        configuration="key",
    )
    return msgspec.structs.replace(record, **changes)


def _calibration(configuration: str, **changes: object) -> Calibration:
    record = Calibration(
        configuration=configuration,
        version="1",
        model="a/model",
        gpu="L4",
        engine_version="0.33",
        tensor_parallel_size=1,
        precision="bfloat16",
        key={},
        status="used",
        reason="because",
        factors={},
        band_factors={},
        residuals={},
        range=None,
        measurement_ids=[],
        coefficients_version="1",
        created_at="",
    )
    return msgspec.structs.replace(record, **changes)


def _study() -> Study:
    return Study(
        id=_id(1),
        created_at="2026-01-02T03:04:05.000Z",
        request=StudyRequest(recommendation_id="r", space={"max_num_seqs": Choices(values=[1, 2])}),
        status="queued",
        stage="queued",
        progress=0.0,
    )


def _trial(number: int, **changes: object) -> StudyTrial:
    trial = StudyTrial(
        number=number, origin="search", state="running", parameters={}, config=EngineConfig()
    )
    return msgspec.structs.replace(trial, **changes)


def test_content_is_stored_once(client: redis.Redis) -> None:
    """The second record of the same content is the first one."""
    store = MeasurementStore(client)
    first = store.save(_measurement(1), gpu="L4")

    again = store.save(_measurement(2, digest="1"), gpu="L4")

    assert again == first
    assert store.find(_id(2)) is None
    assert store.page(MeasurementFilters(), limit=10).records == [first]


def test_pages_are_complete_and_newest_first(client: redis.Redis) -> None:
    """Filters and pages together show every record that matches exactly once."""
    store = MeasurementStore(client)
    for number in range(7):
        store.save(_measurement(number, cpu=number % 2 == 1), gpu="L4")
    filters = MeasurementFilters(gpu="L4", backend="gpu")

    seen: list[str] = []
    after = None
    while True:
        page = store.page(filters, limit=2, after=after)
        seen += [record.id for record in page.records]
        after = page.last_id
        if after is None:
            break

    assert seen == [_id(number) for number in (6, 4, 2, 0)]


def test_a_deleted_measurement_leaves_nothing(client: redis.Redis) -> None:
    """Its index entries go with it, and the same content may come again."""
    store = MeasurementStore(client)
    store.save(_measurement(1), gpu="L4")

    assert store.delete(_id(1)) is not None
    assert store.delete(_id(1)) is None
    assert list(client.scan_iter("*")) == []
    assert store.save(_measurement(3, digest="1"), gpu="L4").id == _id(3)


def test_a_configuration_has_one_calibration(client: redis.Redis) -> None:
    """A newer fit takes the place of the one before."""
    store = MeasurementStore(client)
    store.save_calibration(_calibration("b"))
    store.save_calibration(_calibration("a"))

    store.save_calibration(_calibration("b", version="2"))

    found = [(c.configuration, c.version) for c in store.calibrations_of("L4")]
    assert found == [("a", "1"), ("b", "2")]
    assert store.calibrated_gpus() == ["L4"]
    assert store.calibrations_of("H100") == []


def test_an_ended_study_never_changes(client: redis.Redis) -> None:
    """After its end neither state nor trials can be written, by whomever."""
    store = StudyStore(client)
    store.create(_study())
    assert store.unfinished() == [_id(1)]

    assert store.change(_id(1), attempt=1, status="running", trial=_trial(0)) is Change.DONE
    assert store.change(_id(1), attempt=1, status="succeeded") is Change.DONE
    ended = store.find(_id(1))

    assert store.change(_id(1), attempt=1, status="running") is Change.FINISHED
    assert store.change(_id(1), attempt=1, trial=_trial(1)) is Change.FINISHED
    assert store.find(_id(1)) == ended
    assert store.unfinished() == []


def test_a_process_that_was_replaced_can_no_longer_write(client: redis.Redis) -> None:
    """Once a lost study went to another attempt, the first one's writes are refused."""
    store = StudyStore(client)
    store.create(_study())
    store.change(_id(1), attempt=1, next_attempt=2, status="queued")

    assert store.change(_id(1), attempt=1, trial=_trial(0)) is Change.STALE
    assert store.change(_id(1), attempt=2, trial=_trial(0)) is Change.DONE
    assert store.change(_id(9), attempt=1) is Change.MISSING


def test_trials_come_back_in_order(client: redis.Redis) -> None:
    """A trial is written again as it goes on, and all are read by number."""
    store = StudyStore(client)
    store.create(_study())
    for number in (10, 2, 0):
        store.change(_id(1), attempt=1, trial=_trial(number))
    store.change(_id(1), attempt=1, trial=_trial(2, state="complete"))

    study = store.find(_id(1))

    assert study is not None
    assert [(t.number, t.state) for t in study.trials] == [
        (0, "running"),
        (2, "complete"),
        (10, "running"),
    ]
