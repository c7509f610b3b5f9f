"""What a validation measures on a node."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from api_schemas.engine import EngineConfig
from api_schemas.recommendation import Recommendation, TuningRequest
from api_schemas.validation import QueueChoice, ValidationPlan
from api_schemas.worker import VllmEnvironment, WorkerDevice, WorkerNode
from api_schemas.workload import ClosedLoop, PoissonArrivals
from service.advice import as_recommendation
from service.tuning.engine.versions import parse_version
from service.tuning.models.catalogue import resolve_model
from service.tuning.played_run import PlayedRun
from service.tuning.recommend import recommend
from workers.subject import Subject, choose_environment, choose_subject
from workers.tiny_model import CONFIG, write_tiny_model
from workers.traffic import Load, make_load

_CPU = WorkerDevice(name="cpu", uuid="CPU-x", memory_gib=16.0, free_gib=8.0)


def _environment(version: str, *, is_cpu: bool = True) -> VllmEnvironment:
    return VllmEnvironment(version=version, path=f"/{version}/vllm", is_cpu=is_cpu)


def _recommendation(**changes: object) -> Recommendation:
    body = {
        "model": {"id": "tiny", "config": CONFIG},
        "hardware": {"gpu": "cpu", "host_memory_gib": 2},
        "workload": {
            "prompt_tokens": 64,
            "output_tokens": 64,
            "arrivals": {"kind": "closed_loop", "max_concurrency": 8},
        },
        "engine": {"version": "0.32.0"},
    } | changes
    advice = recommend(msgspec.convert(body, TuningRequest))
    return as_recommendation(advice, identifier="r1", created_at="", labels={})


def _gpus(number: int) -> list[WorkerDevice]:
    """Return GPUs of which the last two are linked."""
    uuids = [f"GPU-{place}" for place in range(number)]
    last = set(uuids[-2:])
    return [
        WorkerDevice(
            name="NVIDIA H100 80GB HBM3",
            uuid=uuid,
            memory_gib=80.0,
            free_gib=80.0,
            nvlink_peers=sorted(last - {uuid}) if uuid in last else [],
        )
        for uuid in uuids
    ]


def _subject(
    recommendation: Recommendation,
    *,
    version: str = "0.32.0",
    model_path: str | None = None,
    devices: Sequence[WorkerDevice] = (_CPU,),
) -> Subject:
    node = WorkerNode(
        node="n",
        started_at="",
        heartbeat_at="",
        setpoint_version="0",
        driver=None,
        devices=list(devices),
        environments=[_environment(version), _environment(version, is_cpu=False)],
        queues=[],
    )
    plan = ValidationPlan(mode="boot", model_path=model_path, queue=QueueChoice(gpu="cpu"))
    return choose_subject(
        recommendation, plan, node=node, devices=list(devices), resolve_model=resolve_model
    )


def test_the_asked_release_wins_else_the_nearest() -> None:
    """Of several installed ones the exact release is taken, or the one closest to it."""
    installed = [_environment(v) for v in ("0.28.0", "0.31.1", "0.32.0")]
    gpu_build = _environment("0.32.0", is_cpu=False)

    def chosen(version: str) -> str:
        wanted = parse_version(version)
        return choose_environment([*installed, gpu_build], wanted=wanted, on_cpu=True).version

    assert chosen("0.28.0") == "0.28.0"
    assert chosen("0.33.0") == "0.32.0"
    assert chosen("0.27.0") == "0.28.0"


def test_a_gpu_build_is_no_use_on_a_cpu() -> None:
    """Without an environment for the kind of device nothing can be measured."""
    with pytest.raises(LookupError, match="SETPOINT_VLLM_ENVS"):
        choose_environment(
            [_environment("0.32.0", is_cpu=False)], wanted=parse_version("0.32.0"), on_cpu=True
        )


def test_what_is_as_asked_is_said_to_be(tmp_path: Path) -> None:
    """Hardware, release and model that match may prove the recommendation."""
    model_path = write_tiny_model(tmp_path)

    subject = _subject(_recommendation(), model_path=str(model_path))

    assert subject.as_asked is True
    assert subject.notes == []
    assert subject.model_path == str(model_path)


def test_another_model_on_disk_is_noticed(tmp_path: Path) -> None:
    """A folder with another config is measured, and cannot give a pass."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 4}))

    subject = _subject(_recommendation(), model_path=str(tmp_path))

    assert subject.as_asked is False
    assert subject.model.config is not None
    assert subject.model.config["num_hidden_layers"] == 4
    assert any("model_path" in note for note in subject.notes)


def test_another_release_and_other_hardware_are_noticed() -> None:
    """Each difference is a note, and any of them forbids a pass."""
    recommendation = _recommendation(hardware={"gpu": "L4"}, engine={"version": "0.33.0"})

    subject = _subject(recommendation)

    assert subject.as_asked is False
    assert len(subject.notes) == 2
    assert subject.hardware.gpu == "cpu"


def test_a_pool_on_the_cpu_is_the_planned_one_as_far_as_memory_allows() -> None:
    """The KV cache is what was predicted, never more than half of the free memory."""
    recommendation = _recommendation()
    subject = _subject(recommendation)
    planned = recommendation.estimate.memory
    assert planned is not None

    launch = subject.launch(recommendation.config, predicted=recommendation.estimate)
    crowded = msgspec.structs.replace(
        subject, devices=[msgspec.structs.replace(_CPU, free_gib=0.5)]
    )
    tight = crowded.launch(recommendation.config, predicted=recommendation.estimate)

    pool = launch.config.kv_cache_memory_bytes
    assert pool is not None
    assert pool == pytest.approx(planned.kv_cache_gib * 2**30, rel=0.01)
    assert tight.config.kv_cache_memory_bytes == 2**28


def test_a_run_is_predicted_with_its_own_beginning_and_end() -> None:
    """What is set beside a measured run is that run: eight requests are not a service."""
    subject = _subject(_recommendation())
    config = subject.recommendation.config
    load = make_load(
        subject.workload,
        PoissonArrivals(requests_per_s=20.0),
        num_requests=8,
        seed=1,
        max_model_len=512,
    )
    played = PlayedRun(
        prompt_tokens=(64,) * 8,
        output_tokens=(64,) * 8,
        sent_s=tuple((place + 1) / 20 for place in range(8)),
        offered_requests_per_s=20.0,
    )

    steady = subject.predict(config, arrivals=load.arrivals)
    run = subject.predict_run(config, played, load=load)

    assert steady is not None
    assert steady.performance is not None
    assert run is not None
    assert run.performance is not None
    assert steady.performance.requests_per_s == pytest.approx(20.0, rel=0.01)
    span_s = 8 / 20 + run.performance.e2el_ms.p50 / 1000
    assert run.performance.requests_per_s == pytest.approx(8 / span_s, rel=0.05)


def test_conversations_are_predicted_by_their_own_lengths() -> None:
    """A soak's prompts are not those of the workload; the load states none to draw from."""
    subject = _subject(_recommendation())
    load = Load(
        arrivals=ClosedLoop(max_concurrency=2),
        prompt_tokens=None,
        output_tokens=None,
        shared_prefix_tokens=0,
        num_requests=4,
        seed=1,
    )
    short, long = (
        PlayedRun(prompt_tokens=(tokens,) * 4, output_tokens=(16,) * 4, max_concurrency=2)
        for tokens in (16, 400)
    )

    config = subject.recommendation.config
    few, many = (subject.predict_run(config, played, load=load) for played in (short, long))

    assert few is not None
    assert few.performance is not None
    assert many is not None
    assert many.performance is not None
    assert many.performance.total_tokens_per_s > few.performance.total_tokens_per_s
    assert many.performance.ttft_ms.p50 > few.performance.ttft_ms.p50


def test_a_trial_runs_on_as_many_of_the_leased_devices_as_it_takes() -> None:
    """A study leases for its largest layout; a smaller trial gets those that are best connected.

    What is predicted for a larger one than was asked for knows all the devices that there are.
    """
    on_one = _recommendation(
        model={"id": "Qwen/Qwen3-8B"}, hardware={"gpu": "H100-SXM5-80GB", "gpus_per_node": 1}
    )
    subject = _subject(on_one, devices=_gpus(4))

    def used(size: int) -> list[str]:
        found = subject.devices_of(EngineConfig(tensor_parallel_size=size))
        return [device.uuid for device in found]

    assert used(1) == ["GPU-0"]
    assert used(2) == ["GPU-2", "GPU-3"]
    assert used(4) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert subject.as_asked
    four = subject.predict(EngineConfig(tensor_parallel_size=4), arrivals=subject.workload.arrivals)
    assert four is not None
    assert four.fits
    assert four.performance is not None
