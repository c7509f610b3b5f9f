"""Rules of LoRA adapters: ranks, numbers, memory."""

from collections.abc import Iterator

from api_schemas.model import Lora
from service.tuning.engine.facts import choices
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    number,
    positive_int,
    thread,
    vllm,
)

_RANKS = (8, 16, 32, 64, 128, 256)
"""Ranks that every release takes: vllm config/lora.py, 0.6 to 0.33."""
_LATER_RANKS = (1, 320, 512)
_LATER = "0.11.0"
_DEFAULT_RANK = 16


def _adapters(context: RuleContext) -> Lora | None:
    return context.model.lora if context.model is not None else None


def _rank_choice(context: RuleContext) -> Iterator[Remark]:
    rank = positive_int(context.given.max_lora_rank)
    listed = choices("max_lora_rank", context.version)
    ranks = listed or _RANKS + (_LATER_RANKS if context.version.since(_LATER) else ())
    if rank is not None and rank not in ranks:
        larger = [choice for choice in ranks if isinstance(choice, int) and choice > rank]
        yield Remark(
            message=f"max_lora_rank={rank} is none of the ranks vLLM takes:"
            f" {', '.join(str(choice) for choice in sorted(ranks, key=int))}.",
            suggestion=f"Use {min(larger)}." if larger else "Use a smaller rank.",
        )


def _rank_too_large(context: RuleContext) -> Iterator[Remark]:
    rank, lora = positive_int(context.given.max_lora_rank), _adapters(context)
    if rank is not None and lora is not None and rank > _next_rank(lora.max_rank):
        yield Remark(
            message=f"Buffers and kernels are made for rank {rank}, the largest adapter has"
            f" {lora.max_rank}.",
            suggestion=f"Set max_lora_rank to {_next_rank(lora.max_rank)}.",
        )


def _next_rank(rank: int) -> int:
    return min((choice for choice in (*_RANKS, 320, 512) if choice >= rank), default=rank)


def _rank_too_small(context: RuleContext) -> Iterator[Remark]:
    lora = _adapters(context)
    if lora is None or context.given.enable_lora is False:
        return
    rank = positive_int(context.given.max_lora_rank) or _DEFAULT_RANK
    if rank < lora.max_rank:
        yield Remark(
            message=f"max_lora_rank={rank} refuses the adapter of rank {lora.max_rank}.",
            suggestion=f"Set max_lora_rank to {_next_rank(lora.max_rank)}.",
        )


def _not_enabled(context: RuleContext) -> Iterator[Remark]:
    if _adapters(context) is not None and context.given.enable_lora is False:
        yield Remark(
            message="Adapters are to be served, but enable_lora is false.",
            suggestion="Set enable_lora.",
        )


def _needs_enabling(context: RuleContext) -> Iterator[Remark]:
    if context.given.enable_lora is True:
        return
    for name in ("max_loras", "max_lora_rank", "max_cpu_loras"):
        if getattr(context.given, name) is not None:
            yield Remark(
                setting=name,
                message=f"{name} does nothing without enable_lora.",
                suggestion="Set enable_lora, or leave it out.",
            )


def _fewer_slots(context: RuleContext) -> Iterator[Remark]:
    slots, lora = positive_int(context.given.max_loras), _adapters(context)
    if slots is not None and lora is not None and slots < lora.max_adapters:
        yield Remark(
            message=f"{lora.max_adapters} adapters are to be on the GPU at once, max_loras is"
            f" {slots}: requests of the others wait for a slot.",
            suggestion=f"Set max_loras to {lora.max_adapters}.",
        )


def _cpu_slots(context: RuleContext) -> Iterator[Remark]:
    slots = positive_int(context.given.max_loras) or 1
    held = positive_int(context.given.max_cpu_loras)
    if context.given.enable_lora is True and held is not None and held < slots:
        yield Remark(
            message=f"max_cpu_loras={held} is less than max_loras={slots}: refused.",
            suggestion=f"Set max_cpu_loras to {slots} or more.",
        )


def _uncounted(context: RuleContext) -> Iterator[Remark]:
    share = number(context.effective.gpu_memory_utilization) or 0.9
    if context.given.enable_lora is True and share > 0.85:  # noqa: PLR2004 - advice of the thread
        yield Remark(
            setting="gpu_memory_utilization",
            message="This release does not count adapter buffers when it sizes the cache; long"
            " prompts then run out of memory.",
            suggestion="Keep gpu_memory_utilization at 0.85 or below.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="LOR001",
        title="The rank is one that vLLM takes",
        help="max_lora_rank is one of a fixed list; adapters of smaller rank are padded to it.",
        settings=("max_lora_rank",),
        severity="error",
        source=(vllm("config/lora.py"),),
        check=_rank_choice,
    ),
    Rule(
        id="LOR002",
        title="The rank is no larger than needed",
        help="Buffers are allocated and kernels computed for max_lora_rank, whatever the adapters"
        " have.",
        settings=("max_lora_rank",),
        severity="warning",
        source=(thread("PR 22782"),),
        check=_rank_too_large,
    ),
    Rule(
        id="LOR003",
        title="The rank covers the largest adapter",
        help="An adapter above max_lora_rank (16 by default) is refused when it is loaded.",
        settings=("max_lora_rank",),
        severity="error",
        source=(vllm("config/lora.py"),),
        check=_rank_too_small,
    ),
    Rule(
        id="LOR004",
        title="Adapters need enable_lora",
        help="Requests for an adapter fail on a server that was started without.",
        settings=("enable_lora",),
        severity="error",
        source=(vllm("config/lora.py"),),
        check=_not_enabled,
    ),
    Rule(
        id="LOR005",
        title="LoRA settings without enable_lora",
        help="They are parsed and not used.",
        settings=("enable_lora",),
        severity="note",
        source=(vllm("engine/arg_utils.py"),),
        check=_needs_enabling,
    ),
    Rule(
        id="LOR006",
        title="A slot for every adapter in use",
        help="Requests for adapters beyond max_loras wait while others run.",
        settings=("max_loras",),
        severity="warning",
        source=(vllm("v1/core/sched/scheduler.py"),),
        check=_fewer_slots,
    ),
    Rule(
        id="LOR007",
        title="Host slots are at least the GPU's",
        help="max_cpu_loras holds all adapters in host memory, those on the GPU included.",
        settings=("max_cpu_loras",),
        severity="error",
        source=(vllm("config/lora.py"),),
        check=_cpu_slots,
    ),
    Rule(
        id="LOR008",
        title="The first engine does not count adapters",
        help="Before 0.8.0 the cache was sized as if there were no adapters.",
        settings=("enable_lora",),
        severity="warning",
        until="0.8.0",
        source=(thread("issue 14450"), thread("issue 15039")),
        check=_uncounted,
    ),
)
