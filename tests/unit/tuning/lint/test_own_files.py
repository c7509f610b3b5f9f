"""What we wrote ourselves is read in full, and nothing is found in it that we did not say."""

import msgspec
import pytest

from api_schemas.check import CheckFile, CheckReport, CheckRequest
from api_schemas.hardware import Hardware
from api_schemas.recommendation import Advice, TuningRequest
from service.tuning.check import check
from service.tuning.lint.own_files import own_header
from service.tuning.lint.text import SourceFile
from service.tuning.recommend import recommend

_CASES = [
    (model, gpu, gpus, preset, release)
    for model, gpu, gpus in (
        ("Qwen/Qwen3-8B", "L40S", 1),
        ("Qwen/Qwen3-30B-A3B", "H100-SXM5-80GB", 4),
        ("openai/gpt-oss-120b", "MI300X", 2),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "L4", 2),
        ("deepseek-ai/DeepSeek-R1", "B200", 16),
        ("Qwen/Qwen3-0.6B", "CPU", 1),
    )
    for preset, release in (("chat", "0.33.0"), ("batch", "0.20.0"), ("rag", "0.11.0"))
]
_OF_THE_CLASS = frozenset({"PAR011"})
"""`LLM(...)` has no data-parallel ranks, so its layout may be another one."""


def advised(model: str, gpu: str, gpus: int, preset: str, release: str) -> Advice:
    """Return the recommendation for a preset on this hardware."""
    body = {
        "model": {"id": model},
        "hardware": {"gpu": gpu, "gpus_per_node": min(8, gpus), "nodes": max(1, gpus // 8)},
        "workload": {"preset": preset},
        "engine": {"version": release},
    }
    return recommend(msgspec.convert(body, TuningRequest))


def judged(path: str, content: str) -> CheckReport:
    """Return what the gate says of one file, told nothing else."""
    return check(CheckRequest(files=[CheckFile(path=path, content=content)]), today="2026-11-30")


@pytest.mark.parametrize("case", _CASES, ids=lambda case: "-".join(map(str, case)))
def test_every_file_that_we_write_passes_our_own_gate(case: tuple[str, str, int, str, str]) -> None:
    """Each format alone: release and hardware are known, and no finding is news."""
    advice = advised(*case)
    said = {finding.rule for finding in advice.findings}

    for file in advice.files:
        report = judged(file.path, file.content)

        assert report.verdict == "pass", (file.path, report.findings)
        allowed = said | _OF_THE_CLASS if file.path == "llm.py" else said
        assert {finding.rule for finding in report.findings} <= allowed, file.path
        for engine in report.engines:
            assert engine.version == case[-1], file.path
            assert engine.version_source != "newest"
            assert engine.fits is not False


@pytest.mark.parametrize(
    ("head", "hardware"),
    [
        (
            "# Setpoint: a/b with vLLM 0.20.0 on 2 x H100-SXM5-80GB.\n",
            Hardware(gpu="H100-SXM5-80GB", gpus_per_node=2),
        ),
        (
            "#!/usr/bin/env bash\n# Setpoint: a/b with vLLM 0.20.0 on 16 x B200.\n",
            Hardware(gpu="B200", gpus_per_node=8, nodes=2),
        ),
        ("# Setpoint: a/b with vLLM 0.20.0 on 1 x My own card.\n", None),
    ],
)
def test_a_header_names_release_and_hardware(head: str, hardware: Hardware | None) -> None:
    """A part that no catalogue holds is left out; the release still counts."""
    header = own_header(SourceFile("x", head))

    assert header is not None
    assert header.version.text == "0.20.0"
    assert header.hardware == hardware


@pytest.mark.parametrize(
    "content",
    [
        "vllm serve a/b\n",
        "# Setpoint: a/b with vLLM 99.0.0 on 1 x L40S.\n",
        "x\n" * 4000 + "# Setpoint: a/b with vLLM 0.20.0 on 1 x L40S.\n",
    ],
)
def test_other_files_have_no_header_of_ours(content: str) -> None:
    """Nor has one whose release nobody knows."""
    assert own_header(SourceFile("x", content)) is None


def test_what_is_stated_goes_before_the_header() -> None:
    """Another release and other hardware can be asked about with the file as it is."""
    serve = next(
        file
        for file in advised("Qwen/Qwen3-8B", "L40S", 1, "chat", "0.33.0").files
        if file.path == "serve.sh"
    )
    request = msgspec.convert(
        {
            "files": [{"path": serve.path, "content": serve.content}],
            "engine": {"version": "0.20.0"},
            "hardware": {"gpu": "T4"},
        },
        CheckRequest,
    )

    (engine,) = check(request, today="2026-11-30").engines

    assert (engine.version, engine.version_source) == ("0.20.0", "request")
    assert engine.fits is False


def test_prefix_caching_in_a_chart_is_not_called_needless() -> None:
    """The production stack switches it off where it is not asked for."""
    values = next(
        file
        for file in advised("Qwen/Qwen3-8B", "L40S", 1, "chat", "0.33.0").files
        if file.path == "values.yaml"
    )

    rules = {finding.rule for finding in judged(values.path, values.content).findings}

    assert "enablePrefixCaching: true" in values.content
    assert "KVC017" not in rules
