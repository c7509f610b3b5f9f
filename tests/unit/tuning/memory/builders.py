"""Models, nodes and rules with good defaults for tests of the memory model."""

from collections.abc import Mapping
from typing import Any

from api_schemas.engine import EngineConfig
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import parse_version
from service.tuning.hardware.spec import Gpu, Node
from service.tuning.memory.budget import plan_memory
from service.tuning.memory.kv_plan import KvRules
from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import (
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    Mixer,
    MixtureOfExperts,
    ModelSpec,
)


def attention(
    *, kv_heads: int = 8, heads: int = 32, dim: int = 128, **changes: object
) -> GroupedQueryAttention:
    """Return grouped-query attention, Llama-3-8B's by default."""
    return GroupedQueryAttention(
        num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, v_head_dim=dim, **changes
    )


def latent(**changes: object) -> LatentAttention:
    """Return DeepSeek-V3's latent attention."""
    return LatentAttention(
        num_heads=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        **changes,
    )


def delta_net(*, value_heads: int = 48) -> LinearAttention:
    """Return the Gated DeltaNet of Qwen3.6-27B and its kin."""
    return LinearAttention(
        kind="gdn",
        num_key_heads=16,
        num_value_heads=value_heads,
        key_head_dim=128,
        value_head_dim=128,
        conv_kernel=4,
    )


def group(
    count: int, mixer: Mixer | None, feed_forward: FeedForward | None = None, *, width: int = 14336
) -> LayerGroup:
    """Return `count` layers of this mixer with a dense MLP unless another part is given."""
    part = feed_forward or DenseFeedForward(intermediate_size=width)
    return LayerGroup(count=count, mixer=mixer, feed_forward=part)


def model(*groups: LayerGroup, **changes: object) -> ModelSpec:
    """Return a model of these layers, Llama-3.1-8B by default."""
    fields: dict[str, Any] = {
        "id": "test/model",
        "architecture": "LlamaForCausalLM",
        "model_type": "llama",
        "hidden_size": 4096,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "dtype": "bfloat16",
        **changes,
    }
    return ModelSpec(layers=groups or (group(32, attention()),), **fields)


def mixture_model(**changes: object) -> ModelSpec:
    """Return Qwen3-30B-A3B."""
    experts = MixtureOfExperts(num_experts=128, experts_per_token=8, expert_intermediate_size=768)
    fields: dict[str, Any] = {
        "architecture": "Qwen3MoeForCausalLM",
        "hidden_size": 2048,
        "vocab_size": 151_936,
        "max_position_embeddings": 40_960,
        **changes,
    }
    return model(group(48, attention(kv_heads=4), experts), **fields)


def hybrid_model(**changes: object) -> ModelSpec:
    """Return the language model of Qwen3.6-27B: every fourth layer attends, the others recur."""
    fields: dict[str, Any] = {
        "architecture": "Qwen3_5ForConditionalGeneration",
        "hidden_size": 5120,
        "vocab_size": 248_320,
        "max_position_embeddings": 262_144,
        **changes,
    }
    return model(
        group(16, attention(kv_heads=4, heads=24, dim=256, output_gate=True), width=17_408),
        group(48, delta_net(), width=17_408),
        layer_order=(1, 1, 1, 0) * 16,
        **fields,
    )


def gpu(**changes: object) -> Gpu:
    """Return a GPU, H100 SXM by default."""
    fields: dict[str, Any] = {
        "name": "H100-SXM5-80GB",
        "vendor": "nvidia",
        "arch": "Hopper",
        "gpu_class": "datacenter",
        "memory_gib": 79.19,
        "memory_gb_vendor": 80.0,
        "memory_is_verified": True,
        "bandwidth_gb_s": 3350.0,
        "bf16_tflops": 989.0,
        "fp16_tflops": 989.0,
        "fp8_tflops": 1979.0,
        "int8_tops": 1979.0,
        "fp4_tflops": None,
        "compute_capability": (9, 0),
        "link_gb_s": 450.0,
        "pcie_gb_s": 64.0,
        "driver_name": "NVIDIA H100 80GB HBM3",
        **changes,
    }
    return Gpu(**fields)


def node(part: Gpu | None = None, *, count: int = 1, **changes: object) -> Node:
    """Return a node of linked GPUs with nothing else on them."""
    part = part or gpu()
    fields: dict[str, Any] = {
        "gpu": part,
        "gpus_per_node": count,
        "nodes": 1,
        "interconnect": "nvlink" if count > 1 else "none",
        "total_memory_gib": part.memory_gib,
        "used_memory_gib": 0.0,
        "host_memory_gib": None,
        "price_per_gpu_hour": None,
        **changes,
    }
    return Node(**fields)


def rules(version: str = "0.33.0", **changes: object) -> KvRules:
    """Return the KV rules of a release."""
    release = parse_version(version)
    fields: dict[str, Any] = {
        "version": release,
        "is_legacy": release.is_legacy,
        "block_size": 16,
        "decode_context_parallel_size": 1,
        "in_flight_tokens": 8192,
        "speculative_tokens": 0,
        "checkpoints_state": False,
        "has_group_manager": release.since("0.9.1"),
        **changes,
    }
    return KvRules(**fields)


def plan(
    spec: ModelSpec | None = None,
    *,
    version: str = "0.33.0",
    on: Node | None = None,
    draft: ModelSpec | None = None,
    env: Mapping[str, str] | None = None,
    **settings: object,
) -> MemoryPlan:
    """Return the memory plan of a model under these settings with every default filled in."""
    spec, on, release = spec or model(), on or node(count=8), parse_version(version)
    config = effective_config(EngineConfig(**settings), spec=spec, node=on, version=release)
    return plan_memory(spec=spec, node=on, config=config, version=release, draft=draft, env=env)
