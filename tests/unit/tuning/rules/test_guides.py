"""What the tuning guides ask for, setting by setting, and what the engine makes of it."""

import msgspec
import pytest

from api_schemas.explanation import Finding
from api_schemas.workload import LognormalLength
from service.tuning.rules import check_rules, find_rule
from tests.unit.tuning.rules.both_ways import BOTH_WAYS
from tests.unit.tuning.rules.builders import (
    LLAMA_70B,
    findings,
    situation,
    workload,
)

_ROWS = {
    "gpu_memory_utilization": ("MEM001", "MEM002", "MEM003", "MEM006"),
    "block_size": ("KVC008", "KVC009", "KVC011"),
    "max_num_seqs": ("SCH007", "SCH008"),
    "max_num_batched_tokens": ("SCH001", "SCH002", "SCH004", "SCH005", "SCH006"),
    "enable_chunked_prefill": ("SCH009", "SCH010"),
    "enable_prefix_caching": ("KVC016", "KVC017"),
    "kv_cache_dtype": ("KVC002", "KVC006", "KVC007"),
    "enforce_eager": ("GRF001",),
    "quantization": ("QNT002", "QNT003", "QNT004", "QNT005", "QNT013"),
    "dtype": ("DTY003", "DTY005"),
    "max_model_len": ("MEM011", "MEM014", "MEM015"),
    "tensor_parallel_size": ("PAR001", "PAR008", "PAR009"),
    "load_format": ("PAR019",),
    "swap_space": ("OFF001", "OFF002"),
}
_TRIED = {rule for rule, _, _ in BOTH_WAYS}


@pytest.mark.parametrize(("setting", "rules"), _ROWS.items())
def test_each_row_of_the_guides_is_a_rule_tried_both_ways(
    setting: str, rules: tuple[str, ...]
) -> None:
    """A setting that the guides tune has rules that name the guides as a source."""
    for rule_id in rules:
        rule = find_rule(rule_id)
        assert rule is not None
        assert setting in rule.settings
        assert rule_id in _TRIED
    sources = [
        source.title
        for rule_id in rules
        if (rule := find_rule(rule_id)) is not None
        for source in rule.source
    ]
    assert any(title.startswith("Tuning guides") for title in sources)


def _worse_than_notes(found: list[Finding]) -> list[str]:
    return [finding.rule for finding in found if finding.severity != "note"]


def test_chat_settings_of_the_guide_pass() -> None:
    """0.90, 128 sequences, 2048 tokens, fp8 cache on one H100: nothing to warn of."""
    found = check_rules(
        situation(
            gpu_memory_utilization=0.90,
            max_num_seqs=128,
            max_num_batched_tokens=2048,
            kv_cache_dtype="fp8",
            tensor_parallel_size=1,
        )
    )

    assert _worse_than_notes(found) == []


def test_batch_settings_of_the_guide_pass() -> None:
    """Llama 3 70B in AWQ on four GPUs at 0.95 with 256 sequences and 16384 tokens a step."""
    found = check_rules(
        situation(
            model="casperhansen/llama-3-70b-instruct-awq",
            gpu="A100-SXM4-80GB",
            gpus=4,
            tensor_parallel_size=4,
            gpu_memory_utilization=0.95,
            max_num_seqs=256,
            max_num_batched_tokens=16_384,
            max_model_len=8192,
        )
    )

    assert [rule for rule in _worse_than_notes(found) if not rule.startswith("CAP")] == []


def test_real_time_and_batch_templates_are_not_refused() -> None:
    """(0.8, 4096, 48) and (0.95, 32768, 512) start; neither is called an error."""
    for share, budget, seqs in ((0.8, 4096, 48), (0.88, 12_288, 192), (0.95, 32_768, 512)):
        found = check_rules(
            situation(
                gpu_memory_utilization=share, max_num_batched_tokens=budget, max_num_seqs=seqs
            )
        )
        assert [finding.rule for finding in found if finding.severity == "error"] == []


def test_production_settings_of_the_third_guide_pass() -> None:
    """Eight H100, 0.90, 8192 tokens of length and of a step, chunked prefill."""
    found = check_rules(
        situation(
            model=LLAMA_70B,
            gpus=8,
            tensor_parallel_size=8,
            gpu_memory_utilization=0.90,
            max_model_len=8192,
            max_num_batched_tokens=8192,
            enable_chunked_prefill=True,
            dtype="auto",
        )
    )

    assert _worse_than_notes(found) == []


def test_blocks_of_eight_are_refused_with_what_to_do_instead() -> None:
    """The guides' advice for very many short requests stops every CUDA backend."""
    found = findings(situation(block_size=8), "KVC008")

    assert [finding.severity for finding in found] == ["error"]
    assert found[0].suggestion == "Leave block_size out."


@pytest.mark.parametrize(
    ("release", "rule", "severity"),
    [
        ("0.6.3", "OFF002", "note"),
        ("0.12.0", "OFF001", "warning"),
        ("0.18.0", "VER001", "error"),
        ("0.33.0", "VER001", "error"),
    ],
)
def test_swap_space_by_release(release: str, rule: str, severity: str) -> None:
    """Useful for little at first, without effect later, refused in the end."""
    found = [
        finding
        for finding in check_rules(situation(swap_space=6.0, release=release))
        if finding.setting == "swap_space"
    ]

    assert [(finding.rule, finding.severity) for finding in found] == [(rule, severity)]


def test_swap_space_names_its_successor() -> None:
    """Host memory for the cache is another setting now."""
    found = findings(situation(swap_space=6.0), "VER001")

    assert "kv_offloading_size" in (found[0].suggestion or "")


def test_eager_does_not_promise_a_faster_first_token() -> None:
    """The claim of one guide is answered, not repeated."""
    found = findings(situation(enforce_eager=True), "GRF001")

    assert "does not shorten time to first token" in found[0].message


def test_sequence_limit_leaves_the_production_share() -> None:
    """A cap above what the cache holds is answered with three quarters of that."""
    context = situation(gpu="L4", max_model_len=8192, max_num_seqs=256, load=workload(prompt=3000))

    found = findings(context, "SCH008")

    plan = context.plan
    assert plan is not None
    assert plan.kv is not None
    limit = plan.kv.num_blocks // plan.kv.request_blocks(3200)
    assert found[0].suggestion == f"{round(limit * 0.75)} leaves room for longer ones."


def test_p99_prompts_decide_the_length_not_their_mean() -> None:
    """A mean of 2000 with one prompt in a hundred of 12000 needs more than 8192."""
    load = msgspec.structs.replace(workload(), prompt_tokens=LognormalLength(mean=2000, p99=12_000))

    assert findings(situation(max_model_len=8192, load=load), "MEM014")
    assert findings(situation(max_model_len=14_000, load=load), "MEM014") == []
