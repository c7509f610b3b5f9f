"""Default `max_num_batched_tokens` and `max_num_seqs` per release, GPU and entry point."""

from typing import Literal, NamedTuple

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.package_data import read_facts
from service.tuning.engine.platform import generation, is_cpu
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Gpu, Node
from service.tuning.models.spec import ModelSpec

Usage = Literal["serve", "llm"]


class Limits(NamedTuple):
    """What one step may hold: tokens, and requests."""

    tokens: int
    seqs: int


_V0_SEQS = 256
_V0_TOKENS = 2048
_V0_OLD_TOKENS = 512
"""V0 with chunked prefill: 512 up to 0.6.4, 2048 after (vllm config.py of those releases)."""


def batch_limits(
    config: EngineConfig, *, spec: ModelSpec, node: Node, version: EngineVersion, usage: Usage
) -> Limits:
    """Return the two limits of `config`, each as given or as that release fills it in.

    `enable_chunked_prefill` and the parallel sizes must be filled in already. Follows
    `_set_default_max_num_seqs_and_batched_tokens_args` of vllm 0.33.0 engine/arg_utils.py.
    """
    tokens, seqs = _starting_point(config, node=node, version=version, usage=usage)
    if config.performance_mode == "throughput" and version.since("0.17.0"):
        tokens, seqs = 2 * tokens, 2 * seqs
    seqs = _given(config.max_num_seqs, seqs)
    least = _whole_item_tokens(config, spec=spec, version=version)
    fitted = _fitted_tokens(tokens, seqs=seqs, config=config, least=least)
    tokens = _given(config.max_num_batched_tokens, fitted)
    if config.max_num_seqs is None:
        seqs = min(seqs, tokens)
    return Limits(tokens=tokens, seqs=seqs)


def _whole_item_tokens(config: EngineConfig, *, spec: ModelSpec, version: EngineVersion) -> int:
    """Return the largest media item that a default budget is raised to hold; 0 for none.

    Only models whose image tokens attend to each other keep items whole. Gemma 4's small ones,
    known by their embeddings per layer, are none of them.
    """
    facts = read_facts("batch_defaults")["whole_item"]
    if not version.since(facts["since"]) or spec.per_layer_input_size or _is_text_only(config):
        return 0
    return int(facts["tokens"].get(spec.architecture, 0))


def _is_text_only(config: EngineConfig) -> bool:
    limits = (config.limit_mm_per_prompt or {}).values()
    return config.language_model_only is True or (bool(limits) and not any(limits))


def _fitted_tokens(tokens: int, *, seqs: int, config: EngineConfig, least: int) -> int:
    """Return the default budget fitted to the longest sequence.

    Without chunking a whole prompt must fit; with short sequences more could never be filled.
    """
    tokens = max(tokens, least)
    length = config.max_model_len
    if not isinstance(length, int) or length < 1:
        return tokens
    if config.enable_chunked_prefill is False:
        tokens = max(length, tokens)
    return min(seqs * length, tokens) if seqs > 0 else tokens


def _starting_point(
    config: EngineConfig, *, node: Node, version: EngineVersion, usage: Usage
) -> Limits:
    if is_cpu(node.gpu):
        return _cpu_limits(config, usage=usage)
    if generation(node.gpu, version) == "V0":
        return Limits(tokens=_v0_tokens(config, version=version), seqs=_V0_SEQS)
    tier = _tier(node, version=version)
    tokens = tier["serve_tokens"] if usage == "serve" else tier["llm_tokens"]
    if _uses_batched_expert_exchange(config, version=version):
        tokens = read_facts("batch_defaults")["batched_dp_moe"]["tokens"]
    return Limits(tokens=tokens, seqs=tier["max_num_seqs"])


def _cpu_limits(config: EngineConfig, *, usage: Usage) -> Limits:
    facts = read_facts("batch_defaults")["cpu"]
    world_size = _given(config.tensor_parallel_size, 1) * _given(config.pipeline_parallel_size, 1)
    return Limits(
        tokens=facts[f"{usage}_tokens"] * world_size, seqs=facts[f"{usage}_seqs"] * world_size
    )


def _v0_tokens(config: EngineConfig, *, version: EngineVersion) -> int:
    if config.enable_chunked_prefill:
        return _V0_TOKENS if version.since("0.6.5") else _V0_OLD_TOKENS
    return _V0_TOKENS


def _tier(node: Node, *, version: EngineVersion) -> dict[str, Json]:
    periods = [p for p in read_facts("batch_defaults")["periods"] if version.since(p["since"])]
    tiers: list[dict[str, Json]] = periods[-1]["tiers"]
    return next(tier for tier in tiers if _is_in_tier(node, tier))


def _is_in_tier(node: Node, tier: dict[str, Json]) -> bool:
    name = _device_name(node.gpu)
    if node.total_memory_gib < tier.get("min_total_gib", 0):
        return False
    if "name_has" in tier and not any(part in name for part in tier["name_has"]):
        return False
    if any(part in name for part in tier.get("name_lacks", ())):
        return False
    excluded = tier.get("other_than_compute_capability")
    return excluded is None or node.gpu.compute_capability != tuple(excluded)


def _device_name(gpu: Gpu) -> str:
    """Return the name that vLLM's test looks into, in lower case."""
    return (gpu.driver_name or gpu.name).lower()


def _uses_batched_expert_exchange(config: EngineConfig, *, version: EngineVersion) -> bool:
    facts = read_facts("batch_defaults")["batched_dp_moe"]
    return (
        version.since(facts["since"])
        and config.all2all_backend in facts["all2all_backends"]
        and bool(config.enable_expert_parallel)
        and _given(config.data_parallel_size, 1) > 1
    )


def _given(value: int | None, default: int) -> int:
    return default if value is None else value
