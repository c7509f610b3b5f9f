"""Rules of reuse by prefix."""

from collections.abc import Iterator

from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    guide,
    thread,
    vllm,
    with_model,
    with_plan,
)


def _prefix_caching_off(context: RuleContext) -> Iterator[Remark]:
    workload = context.workload
    shared = workload.shared_prefix_tokens if workload is not None else None
    if context.given.enable_prefix_caching is False and shared:
        yield Remark(
            severity="warning",
            message=f"Requests share {shared} tokens, and prefix caching is off: each request"
            " computes them anew.",
            suggestion="Leave enable_prefix_caching at its default.",
        )


def _prefix_caching_default(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    is_default = context.version.since("0.26.0" if spec.is_hybrid else "0.8.0")
    if context.given.enable_prefix_caching is True and is_default:
        yield Remark(
            message="Prefix caching is on by default in this release.",
            suggestion="The setting can go.",
        )


def _prefix_shorter_than_block(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    workload, kv = context.workload, plan.kv
    shared = workload.shared_prefix_tokens if workload is not None else None
    if kv is None or not shared or not context.effective.enable_prefix_caching:
        return
    block = max((group.block_tokens for group in kv.groups if group.kind != "recurrent"), default=0)
    if shared < block:
        yield Remark(
            message=f"The shared prefix of {shared} tokens is shorter than one cache block of"
            f" {block}: it is never reused.",
            suggestion="Only prefixes of at least one block are found again.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="KVC016",
        title="Prefix caching pays for shared prefixes",
        help="A fixed system prompt or a growing conversation is computed once. Guides measured 4"
        " to 7 times; switching it off gains nothing in return.",
        settings=("enable_prefix_caching",),
        severity="warning",
        source=(vllm("config/cache.py"), guide("A7")),
        check=_prefix_caching_off,
    ),
    Rule(
        id="KVC017",
        title="Prefix caching is already on",
        help="On since 0.8.0 for decoder models and since 0.26.0 for hybrids.",
        settings=("enable_prefix_caching",),
        severity="note",
        source=(vllm("engine/arg_utils.py"), guide("A7")),
        check=with_model(_prefix_caching_default),
    ),
    Rule(
        id="KVC018",
        title="Prefixes shorter than a block are never found again",
        help="Only whole blocks are reused, and hybrids have blocks of hundreds of tokens.",
        settings=("enable_prefix_caching",),
        severity="note",
        source=(thread("issue 47430"),),
        check=with_plan(_prefix_shorter_than_block),
    ),
)
