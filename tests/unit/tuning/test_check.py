"""The gate: one finding per cause, verdicts, policies."""

import pytest
from msgspec.structs import replace

from api_schemas.base import Json
from api_schemas.check import (
    Baseline,
    BaselineFigures,
    CheckFile,
    CheckReport,
    CheckRequest,
    Policy,
    Waiver,
)
from api_schemas.engine import Engine, EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.measurement import CalibratedBy
from api_schemas.model import ModelRef
from api_schemas.slo import LatencyTarget
from api_schemas.workload import Workload
from service.tuning.check import check
from service.tuning.days import day_number
from service.tuning.errors import InvalidRequest, UnknownEngineVersion, UnknownModel
from service.tuning.policy import Evidence, judge_policy, measured_on
from tests.unit.tuning.lint.asked import TODAY, checked, checked_command, found

_H100 = Hardware(gpu="H100-SXM5-80GB")


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ("--swap-space 4", "VER001"),
        ("--num-scheduler-steps 8", "VER001"),
        ("--enforce-eager false", "CLI002"),
        ("--enable-prefix-caching=false", "CLI002"),
        ("--nonsense 1", "CLI001"),
        ("--max-num-seqs 1k", "CLI004"),
        ("--max-num-seqs", "CLI003"),
        ("--dtype bf16", "DTY006"),
        ("--max-num 8", "CLI006"),
        ("extra", "CLI009"),
        ("--quantization nonsense", "QNT010"),
        ("--gpu-memory-utilization 1.5", "MEM001"),
    ],
)
def test_each_mistake_is_one_finding(arguments: str, rule: str) -> None:
    """A mistake gives exactly one error, at its place in the command."""
    command = f"vllm serve Qwen/Qwen3-8B {arguments}"
    report = checked_command(command)
    errors = [finding for finding in report.findings if finding.severity == "error"]

    assert [finding.rule for finding in errors] == [rule]
    assert report.verdict == "fail"
    assert errors[0].location is not None
    assert errors[0].location.column >= command.index(arguments)


def test_a_sound_command_passes() -> None:
    """Nothing but the note on the assumed release is said."""
    report = checked_command("vllm serve Qwen/Qwen3-8B --max-model-len 8192")

    assert (report.verdict, [finding.rule for finding in report.findings]) == ("pass", ["CHK002"])


def test_abbreviations_and_repetitions_are_warned_of() -> None:
    """What the parser accepts silently is a warning."""
    report = checked_command("vllm serve m --max-num-seq 8 --seed 1 --seed 2")

    assert found(report, "CLI007")[0].severity == "warning"
    assert found(report, "CLI008")[0].severity == "warning"


def test_hardware_makes_it_judge_memory() -> None:
    """With a GPU the answer holds an estimate, and what does not fit fails."""
    command = "vllm serve meta-llama/Llama-3.3-70B-Instruct --engine"
    small = checked_command(command.removesuffix(" --engine"), hardware=_H100)
    split = checked_command(command.removesuffix(" --engine") + " -tp 4", hardware=_H100)

    assert (small.verdict, small.engines[0].fits) == ("fail", False)
    assert (split.verdict, split.engines[0].fits) == ("pass", True)
    assert split.estimate is not None
    assert split.engines[0].figures["kv_cache_tokens"] > 0


def test_unresolved_settings_leave_memory_open() -> None:
    """A variable for the parallel size gives no estimate, and no verdict on memory."""
    report = checked_command("vllm serve Qwen/Qwen3-8B -tp $TP", hardware=_H100)

    assert report.verdict == "inconclusive"
    assert report.engines[0].fits is None


def test_an_unknown_model_in_a_file_is_a_note_in_the_request_a_refusal() -> None:
    """Files may name what nobody knows; a request may not."""
    report = checked_command("vllm serve nobody/knows", hardware=_H100)

    assert found(report, "CHK001")
    assert report.verdict == "inconclusive"
    with pytest.raises(UnknownModel):
        checked_command("vllm serve m", model=ModelRef(id="nobody/knows"))
    with pytest.raises(UnknownEngineVersion):
        checked_command("vllm serve m", engine=Engine(version="9.9.9"))


def test_exactly_one_thing_is_checked() -> None:
    """Files, command and configuration exclude each other."""
    with pytest.raises(InvalidRequest):
        check(CheckRequest(), today=TODAY)
    with pytest.raises(InvalidRequest):
        check(CheckRequest(command="vllm serve m", config=EngineConfig()), today=TODAY)


def test_a_configuration_is_checked_as_such() -> None:
    """Settings without a file get the same findings."""
    request = CheckRequest(config=EngineConfig(swap_space=4.0, enforce_eager=True))
    report = check(request, today=TODAY)

    assert found(report, "VER001")
    assert found(report, "GRF001")


_WAIVER = Waiver(rule="VER001", until="2026-06-15", reason="moves next week", owner="team")


def test_a_waiver_covers_until_its_last_day() -> None:
    """On the day itself it holds, after it the finding fails again and the end is said."""
    request = CheckRequest(
        command="vllm serve Qwen/Qwen3-8B --swap-space 4", policy=Policy(waivers=[_WAIVER])
    )

    standing, ended = check(request, today="2026-06-15"), check(request, today="2026-06-16")

    assert (standing.verdict, standing.counts.waived) == ("pass", 1)
    assert standing.waived[0].owner == "team"
    assert (ended.verdict, ended.counts.waived) == ("fail", 0)
    assert found(ended, "POL001")


def test_a_waiver_can_be_bound_to_files() -> None:
    """A pattern limits it to the files that match."""
    content = "vllm serve Qwen/Qwen3-8B --swap-space 4"
    waiver = Waiver(rule="VER001", until=TODAY, reason="old", path="legacy/*.sh")
    policy = Policy(waivers=[waiver])

    assert checked("legacy/a.sh", content, policy=policy).verdict == "pass"
    assert checked("new/a.sh", content, policy=policy).verdict == "fail"


def test_warnings_fail_when_the_policy_says_so() -> None:
    """fail_on chooses the severity that fails."""
    command = "vllm serve Qwen/Qwen3-8B --enforce-eager"

    assert checked_command(command).verdict == "pass"
    assert checked_command(command, policy=Policy(fail_on="warning")).verdict == "fail"


@pytest.mark.parametrize(
    "policy",
    [
        Policy(require_measured_within_days=30),
        Policy(min_confidence="high"),
        Policy(targets=[LatencyTarget(metric="ttft", percentile=95, limit_ms=500)]),
    ],
)
def test_missing_evidence_is_inconclusive(policy: Policy) -> None:
    """A policy that asks for more than is known gives no pass."""
    report = checked_command("vllm serve Qwen/Qwen3-8B", policy=policy)

    assert report.verdict == "inconclusive"
    assert report.reasons


def test_ceilings_fail() -> None:
    """More GPUs than allowed, or another release, fail."""
    assert checked_command("vllm serve m -tp 8", policy=Policy(max_gpus=4)).verdict == "fail"
    other = Policy(allowed_engine_versions=["0.30.0"])
    assert found(checked_command("vllm serve m", policy=other), "POL002")


def test_targets_are_judged_under_a_load() -> None:
    """A limit far below the prediction is missed, one far above it is met."""
    for limit_ms, verdict in ((1.0, "fail"), (60_000.0, "pass")):
        report = checked_command(
            "vllm serve Qwen/Qwen3-8B --max-model-len 8192",
            hardware=_H100,
            workload=Workload(preset="chat"),
            policy=Policy(targets=[LatencyTarget(metric="ttft", percentile=50, limit_ms=limit_ms)]),
        )

        assert report.verdict == verdict, report.reasons
        assert bool(found(report, "SLO001")) is (verdict == "fail")


def test_the_same_request_gives_the_same_bytes() -> None:
    """Nothing depends on order or time but the day that was given."""
    command = "vllm serve m --swap-space 4 --nonsense 1 --seed 1 --seed 2"

    assert checked_command(command) == checked_command(command)


def _baseline(report: CheckReport) -> Baseline:
    engines = [BaselineFigures(engine=e.title, figures=e.figures) for e in report.engines]
    return Baseline(name="main", fingerprints=report.fingerprints, engines=engines)


def test_known_findings_do_not_fail_against_a_baseline() -> None:
    """Only what the baseline did not have fails."""
    old = checked_command("vllm serve m --swap-space 4")
    same = checked_command("vllm serve m --swap-space 4", baseline=_baseline(old))
    worse = checked_command("vllm serve m --swap-space 4 --nonsense 1", baseline=_baseline(old))

    assert (old.verdict, same.verdict, worse.verdict) == ("fail", "pass", "fail")
    assert worse.reasons[0].startswith("CLI001")


def test_a_figure_fails_only_when_its_whole_band_is_worse() -> None:
    """A much smaller cache fails, one within the band of the prediction does not."""
    model = "vllm serve Qwen/Qwen3-8B --max-model-len 8192 --gpu-memory-utilization"
    old = checked_command(f"{model} 0.9", hardware=_H100)

    less = checked_command(f"{model} 0.5", hardware=_H100, baseline=_baseline(old))
    near = checked_command(f"{model} 0.895", hardware=_H100, baseline=_baseline(old))
    more = checked_command(f"{model} 0.92", hardware=_H100, baseline=_baseline(old))

    assert found(less, "POL003")
    assert [report.verdict for report in (less, near, more)] == ["fail", "pass", "pass"]


def test_an_upgrade_reports_refusals_settled_mistakes_and_defaults() -> None:
    """From 0.8.5 to 0.33.0: what is gone, what works now, and which defaults moved."""
    command = "vllm serve Qwen/Qwen3-8B --swap-space 4 --stream-interval 2 --max-num-seqs 64"
    to = Engine(version="0.33.0")

    report = checked_command(command, from_version="0.8.5", engine=to)
    measured = checked_command(command, from_version="0.8.5", engine=to, hardware=_H100)

    assert "vLLM 0.8.5 takes it" in found(report, "VER001")[0].message
    assert [finding.setting for finding in found(report, "UPG002")] == ["stream_interval"]
    moved = {finding.setting for finding in found(report, "UPG001")}
    assert {"gpu_memory_utilization", "async_scheduling"} <= moved
    assert "max_num_seqs" not in moved
    exact = {finding.setting: finding for finding in found(measured, "UPG001")}
    assert exact["gpu_memory_utilization"].suggestion == "To keep it: --gpu-memory-utilization 0.9"


def test_an_upgrade_within_the_same_defaults_reports_none() -> None:
    """Between neighbours with the same defaults nothing is said."""
    report = checked_command("vllm serve m", from_version="0.30.0", engine=Engine(version="0.31.0"))

    assert not found(report, "UPG001")
    assert not found(report, "UPG002")


def test_measurements_age_by_the_day_that_is_given() -> None:
    """Identifiers of measurements carry their day, and the policy's span is counted from today."""
    report = checked_command("vllm serve Qwen/Qwen3-8B --max-model-len 8192", hardware=_H100)
    assert report.estimate is not None
    assert measured_on(report.estimate) is None
    basis = CalibratedBy(version="v", measurement_ids=["019acfb4-5c00-7a2b-8c11-0242ac120002"])
    provenance = replace(report.estimate.provenance, calibration=basis)
    learned = replace(report.estimate, basis="calibrated", provenance=provenance)
    evidence = [Evidence(title="e", version="0.33.0", gpus=1, estimate=learned, missing=())]
    policy = Policy(require_measured_within_days=30, min_confidence="high")

    day = measured_on(learned)
    fresh, stale = (
        judge_policy(policy, [], evidence=evidence, today=today)
        for today in ("2025-12-20", "2026-02-01")
    )

    assert day == day_number("2025-11-29")
    assert (fresh.verdict, stale.verdict) == ("pass", "inconclusive")


@pytest.mark.parametrize(
    ("path", "content", "suggestion"),
    [
        ("a.sh", "vllm serve m --swap-space 4", "Remove --swap-space."),
        ("a.sh", "vllm serve m --guided-decoding-backend x", "--structured-outputs-config.backend"),
        ("vllm.yaml", "model: m\nswap-space: 4\n", "Remove swap-space."),
        ("a.py", "from vllm import LLM\nLLM('m', swap_space=4)\n", "Remove swap_space."),
    ],
)
def test_suggestions_speak_the_files_language(path: str, content: str, suggestion: str) -> None:
    """Flags are suggested on command lines, keys in configuration files, names in Python."""
    (gone,) = found(checked(path, content), "VER001")

    assert suggestion in (gone.suggestion or "")


def test_sizes_can_be_pasted() -> None:
    """The largest length that fits comes as a flag with its value."""
    model = "meta-llama/Llama-3.3-70B-Instruct"
    command = f"vllm serve {model} -tp 2 --gpu-memory-utilization 0.95"
    report = checked_command(command, hardware=_H100)
    (too_long,) = found(report, "CAP003")

    assert "In this file: --max-model-len " in (too_long.suggestion or "")


def _together(command: str, settings: str, **changes: Json) -> CheckReport:
    """Return the report on a command and the configuration file beside it."""
    files = [
        CheckFile(path="deploy/serve.sh", content=command),
        CheckFile(path="deploy/vllm.yaml", content=settings),
    ]
    return check(CheckRequest(files=files, **changes), today=TODAY)


def test_a_command_is_judged_with_its_configuration_file() -> None:
    """The file's settings count, the command line wins, and the file is no engine of its own."""
    report = _together(
        "vllm serve --config /etc/vllm.yaml --max-num-seqs 64",
        "model: Qwen/Qwen3-8B\nmax-model-len: 8192\nmax-num-seqs: 32\n",
        hardware=_H100,
    )
    (engine,) = report.engines

    assert engine.model == "Qwen/Qwen3-8B"
    assert (engine.config.max_model_len, engine.config.max_num_seqs) == (8192, 64)
    assert (engine.fits, engine.unresolved) == (True, [])
    assert report.verdict == "pass"


def test_a_model_of_the_command_replaces_the_files() -> None:
    """As in vLLM, what stands after serve is the model."""
    report = _together("vllm serve a/b --config vllm.yaml", "model: c/d\nmax-num-seqs: 32\n")

    assert [(engine.model, engine.config.max_num_seqs) for engine in report.engines] == [
        ("a/b", 32)
    ]


def test_a_mistake_in_the_configuration_file_is_found_there() -> None:
    """What is wrong in the file keeps its line, and fails the command that names it."""
    report = _together("vllm serve a/b --config vllm.yaml", "max-num-seqs: 32\nswap-space: 4\n")
    places = [finding.location for finding in found(report, "VER001")]

    assert ("deploy/vllm.yaml", 2) in [(place.file, place.line) for place in places if place]
    assert report.verdict == "fail"


def test_an_unknown_configuration_file_leaves_the_check_open() -> None:
    """Without the file nobody knows what runs, so memory is not judged."""
    report = checked_command("vllm serve Qwen/Qwen3-8B --config vllm.yaml", hardware=_H100)

    assert report.verdict == "inconclusive"
    assert report.estimate is None
    assert "vllm.yaml" in found(report, "TPL001")[0].message


def test_an_attached_configuration_file_is_warned_of() -> None:
    """With --config=FILE vLLM starts and reads nothing."""
    report = checked_command("vllm serve Qwen/Qwen3-8B --config=vllm.yaml", hardware=_H100)

    assert [finding.severity for finding in found(report, "CFG002")] == ["warning"]
    assert report.engines[0].unresolved == []
