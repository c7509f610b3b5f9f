"""One sentence for people, and what an alternative trades."""

from api_schemas.estimate import Performance
from api_schemas.recommendation import Binding, Nearest
from service.tuning.search.figures import figure
from service.tuning.search.problem import Problem
from service.tuning.search.ranking import (
    speed_per_s,
    throughput_tokens_per_s,
    why_not_chosen,
)
from service.tuning.search.trial import Trial


def feasible_headline(problem: Problem, pick: Trial) -> str:
    """Return what to run and what to expect from it."""
    performance = pick.performance
    return (
        f"Run {_copies(pick)} of {problem.spec.id} on {pick.gpus} x {problem.node.gpu.name} "
        f"({pick.sized.topology.label}, at most {_requests(pick)} at once each): the first token "
        f"after {figure(performance.ttft_ms.p95)} ms"
        f"{_queueing(performance)}{_per_token(performance)} at the 95th percentile"
        f"{_limits(problem, pick)}{_capacity(problem, pick)}."
    )


def _requests(pick: Trial) -> str:
    ranks = pick.sized.topology.data_parallel_size
    most = (pick.sized.effective.max_num_seqs or 1) * ranks  # the setting counts for each rank
    return "1 request" if most == 1 else f"{most} requests"


def _per_token(performance: Performance) -> str:
    """Return the time per token; answers of one token have none."""
    per_token = performance.tpot_ms.p95
    return f" and {figure(per_token)} ms per token" if per_token > 0 else ""


def _queueing(performance: Performance) -> str:
    """Return what a long time to the first token consists of, where requests stand in line."""
    stands = performance.saturated or performance.waiting_requests > performance.running_requests
    if not stands or performance.ttft_ms.p95 < _LONG_MS:
        return ""
    return " (most of it in the queue: more requests are there than run at once)"


def infeasible_headline(problem: Problem, binding: Binding, nearest: Nearest | None) -> str:
    """Return why it cannot be done, and the nearest thing that can."""
    gpus = f"{problem.node.num_gpus} x {problem.node.gpu.name}"
    detail = binding.detail.rstrip(".")
    closing = f"; the nearest way: {nearest.change}" if nearest is not None else ""
    return f"{problem.spec.id} on {gpus} cannot do this: {_lower_first(detail)}{closing}."


def trade_off(problem: Problem, trial: Trial, pick: Trial) -> str:
    """Return how an alternative compares with the pick, in one sentence."""
    parts = [
        _versus("answer", speed_per_s(trial) / max(speed_per_s(pick), 1e-12), "faster", "slower"),
        _versus(
            "throughput",
            throughput_tokens_per_s(trial) / max(throughput_tokens_per_s(pick), 1e-12),
            "higher",
            "lower",
        ),
        f"{trial.gpus} instead of {pick.gpus} GPUs" if trial.gpus != pick.gpus else "",
        _cache_change(trial, pick),
    ]
    said = [part for part in parts if part]
    why = why_not_chosen(problem, trial, pick) if trial.meets else "it misses a limit"
    closing = f"; {why}" if why else ""
    return f"{trial.sized.topology.label} x {trial.copies}: {', '.join(said) or 'equal'}{closing}."


def _cache_change(trial: Trial, pick: Trial) -> str:
    theirs, mine = trial.sized.kv_cache_dtype, pick.sized.kv_cache_dtype
    if theirs == mine:
        return ""
    return "16-bit instead of 8-bit cache" if theirs is None else "8-bit instead of 16-bit cache"


_SAME = 0.02
_LONG_MS = 10_000.0
_TIMES = 2.0
"""From here on a multiple reads better than a percentage."""


def _versus(noun: str, ratio: float, up: str, down: str) -> str:
    if abs(ratio - 1) <= _SAME:
        return f"{noun} about the same"
    if ratio >= _TIMES:
        return f"{noun} {ratio:.1f} times as {'fast' if up == 'faster' else 'high'}"
    return f"{noun} {abs(ratio - 1):.0%} {up if ratio > 1 else down}"


def _copies(pick: Trial) -> str:
    return "one copy" if pick.copies == 1 else f"{pick.copies} copies"


def _limits(problem: Problem, pick: Trial) -> str:
    if not problem.filled.slo.targets:
        return ""
    unsure = any(outcome.verdict == "uncertain" for outcome in pick.outcomes)
    return ", within the limits by prediction but near them" if unsure else ", within the limits"


def _capacity(problem: Problem, pick: Trial) -> str:
    carried = pick.capacity_requests_per_s
    if carried is None:
        return f", {figure(pick.output_tokens_per_s)} output tokens/s in all"
    closing = " within the limits" if problem.filled.slo.targets else ""
    return f"; up to about {figure(carried)} requests/s{closing}"


def _lower_first(text: str) -> str:
    """Return the sentence for use inside another one; abbreviations and names stay as they are."""
    word = text.split(" ", 1)[0]
    is_name = word.isupper() or any(letter.isupper() for letter in word[1:])
    return text if is_name else text[:1].lower() + text[1:]
