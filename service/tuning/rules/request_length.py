"""Rules of the longest request."""

import math
from collections.abc import Iterator

from service.tuning.lengths import max_tokens, quantile_tokens
from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    guide,
    positive_int,
    thread,
    vllm,
    with_model,
)

_LENGTH = ("max_model_len",)
_ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
_SPACIOUS = 4
_FEWEST = 0.001
"""Of all prompts: when only so few are taken, none is."""


def _beyond_the_model(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    length, limit = positive_int(context.given.max_model_len), spec.max_position_embeddings
    is_changed = context.given.hf_overrides is not None or context.given.rope_scaling is not None
    if length is None or length <= limit or is_changed:
        return
    is_allowed = context.env.get(_ALLOW_LONG) == "1"
    factor = math.ceil(length / limit)
    yield Remark(
        severity="warning" if is_allowed else "error",
        message=f"max_model_len={length} is beyond the {limit} tokens the model was made for"
        + (": positions it never saw give wrong text." if is_allowed else ": refused."),
        suggestion=f"Use {limit} or less, or a model or YaRN scaling (factor {factor} through"
        " hf_overrides) that reaches so far.",
    )


def _automatic_length(context: RuleContext) -> Iterator[Remark]:
    length = context.given.max_model_len
    if length in ("auto", -1):
        yield Remark(
            message="This release does not fit max_model_len by itself.",
            suggestion="Write the number, or use 0.14.0 and newer.",
        )


def _impossible_length(context: RuleContext) -> Iterator[Remark]:
    length = context.given.max_model_len
    if length is None or length in ("auto", -1) or positive_int(length) is not None:
        return
    yield Remark(
        message=f"max_model_len={str(length)[:64]} is no length: it is a whole number from 1 up,"
        " or auto.",
        suggestion="Leave it out for the model's own limit.",
    )


def _longest_request(context: RuleContext) -> tuple[int, int] | None:
    """Return the usual upper end (99 of 100 requests) and the longest request, tokens."""
    workload = context.workload
    if workload is None or workload.prompt_tokens is None or workload.output_tokens is None:
        return None
    usual = sum(
        quantile_tokens(lengths, 0.99)
        for lengths in (workload.prompt_tokens, workload.output_tokens)
    )
    longest = max_tokens(workload.prompt_tokens) + max_tokens(workload.output_tokens)
    return math.ceil(usual), workload.max_request_tokens or longest


def _too_short(context: RuleContext) -> Iterator[Remark]:
    length, asked = _served_length(context), _longest_request(context)
    if length is None or asked is None or length >= asked[0]:
        return
    is_stated = context.given.max_model_len is not None
    what = f"max_model_len={length}" if is_stated else f"The model's own length of {length} tokens"
    effect = (
        "every prompt is refused, so that nobody is served"
        if _is_all_refused(context, length)
        else "they are refused or cut"
    )
    is_beyond_model = context.spec is not None and asked[0] > context.spec.max_position_embeddings
    yield Remark(
        message=f"{what} is shorter than prompt and answer of the workload's long requests"
        f" ({asked[0]} tokens at the 99th percentile): {effect}.",
        suggestion="Send shorter requests, or take a model with a longer context."
        if is_beyond_model
        else f"Set it to {asked[0]} or more.",
    )


def _served_length(context: RuleContext) -> int | None:
    """Return the longest request that the server takes, stated or by default."""
    if context.plan is not None and context.effective.max_model_len is not None:
        return context.plan.max_model_len
    return positive_int(context.effective.max_model_len)


def _is_all_refused(context: RuleContext, length: int) -> bool:
    prompts = context.workload.prompt_tokens if context.workload is not None else None
    return prompts is not None and quantile_tokens(prompts, _FEWEST) >= length


def _too_spacious(context: RuleContext) -> Iterator[Remark]:
    length, asked = positive_int(context.effective.max_model_len), _longest_request(context)
    if length is None or asked is None or length <= _SPACIOUS * max(asked):
        return
    yield Remark(
        message=f"max_model_len is {length}, the workload's longest request {max(asked)} tokens:"
        " vLLM must keep room for one request of full length, and one runaway prompt may take it.",
        suggestion=f"1.2 times the peak is enough: {math.ceil(max(asked) * 1.2)}.",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="MEM011",
        title="The length stays within the model's",
        help="Any length up to the model's own is fine, longer ones are refused. An environment"
        " variable lifts the check, not the model's limit.",
        settings=_LENGTH,
        severity="error",
        source=(vllm("config/model.py: _get_and_verify_max_len"), guide("A12")),
        check=with_model(_beyond_the_model),
    ),
    Rule(
        id="MEM012",
        title="Automatic length came with 0.14.0",
        help="max_model_len=auto (or -1) finds the longest length that fits.",
        settings=_LENGTH,
        severity="error",
        until="0.14.0",
        source=(thread("PR 29431"),),
        check=_automatic_length,
    ),
    Rule(
        id="MEM013",
        title="The length is a whole number or auto",
        help="Zero and negative lengths other than -1 are refused.",
        settings=_LENGTH,
        severity="error",
        source=(vllm("config/model.py"),),
        check=_impossible_length,
    ),
    Rule(
        id="MEM014",
        title="The length covers the workload",
        help="Prompt and answer together must fit. Take the 99th percentile of sampled requests,"
        " not their mean.",
        settings=_LENGTH,
        severity="warning",
        source=(guide("A12"),),
        check=_too_short,
    ),
    Rule(
        id="MEM015",
        title="The length is far beyond the workload",
        help="The model's limit is not what you need. Guides saw concurrency fall from over 200"
        " to 50 after 32768 was set to be safe.",
        settings=_LENGTH,
        severity="note",
        source=(guide("A12"),),
        check=_too_spacious,
    ),
)
