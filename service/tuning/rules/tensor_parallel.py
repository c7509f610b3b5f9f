"""Rules of tensor parallelism: what divides, and what it is good for."""

from collections.abc import Iterator

from service.tuning.hardware.spec import Node
from service.tuning.models.spec import GroupedQueryAttention, ModelSpec
from service.tuning.rules.base import (
    Check,
    Remark,
    Rule,
    RuleContext,
    guide,
    positive_int,
    thread,
    vllm,
    with_model,
    with_node,
)
from service.tuning.rules.domains import (
    has_latent_attention,
    legal_tensor_parallel_sizes,
)
from service.tuning.rules.sharding import Obstacle, ObstacleKind, find_obstacle

_TENSOR = ("tensor_parallel_size",)
_MANY_RANKS_ON_PCIE = 4
"""From here on the all-reduces of a layer take longer over PCIe than the GPUs save."""


def obstacle_check(kind: ObstacleKind) -> Check:
    """Return a check that reports the first obstacle of a tensor-parallel size if it is `kind`."""

    def check(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
        obstacle = _obstacle(context, spec)
        if obstacle is not None and obstacle.kind == kind:
            yield Remark(message=obstacle.message, suggestion=_other_sizes(context, spec))

    return with_model(check)


def _obstacle(context: RuleContext, spec: ModelSpec) -> Obstacle | None:
    return find_obstacle(
        spec,
        tensor_parallel_size=context.tensor_parallel_size,
        version=context.version,
        enable_expert_parallel=context.expert_parallel,
        data_parallel_size=context.data_parallel_size,
    )


def _other_sizes(context: RuleContext, spec: ModelSpec) -> str:
    num_gpus = context.tensor_parallel_size
    if context.node is not None:
        num_gpus = max(num_gpus, context.node.num_gpus)
    sizes = legal_tensor_parallel_sizes(
        spec,
        num_gpus=num_gpus,
        version=context.version,
        enable_expert_parallel=context.expert_parallel,
        data_parallel_size=context.data_parallel_size,
    )
    listed = ", ".join(str(size) for size in sizes[:12]) or "none"
    return f"Sizes that work up to {num_gpus} GPUs: {listed}."


def _tensor_over_nodes(context: RuleContext, node: Node) -> Iterator[Remark]:
    ranks = context.tensor_parallel_size
    if ranks > node.gpus_per_node and context.world_size <= node.num_gpus:
        yield Remark(
            message=f"tensor_parallel_size={ranks} crosses nodes of {node.gpus_per_node} GPUs:"
            " every layer then waits for the network twice.",
            suggestion=f"Use at most {node.gpus_per_node} and pipeline parallelism across nodes.",
        )


def _tensor_over_pcie(context: RuleContext, node: Node) -> Iterator[Remark]:
    ranks = context.tensor_parallel_size
    is_linked = node.interconnect in {"nvlink", "xgmi"}
    if ranks == 1 or is_linked or node.gpu.vendor == "cpu":
        return
    yield Remark(
        severity="warning" if ranks >= _MANY_RANKS_ON_PCIE else "note",
        message=f"{ranks} tensor-parallel ranks exchange activations over PCIe. Measured on four"
        " RTX 3090: 1007 tokens/s at size 4 against 3425 tokens/s from four replicas.",
        suggestion="Where the model fits fewer GPUs, use a smaller size and more replicas, unless"
        " a single request's latency is what counts.",
    )


def _copied_kv_heads(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    ranks = context.tensor_parallel_size
    shared = positive_int(context.effective.decode_context_parallel_size) or 1
    heads = [
        group.mixer.num_kv_heads
        for group in spec.layers
        if isinstance(group.mixer, GroupedQueryAttention)
    ]
    if heads and shared == 1 and ranks > max(heads) and ranks % max(heads) == 0:
        yield Remark(
            message=f"Beyond {max(heads)} ranks the {max(heads)} KV heads are copied, so the"
            f" cache per GPU at {ranks} is as large as at {max(heads)}.",
            suggestion="Use decode_context_parallel_size, or a smaller size with replicas.",
        )


def _copied_latents(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    ranks = context.tensor_parallel_size
    shared = positive_int(context.effective.decode_context_parallel_size) or 1
    if has_latent_attention(spec) and ranks > 1 and shared == 1:
        yield Remark(
            message=f"Latent attention keeps the whole cache on each of {ranks} ranks, so tensor"
            " parallelism adds no room for requests.",
            suggestion="For many or long requests use data_parallel_size with"
            " enable_expert_parallel, or decode_context_parallel_size.",
        )


def _sharded_state(context: RuleContext) -> Iterator[Remark]:
    if context.given.load_format == "sharded_state":
        yield Remark(
            setting="load_format",
            message="A sharded_state checkpoint loads only with the tensor-parallel size it was"
            f" saved with; {context.tensor_parallel_size} is asked for.",
            suggestion="Check that size, or load the ordinary safetensors: they fit any size.",
        )


def _over_slices(context: RuleContext, node: Node) -> Iterator[Remark]:
    if not node.gpu.is_slice or context.world_size == 1:
        return
    yield Remark(
        message=f"{context.world_size} ranks on MIG slices: NCCL refused to join slices until 2026,"
        " and does it experimentally since, through host memory, for slices reach no other GPU"
        " memory.",
        suggestion="Run one replica in each slice, take a larger slice, or whole GPUs.",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="PAR001",
        title="Attention heads divide by the tensor-parallel size",
        help="Each rank computes whole attention heads, so their number must divide by"
        " tensor_parallel_size. vLLM stops at start otherwise. 96 heads over 8 ranks are fine;"
        " 96 or 128 heads over 5 are not.",
        settings=_TENSOR,
        severity="error",
        source=(vllm("config/model.py: verify_with_parallel_config"), guide("A13")),
        check=obstacle_check("attention_heads"),
    ),
    Rule(
        id="PAR002",
        title="KV heads divide by the tensor-parallel size, or are copied evenly",
        help="A rank holds a whole number of KV heads, or each KV head is copied to the same"
        " number of ranks. Three ranks for four KV heads do neither, although 24 query heads"
        " divide by three.",
        settings=_TENSOR,
        severity="error",
        source=(vllm("model_executor/models/llama.py; distributed/utils.py: divide"),),
        check=obstacle_check("kv_heads"),
    ),
    Rule(
        id="PAR003",
        title="The padded vocabulary divides by the tensor-parallel size",
        help="The embedding is padded to a multiple of 64 rows and cut by rows. Sizes such as 5"
        " pass the check of heads and fail here, after loading has begun.",
        settings=_TENSOR,
        severity="error",
        source=(vllm("layers/vocab_parallel_embedding.py"),),
        check=obstacle_check("vocabulary"),
    ),
    Rule(
        id="PAR004",
        title="Feed-forward widths divide by the ranks that share them",
        help="MLPs are cut over the tensor-parallel ranks, experts over tensor x data parallel"
        " ranks unless expert parallelism keeps them whole.",
        settings=_TENSOR,
        severity="error",
        source=(vllm("distributed/utils.py: divide; layers/fused_moe/config.py"),),
        check=obstacle_check("feed_forward"),
    ),
    Rule(
        id="PAR008",
        title="Tensor parallelism stays inside a node",
        help="Every layer ends in two all-reduces. Inside a node they run over NVLink, between"
        " nodes over the network, which is an order of magnitude slower.",
        settings=_TENSOR,
        severity="warning",
        source=(guide("A13"),),
        check=with_node(_tensor_over_nodes),
    ),
    Rule(
        id="PAR009",
        title="Tensor parallelism over PCIe is slow",
        help="Without NVLink the all-reduces cost more than the split saves as soon as several"
        " requests run. Replicas of a smaller size give more throughput; a larger size still"
        " shortens the prefill of one long prompt.",
        settings=_TENSOR,
        severity="warning",
        source=(
            thread("docs/MULTI_CARD.md at 4a29ab57", repository="noonghunna/club-3090"),
            guide("A13"),
        ),
        check=with_node(_tensor_over_pcie),
    ),
    Rule(
        id="PAR010",
        title="Beyond the KV heads the cache per GPU stops shrinking",
        help="Once there are more ranks than KV heads, heads are copied. Going from 4 to 8 GPUs"
        " with 4 KV heads leaves the cache per token and GPU unchanged.",
        settings=_TENSOR,
        severity="note",
        source=(vllm("v1/kv_cache_interface.py"),),
        check=with_model(_copied_kv_heads),
    ),
    Rule(
        id="PAR011",
        title="Latent attention copies its cache to every tensor-parallel rank",
        help="The latent of a token has no heads to divide (DeepSeek, Kimi): the cache holds the"
        " same tokens at any tensor-parallel size. Data parallelism multiplies it.",
        settings=_TENSOR,
        severity="note",
        source=(vllm("v1/kv_cache_interface.py: MLAAttentionSpec"), thread("issue 16037")),
        check=with_model(_copied_latents),
    ),
    Rule(
        id="PAR019",
        title="A sharded checkpoint is tied to its tensor-parallel size",
        help="Ordinary safetensors are cut while loading and fit any size. Only"
        " load_format=sharded_state stores one part per rank.",
        settings=("load_format",),
        severity="warning",
        source=(vllm("model_executor/model_loader/sharded_state_loader.py"), guide("A14")),
        check=_sharded_state,
    ),
    Rule(
        id="PAR021",
        title="One replica over several MIG slices",
        help="Slices of a GPU have neither NVLink nor peer-to-peer access, and the libraries that"
        " join ranks did not know them for long.",
        settings=("tensor_parallel_size",),
        severity="warning",
        source=(
            thread("issue 1716", repository="NVIDIA/nccl"),
            thread("issue 7211"),
        ),
        check=with_node(_over_slices),
    ),
)
