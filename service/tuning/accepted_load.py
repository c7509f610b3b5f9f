"""The part of a workload that a server accepts: nothing longer than `max_model_len`."""

import math
from functools import lru_cache

import msgspec
import numpy as np

from api_schemas.workload import Lengths, SampleLengths, Trace, Workload
from service.tuning.lengths import length_figures, typical_tokens

_ANSWER_SHARE = 4
_PLACES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99)
"""Of the answers, and this part of the length: where they may be cut."""
_KEPT = 256
_LARGEST_KEPT_BYTES = 1 << 15
"""What is remembered: so many pairs of distributions, none described in more bytes."""


def accepted_workload(workload: Workload, *, max_model_len: int) -> Workload:
    """Return the workload as a server with this limit serves it.

    vLLM refuses prompts that leave no room for an answer and ends answers at the limit (source:
    vLLM 0.33.0 entrypoints and v1/core/sched/utils.py). Where every request fits, the workload
    is returned as it is; where none fits, it is returned as it is too, for others to judge.
    """
    served = served_workload(workload, max_model_len=max_model_len)
    return workload if served is None else served


def served_workload(workload: Workload, *, max_model_len: int) -> Workload | None:
    """Return the part of the workload that a server with this limit answers; None for no part."""
    if isinstance(workload.arrivals, Trace):
        return _accepted_trace(workload, workload.arrivals, max_model_len)
    prompts, outputs = workload.prompt_tokens, workload.output_tokens
    if prompts is None or outputs is None:
        return workload
    longest_prompt = length_figures(prompts).max_tokens
    longest_output = length_figures(outputs).max_tokens
    if longest_prompt + longest_output <= max_model_len:
        return workload
    content = msgspec.msgpack.encode((prompts, outputs))
    accept = _accepted if len(content) <= _LARGEST_KEPT_BYTES else _accepted.__wrapped__
    accepted = accept(content, max_model_len)
    if accepted is None:
        return None
    return msgspec.structs.replace(workload, prompt_tokens=accepted[0], output_tokens=accepted[1])


@lru_cache(maxsize=_KEPT)
def _accepted(content: bytes, max_model_len: int) -> tuple[Lengths, Lengths] | None:
    """Return prompts and outputs as they are served; None when no prompt is taken."""
    prompts, outputs = msgspec.msgpack.decode(content, type=tuple[Lengths, Lengths])
    answer = _longest_answer(prompts, outputs, max_model_len)
    kept = _not_longer(prompts, max_model_len - answer)
    return None if kept is None else (kept, _cut(outputs, answer))


def _longest_answer(prompts: Lengths, outputs: Lengths, limit: int) -> int:
    """Return where answers are cut so that the most of the load's answers is left.

    A server cuts each answer where its own prompt leaves no room; lengths that know nothing of
    each other are all cut at one place. The lower it is, the more answers are cut; the higher, the
    fewer prompts leave room for it.
    """
    asked, answered = (np.asarray(typical_tokens(lengths)) for lengths in (prompts, outputs))
    longest = min(length_figures(outputs).max_tokens, limit - 1)
    room = limit - length_figures(prompts).max_tokens
    places = {longest, limit // _ANSWER_SHARE, room, *np.quantile(answered, _PLACES)}
    candidates: list[int] = [1, *(math.floor(place) for place in places if 1 <= place <= longest)]

    def left(place: int) -> tuple[float, int]:
        return float(np.mean(asked <= limit - place) * np.minimum(answered, place).mean()), place

    return max(candidates, key=left)


def _not_longer(lengths: Lengths, limit: int) -> Lengths | None:
    """Return the lengths without those above the limit; None when none is left."""
    if length_figures(lengths).max_tokens <= limit:
        return lengths
    drawn = typical_tokens(lengths)
    kept = [max(1, math.floor(tokens)) for tokens in drawn if tokens <= limit]
    return SampleLengths(tokens=kept) if kept else None


def _cut(lengths: Lengths, limit: int) -> Lengths:
    """Return the lengths with the longer ones ended at the limit."""
    if length_figures(lengths).max_tokens <= limit:
        return lengths
    drawn = (min(tokens, limit) for tokens in typical_tokens(lengths))
    return SampleLengths(tokens=[max(1, math.floor(tokens)) for tokens in drawn])


def _accepted_trace(workload: Workload, trace: Trace, limit: int) -> Workload | None:
    rows = [
        (at_s, prompt, min(output, limit - prompt))
        for at_s, prompt, output in zip(
            trace.at_s, trace.prompt_tokens, trace.output_tokens, strict=True
        )
        if prompt < limit
    ]
    if not rows:
        return None
    times, prompts, outputs = (list(column) for column in zip(*rows, strict=True))
    kept = Trace(at_s=times, prompt_tokens=prompts, output_tokens=outputs)
    return msgspec.structs.replace(
        workload,
        arrivals=kept,
        prompt_tokens=SampleLengths(tokens=prompts),
        output_tokens=SampleLengths(tokens=outputs),
    )
