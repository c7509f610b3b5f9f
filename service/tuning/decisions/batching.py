"""Why this many requests and tokens share a step."""

from api_schemas.explanation import Confidence, Decision
from service.tuning.decisions.case import Case, decision
from service.tuning.decisions.sources import (
    GUIDE_SEQUENCES,
    GUIDE_TOKENS,
    MEMORY_MODEL,
    PERFORMANCE_MODEL,
    vllm,
)
from service.tuning.search.admission_rule import AdmissionLimit
from service.tuning.search.figures import figure
from service.tuning.search.trial import Trial

_QUEUES = 0.05
"""Waiting over running requests from which on a queue is worth a word."""
_DEFAULTS = vllm("engine/arg_utils.py: get_batch_defaults")


def sequences(case: Case) -> Decision:
    """Return why this many requests are admitted at once."""
    admission = case.sized.admission
    theoretical = admission.theoretical
    return decision(
        "max_num_seqs",
        case.config.max_num_seqs,
        rule="CHO020",
        reason=_sequence_reason(case, admission.limited_by)
        + _queue_remark(case)
        + case.default_remark("max_num_seqs"),
        formula=(
            "min(share x pool tokens / live tokens per request, room for bursts, requests at "
            "which the time per token reaches its limit, 1024); in production the pool is taken "
            "at the low end of its band"
        ),
        inputs={
            "pool_tokens": admission.pool_tokens,
            "live_tokens_per_request": admission.live_tokens,
            "theoretical_limit": theoretical,
            "share": admission.share,
            "limited_by": admission.limited_by,
            "predicted_running": case.pick.performance.running_requests,
            "predicted_preemptions_per_request": case.pick.performance.preemptions_per_request,
        },
        source=(GUIDE_SEQUENCES, MEMORY_MODEL, PERFORMANCE_MODEL, _DEFAULTS),
        if_higher=(
            f"More requests share a step, so each token takes longer; above about "
            f"{figure(theoretical)} the KV cache overflows and requests are preempted and computed "
            "again."
        ),
        if_lower="Requests wait in the queue earlier: time to first token grows before the GPU is "
        "full, and throughput falls.",
        confidence=_sequence_confidence(case),
    )


def _sequence_confidence(case: Case) -> Confidence:
    """Return how sure the cap is: memory is known better than speed."""
    if case.is_pinned("max_num_seqs"):
        return "high"
    if case.problem.spec.layout_confidence == "low" or case.sized.plan.borderline:
        return "low"
    by_memory = case.sized.admission.limited_by in ("kv_pool", "ceiling")
    return "high" if by_memory and case.problem.spec.layout_confidence == "high" else "medium"


def _sequence_reason(case: Case, limited_by: AdmissionLimit) -> str:
    admission = case.sized.admission
    if case.is_pinned("max_num_seqs"):
        return "Fixed by the request."
    # In production the pool is taken at the low end of its band.
    least = "at least " if case.problem.posture == "production" else ""
    room = (
        f"The KV cache holds {least}{figure(admission.theoretical)} requests of "
        f"{figure(admission.live_tokens)} live tokens"
    )
    match limited_by:
        case "slo":
            return (
                f"{room}, but with more than {admission.value} running the time per token would "
                "pass its limit: the cap sits where the limit is reached."
            )
        case "load":
            return (
                f"{room}; {admission.value} at once is what the load needs at its peaks to run "
                "without a queue, and the simulation shows no preemptions with it."
            )
        case "ceiling":
            return f"{room}, far more than a step can use well; {admission.value} is the cap."
        case _:
            return (
                f"{room}; {admission.share:g} of that, and no more than uneven lengths leave "
                "safe, keeps requests from being preempted."
            )


def _queue_remark(case: Case) -> str:
    """Return that requests wait for a place, where the cap is below what the load needs."""
    performance = case.pick.performance
    if performance.waiting_requests <= _QUEUES * performance.running_requests:
        return ""
    return (
        f" The load would at times run more at once: {figure(performance.waiting_requests)} "
        "requests wait on average, because the pool or the limits allow no more."
    )


def batched_tokens(case: Case) -> Decision:
    """Return why a step may hold this many tokens."""
    tokens = case.config.max_num_batched_tokens
    return decision(
        "max_num_batched_tokens",
        tokens,
        rule="CHO021",
        reason=_token_reason(case) + case.default_remark("max_num_batched_tokens"),
        formula="best of the budgets for the objective within the limits; vLLM's own unless 2 % "
        "are gained",
        inputs={
            "compared": [_summary(trial) for trial in _by_budget(case)],
            "prompt_mean_tokens": case.problem.demand.prompt_mean_tokens,
            "max_num_seqs": case.config.max_num_seqs,
        },
        source=(GUIDE_TOKENS, PERFORMANCE_MODEL, _DEFAULTS),
        if_higher=(
            "A prompt needs fewer steps, but each step with a prompt in it lasts longer, so "
            "answers under way stutter; activations take more memory."
        ),
        if_lower=(
            "Answers under way flow more evenly, but long prompts take more steps, so their first "
            "token comes later; it must not fall below max_num_seqs."
        ),
        confidence="medium",
    )


def _token_reason(case: Case) -> str:
    if case.is_pinned("max_num_batched_tokens"):
        return "Fixed by the request."
    tokens = case.config.max_num_batched_tokens
    own = case.defaults.max_num_batched_tokens
    if tokens == own:
        return "No other budget gains 2 % for this load and objective."
    rival = next(
        (t for t in case.found.token_trials if t.sized.effective.max_num_batched_tokens == own),
        None,
    )
    if rival is None:
        return "The best budget for this load and objective."
    return (
        f"Against the {own} tokens that vLLM takes itself: {_latencies(case.pick)} instead of "
        f"{_latencies(rival)}."
    )


def _latencies(trial: Trial) -> str:
    performance = trial.performance
    return (
        f"{figure(performance.ttft_ms.p95)} ms to the first token and "
        f"{figure(performance.tpot_ms.p95)} ms per token (p95)"
    )


def _summary(trial: Trial) -> str:
    verdict = "within" if trial.meets else "outside"
    budget = trial.sized.effective.max_num_batched_tokens
    return f"{budget}: {_latencies(trial)}, {verdict} the limits"


def _by_budget(case: Case) -> list[Trial]:
    return sorted(
        case.found.token_trials, key=lambda t: t.sized.effective.max_num_batched_tokens or 0
    )


def chunked_prefill(case: Case) -> Decision:
    """Return why prompts are cut into chunks."""
    pinned = case.is_pinned("enable_chunked_prefill")
    legacy = not case.problem.version.since("0.8.0")
    return decision(
        "enable_chunked_prefill",
        case.config.enable_chunked_prefill,
        rule="CHO022",
        reason="Fixed by the request."
        if pinned
        else (
            "This release switches it on only for very long contexts; with it a long prompt no "
            "longer holds up answers under way."
            if legacy
            else "Left to vLLM, which has it on since 0.8.0: long prompts are cut to the token "
            "budget and share steps with answers under way. Switching it off is not supported."
        ),
        source=(vllm("engine/arg_utils.py"), GUIDE_TOKENS),
        if_higher="On: even flow of tokens while prompts are read.",
        if_lower="Off: a whole prompt must fit one step, and answers under way wait for it.",
        confidence="high",
    )


def prefix_caching(case: Case) -> Decision:
    """Return why equal beginnings of prompts are kept."""
    pinned = case.is_pinned("enable_prefix_caching")
    shared = case.problem.demand.shared_prefix_tokens
    hybrid_old = case.problem.spec.is_hybrid and not case.problem.version.since("0.26.0")
    note = (
        f" {shared} tokens of every prompt are shared here and need to be read once only."
        if shared
        else " No shared beginning was stated, so no gain is counted on."
    )
    own = (
        "Left to vLLM, which has it off for models with recurrent layers before 0.26.0."
        if hybrid_old
        else "Left to vLLM, which has it on since 0.8.0 at no cost when nothing repeats."
    )
    return decision(
        "enable_prefix_caching",
        case.config.enable_prefix_caching,
        rule="CHO023",
        reason="Fixed by the request." if pinned else own + note,
        inputs={"shared_prefix_tokens": shared},
        source=(vllm("engine/arg_utils.py"),),
        if_higher="On: repeated beginnings cost neither time nor a second copy.",
        if_lower="Off: every prompt is computed in full.",
        confidence="high",
    )
