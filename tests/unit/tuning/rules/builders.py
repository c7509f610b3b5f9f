"""Contexts with good defaults for tests of the rules: a Llama 8B on one H100, newest release."""

from functools import cache

import msgspec

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.explanation import Finding
from api_schemas.hardware import Hardware
from api_schemas.model import Lora, ModelRef
from api_schemas.workload import ClosedLoop, Workload
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import EngineVersion, parse_version
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.hardware.spec import Node
from service.tuning.memory.budget import plan_memory
from service.tuning.models.catalogue import resolve_model
from service.tuning.models.spec import ModelSpec
from service.tuning.rules import check_rules
from service.tuning.rules.base import RuleContext

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
QWEN_MOE_FP8 = "Qwen/Qwen3-30B-A3B-FP8"
QWEN_HYBRID = "Qwen/Qwen3.6-27B"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
GPT_OSS = "openai/gpt-oss-20b"
GEMMA_4 = "google/gemma-4-31B-it"


@cache
def spec_of(name: str) -> ModelSpec:
    """Return the bundled model of this id."""
    return resolve_model(ModelRef(id=name))


def node_of(gpu: str = "H100-SXM5-80GB", gpus: int = 1, **changes: Json) -> Node:
    """Return a node of the catalogue, with other fields of the request as stated."""
    request = {"gpu": gpu, "gpus_per_node": gpus, **changes}
    return resolve_hardware(msgspec.convert(request, Hardware))[0]


def version(text: str = "0.33.0") -> EngineVersion:
    """Return a release."""
    return parse_version(text)


def workload(
    *, prompt: int = 1000, output: int = 200, concurrency: int = 8, shared: int = 0
) -> Workload:
    """Return a workload of fixed lengths and a fixed number of requests in flight."""
    return Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        arrivals=ClosedLoop(max_concurrency=concurrency),
        shared_prefix_tokens=shared,
    )


def situation(
    *,
    model: str | None = LLAMA_8B,
    gpu: str | None = "H100-SXM5-80GB",
    gpus: int = 1,
    hardware: dict[str, Json] | None = None,
    release: str = "0.33.0",
    env: dict[str, str] | None = None,
    load: Workload | None = None,
    lora: Lora | None = None,
    planned: bool = True,
    **settings: Json,
) -> RuleContext:
    """Return the context of these settings; `planned` adds the memory plan where it can."""
    given = EngineConfig(**settings)
    spec = spec_of(model) if model is not None else None
    node = node_of(gpu, gpus, **(hardware or {})) if gpu is not None else None
    at = version(release)
    effective, plan = given, None
    if spec is not None and node is not None:
        effective = effective_config(given, spec=spec, node=node, version=at)
        if planned:
            plan = plan_memory(spec=spec, node=node, config=effective, version=at)
    return RuleContext(
        version=at,
        given=given,
        effective=effective,
        spec=spec,
        node=node,
        plan=plan,
        model=ModelRef(id=model or "x", lora=lora),
        workload=load,
        env=env or {},
    )


def findings(context: RuleContext, rule: str) -> list[Finding]:
    """Return what one rule finds."""
    return [finding for finding in check_rules(context) if finding.rule == rule]
