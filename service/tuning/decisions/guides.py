"""Where common tuning advice differs from this recommendation, and why."""

from collections.abc import Iterator

from api_schemas.explanation import Finding, Source
from service.tuning.decisions.case import Case
from service.tuning.decisions.sources import vllm
from service.tuning.search.figures import figure

_LONG_PROMPT_TOKENS = 16_000
_COMMON_SEQUENCES = 256


def guide_findings(case: Case) -> list[Finding]:
    """Return a note for each piece of common advice that this case does not follow."""
    looks = (_sequences, _block_size, _eager, _swap, _quantization)
    return [finding for look in looks for finding in look(case)]


def _note(rule: str, setting: str, message: str, *, suggestion: str, source: Source) -> Finding:
    return Finding(
        rule=rule,
        severity="note",
        setting=setting,
        message=message,
        suggestion=suggestion,
        source=[source, Source(title="Tuning guides 1 to 3", where=setting)],
    )


def _sequences(case: Case) -> Iterator[Finding]:
    """Note that the common 256 would overflow the pool."""
    theoretical = case.sized.admission.theoretical
    if case.is_pinned("max_num_seqs") or theoretical >= _COMMON_SEQUENCES:
        return
    yield _note(
        "GUI001",
        "max_num_seqs",
        f"The 256 sequences that guides and defaults name would overflow here: the KV cache "
        f"holds {figure(theoretical)} requests of this load.",
        suggestion=f"Keep max_num_seqs at {case.config.max_num_seqs}.",
        source=vllm("v1/core/sched/scheduler.py: preemption"),
    )


def _block_size(case: Case) -> Iterator[Finding]:
    if case.is_pinned("block_size"):
        return
    if case.problem.demand.prompt_p99_tokens < _LONG_PROMPT_TOKENS:
        return
    yield _note(
        "GUI002",
        "block_size",
        "Guides raise block_size to 32 for long texts; since the backend chooses its block, this "
        "gains nothing and can force a slower backend.",
        suggestion="Leave block_size unset.",
        source=vllm("v1/attention/backends"),
    )


def _eager(case: Case) -> Iterator[Finding]:
    interactive = case.problem.objective == "latency" or (
        case.problem.filled.workload.preset == "realtime"
    )
    if not interactive or case.config.enforce_eager:
        return
    yield _note(
        "GUI003",
        "enforce_eager",
        "Guides promise a 30 to 40 % shorter time to first token from enforce_eager; there is no "
        "such rule, and decoding gets several times slower without graphs.",
        suggestion="Leave enforce_eager off.",
        source=vllm("config/vllm.py: enforce_eager"),
    )


def _swap(case: Case) -> Iterator[Finding]:
    version = case.problem.version
    if not version.since("0.8.0") or case.is_pinned("swap_space"):
        return
    if case.sized.admission.limited_by != "kv_pool":
        return
    gone = "is gone since 0.18.0 and " if version.since("0.18.0") else ""
    yield _note(
        "GUI004",
        "swap_space",
        f"Guides cushion preemptions with swap_space; it {gone}has had no effect since 0.8.0, "
        "because preempted requests are computed again.",
        suggestion="Lower max_num_seqs instead; kv_offloading_size keeps reusable prefixes in "
        "host memory."
        if version.since("0.11.1")
        else "Lower max_num_seqs instead.",
        source=vllm("engine/arg_utils.py, 0.17 against 0.18"),
    )


def _quantization(case: Case) -> Iterator[Finding]:
    found = case.problem.spec.quantization
    if found is None or case.is_pinned("quantization"):
        return
    yield _note(
        "GUI005",
        "quantization",
        f"Guides name the method on the command line; vLLM reads {found.method} from the "
        "checkpoint, and naming it can pick a slower kernel or be refused.",
        suggestion="Leave quantization unset.",
        source=vllm("config/model.py: _verify_quantization"),
    )
