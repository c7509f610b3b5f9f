"""Rules of speculative decoding: what it needs, and where it costs more than it brings."""

from collections.abc import Iterator
from difflib import get_close_matches

from api_schemas.workload import ClosedLoop
from service.tuning.engine.platform import speculative_method, speculative_tokens
from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    positive_int,
    thread,
    vllm,
    with_model,
    with_plan,
)

_SETTING = ("speculative_config",)
_MANY_TOKENS = {"mtp": 3, "draft_model": 8, "ngram": 8}
_SMALL_TARGET_BYTES = 4e9
"""Two billion weights in 16 bit."""
_MANY_REQUESTS = 64
_NEEDS_MODEL = frozenset({"draft_model", "eagle", "eagle3", "medusa", "mlp_speculator"})
_METHODS = _NEEDS_MODEL | {"ngram", "ngram_gpu", "mtp", "suffix", "custom_class"}
_METHODS |= {"dflash", "dspark", "extract_hidden_states"}
"""Methods of any release, beside those of single model families that end in _mtp."""
_LAYERS_ASSUMED = frozenset(
    {"longcat_flash", "step3p5", "step3p7", "step5", "step5_vl", "gemma4_assistant"}
    | {"gemma4_unified_assistant", "mimo", "mimo_v2", "mimo_v2_flash"}
)
"""Model types for which vLLM counts prediction layers where the config names none."""


def _unknown_method(context: RuleContext) -> Iterator[Remark]:
    stated = (context.given.speculative_config or {}).get("method")
    if stated is None or stated in _METHODS or str(stated).endswith("_mtp"):
        return
    near = get_close_matches(str(stated), sorted(_METHODS), n=2)
    yield Remark(
        message=f"No release of vLLM speculates by {str(stated)[:40]}.",
        suggestion=f"Use {' or '.join(near)}."
        if near
        else "Use ngram, eagle3, mtp or draft_model.",
    )


def _missing_tokens(context: RuleContext) -> Iterator[Remark]:
    method = speculative_method(context.given)
    # Without a method vLLM reads it from the drafter, whose config may state the depth.
    is_stated = "method" in (context.given.speculative_config or {})
    is_sure = is_stated or method == "ngram"
    if is_sure and method in {"ngram", "draft_model"} and speculative_tokens(context.given) == 0:
        yield Remark(
            message=f"Speculation by {method} needs num_speculative_tokens.",
            suggestion="2 to 5 is a usual range.",
        )


def _missing_model(context: RuleContext) -> Iterator[Remark]:
    config = context.given
    named = (config.speculative_config or {}).get("model") or config.spec_model
    if speculative_method(config) in _NEEDS_MODEL and not named:
        yield Remark(
            message=f"Speculation by {speculative_method(config)} needs a second model, and none"
            " is named.",
            suggestion="Name it as speculative_config.model (in a request: model.speculative.model"
            "), or draft by ngram.",
        )


def _no_prediction_layers(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    names_drafter = bool((context.given.speculative_config or {}).get("model"))
    if spec.model_type in _LAYERS_ASSUMED or names_drafter:
        return  # a drafter that is named brings the layers itself, as Gemma 4's assistants do
    if speculative_method(context.given) == "mtp" and spec.mtp_layers == 0:
        yield Remark(
            message="The config names no multi-token-prediction layers to draft with.",
            suggestion="Use another method, or a checkpoint that carries them.",
        )


def _media_with_drafter(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    if spec.is_multimodal and speculative_method(context.given) == "draft_model":
        yield Remark(
            message="This release drafts with a second model for text models only.",
            suggestion="Use 0.21.0 and newer, or leave the drafter out.",
        )


def _deep_drafts(context: RuleContext) -> Iterator[Remark]:
    method, tokens = speculative_method(context.given), speculative_tokens(context.given)
    most = _MANY_TOKENS.get(method or "", 16)
    if tokens > most:
        yield Remark(
            message=f"{tokens} draft tokens per step: acceptance falls with depth (0.84, 0.60,"
            " 0.39, 0.27 in one report), and every rejected token was computed for nothing.",
            suggestion=f"Stop at 2 or {max(3, most)}: where the next token is accepted less than"
            " half the time.",
        )


def _small_target(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    spec = context.spec
    is_quantised = spec is None or spec.quantization is not None
    weights = plan.weights_bytes * context.tensor_parallel_size * context.pipeline_parallel_size
    is_drafting = speculative_method(context.given) is not None
    if is_drafting and not is_quantised and weights < _SMALL_TARGET_BYTES:
        yield Remark(
            message="The model is so small that drafting costs more than a step saves: 342 fell to"
            " 128 tokens/s with 97 % acceptance in one report.",
            suggestion="Leave speculation out for models below two billion weights.",
        )


def _busy_server(context: RuleContext) -> Iterator[Remark]:
    arrivals = context.workload.arrivals if context.workload is not None else None
    if speculative_method(context.given) is None or not isinstance(arrivals, ClosedLoop):
        return
    if arrivals.max_concurrency >= _MANY_REQUESTS:
        yield Remark(
            message=f"With {arrivals.max_concurrency} requests in flight steps are bound by"
            " arithmetic, and rejected drafts take it from others.",
            suggestion="Measure with and without; speculation shines at low concurrency.",
        )


def _narrow_budget(context: RuleContext) -> Iterator[Remark]:
    tokens = speculative_tokens(context.effective)
    seqs = positive_int(context.effective.max_num_seqs)
    budget = positive_int(context.effective.max_num_batched_tokens)
    if tokens and seqs and budget and budget < seqs * (1 + tokens):
        yield Remark(
            setting="max_num_batched_tokens",
            message=f"A full batch of {seqs} requests with {tokens} drafts each takes"
            f" {seqs * (1 + tokens)} tokens, more than the {budget} of a step.",
            suggestion=f"Raise the budget to {seqs * (1 + tokens)}, or lower max_num_seqs.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="SPC001",
        title="Drafting needs a depth",
        help="Prompt look-up and draft models do not state how many tokens to draft.",
        settings=_SETTING,
        severity="error",
        since="0.8.2",
        source=(vllm("config/speculative.py"),),
        check=_missing_tokens,
    ),
    Rule(
        id="SPC002",
        title="MTP needs prediction layers in the checkpoint",
        help="Multi-token prediction drafts with layers that were trained with the model.",
        settings=_SETTING,
        severity="error",
        source=(vllm("config/speculative.py"),),
        check=with_model(_no_prediction_layers),
    ),
    Rule(
        id="SPC003",
        title="Draft models and media exclude each other in 0.20",
        help="Releases 0.20.x stop with a multimodal target and a drafter of its own.",
        settings=_SETTING,
        severity="error",
        since="0.20.0",
        until="0.21.0",
        source=(thread("issue 42005"),),
        check=with_model(_media_with_drafter),
    ),
    Rule(
        id="SPC004",
        title="Very deep drafts",
        help="Each further token is accepted less often. One layer that is applied again and"
        " again (MTP) fades fastest.",
        settings=_SETTING,
        severity="warning",
        source=(thread("issue 343", repository="eugr/spark-vllm-docker"),),
        check=_deep_drafts,
    ),
    Rule(
        id="SPC005",
        title="Speculation for very small models",
        help="A step of a small model is bound by overhead, which drafting only adds to.",
        settings=_SETTING,
        severity="warning",
        source=(thread("issue 39680"),),
        check=with_plan(_small_target),
    ),
    Rule(
        id="SPC006",
        title="Speculation under high concurrency",
        help="It trades arithmetic that is free at low load for fewer steps.",
        settings=_SETTING,
        severity="note",
        source=(thread("issue 343", repository="eugr/spark-vllm-docker"),),
        check=_busy_server,
    ),
    Rule(
        id="SPC007",
        title="A step holds the drafts of a full batch",
        help="Every running request takes one token and its drafts per step.",
        settings=_SETTING,
        severity="warning",
        source=(vllm("v1/core/sched/scheduler.py"),),
        check=_narrow_budget,
    ),
    Rule(
        id="SPC009",
        title="The method of speculation is known",
        help="The name is checked against a list when the engine is configured.",
        settings=_SETTING,
        severity="error",
        since="0.8.2",
        source=(vllm("config/speculative.py: SpeculativeMethod"),),
        check=_unknown_method,
    ),
    Rule(
        id="SPC008",
        title="A draft model must be named",
        help="Drafting with a second model does not start without its name.",
        settings=_SETTING,
        severity="error",
        since="0.8.2",
        source=(vllm("config/speculative.py"),),
        check=_missing_model,
    ),
)
