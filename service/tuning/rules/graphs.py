"""Rules of CUDA graphs and compilation."""

from collections.abc import Iterator

from service.tuning.engine.platform import is_cpu, speculative_tokens
from service.tuning.rules.base import Remark, Rule, RuleContext, guide, positive_int, thread, vllm


def _is_on_cpu(context: RuleContext) -> bool:
    return context.node is not None and is_cpu(context.node.gpu)


def _eager(context: RuleContext) -> Iterator[Remark]:
    if context.given.enforce_eager is True and not _is_on_cpu(context):
        yield Remark(
            message="enforce_eager switches CUDA graphs and compilation off: decoding gets"
            " slower by 10 to 50 %, several times for small models. It does not shorten time to"
            " first token in general, only the start.",
            suggestion="Keep it for debugging, or as the last way to free 1 to 2 GB.",
        )


def _no_compilation(context: RuleContext) -> Iterator[Remark]:
    if context.given.optimization_level in (0, "0") and not _is_on_cpu(context):
        yield Remark(
            message="Level 0 neither compiles nor captures graphs, as enforce_eager does.",
            suggestion="Leave optimization_level out (2).",
        )


def _small_graphs(context: RuleContext) -> Iterator[Remark]:
    size = positive_int(context.given.max_cudagraph_capture_size)
    seqs = positive_int(context.effective.max_num_seqs)
    if size is None or seqs is None or context.given.enforce_eager is True:
        return
    needed = seqs * (1 + speculative_tokens(context.effective))
    if size < min(needed, 512):
        yield Remark(
            message=f"Batches above {size} tokens run without graphs; a full batch of {seqs}"
            f" requests decodes {needed} per step.",
            suggestion=f"Leave it out, or set it to {min(needed, 512)}.",
        )


def _sizes_without_graphs(context: RuleContext) -> Iterator[Remark]:
    has_sizes = context.given.max_cudagraph_capture_size or context.given.cudagraph_capture_sizes
    if context.given.enforce_eager is True and has_sizes:
        yield Remark(
            message="enforce_eager captures no graphs, so their sizes do nothing.",
            suggestion="Remove one of the two.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="GRF001",
        title="enforce_eager gives up CUDA graphs",
        help="Graphs replay a decode step without launching each kernel from the CPU. Guides"
        " measured 10 to 20 % throughput (1200 to 1450 tokens/s), 30 to 50 % on decode. The claim"
        " that eager cuts time to first token has no basis in the engine.",
        settings=("enforce_eager",),
        severity="warning",
        source=(
            guide("A9"),
            thread("PR 851", repository="scaleapi/llm-engine"),
            thread("issue 45709"),
        ),
        check=_eager,
    ),
    Rule(
        id="GRF002",
        title="Graphs cover a full batch",
        help="A decode step replays a graph only up to the largest captured size, which counts"
        " tokens: one per request, and the drafts with speculation.",
        settings=("max_cudagraph_capture_size",),
        severity="warning",
        since="0.11.1",
        source=(thread("PR 3421", repository="Tanguille/cluster"),),
        check=_small_graphs,
    ),
    Rule(
        id="GRF003",
        title="Graph sizes without graphs",
        help="The two settings contradict each other.",
        settings=("enforce_eager",),
        severity="note",
        source=(vllm("config/compilation.py"),),
        check=_sizes_without_graphs,
    ),
    Rule(
        id="GRF004",
        title="Optimisation level 0",
        help="Levels came with 0.12.0; 2 is the default, 0 is for debugging.",
        settings=("optimization_level",),
        severity="warning",
        since="0.12.0",
        source=(vllm("config/vllm.py"),),
        check=_no_compilation,
    ),
)
