"""Rules of images, videos and audio: what must fit a step, a request, a rank."""

from collections.abc import Iterator

from api_schemas.engine import EngineConfig
from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    positive_int,
    thread,
    vllm,
    with_model,
)
from service.tuning.rules.domains import (
    disables_media,
    multimodal_floor_tokens,
    multimodal_started_tokens,
)

_LIMITS = ("limit_mm_per_prompt",)


def item_limit(config: EngineConfig, kind: str) -> int | None:
    """Return the most items of a kind per prompt; None where nothing usable is said."""
    limits = config.limit_mm_per_prompt
    found: object = limits.get(kind) if isinstance(limits, dict) else None
    if isinstance(found, dict):
        found = found.get("count")
    return 0 if found == 0 and not isinstance(found, bool) else positive_int(found)


def _whole_item(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    floor = multimodal_floor_tokens(spec, context.effective, context.version)
    # vLLM raises its own default to hold an item, so only a stated budget can be too small.
    budget = positive_int(context.given.max_num_batched_tokens)
    if budget is not None and budget < floor:
        started = multimodal_started_tokens(spec, context.effective, context.version)
        yield Remark(
            severity="error" if budget < started else "warning",
            message=f"One media item of {spec.model_type} takes up to {floor} tokens and is never"
            f" cut, but a step has {budget}.",
            suggestion=f"Set max_num_batched_tokens to {floor} or more, or language_model_only.",
        )


def _many_images(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    stated = item_limit(context.given, "image")
    images = 1 if stated is None else stated
    largest = spec.vision.max_image_tokens if spec.vision is not None else 0
    if not images or not largest or disables_media(context.given):
        return
    needed = images * largest
    length = positive_int(context.effective.max_model_len)
    budget = positive_int(context.effective.max_num_batched_tokens)
    if length is not None and needed > length:
        yield Remark(
            severity="note" if stated is None else "warning",
            message=f"{images} image(s) of maximal size take {needed} tokens, more than"
            f" max_model_len={length}.",
            suggestion="Cap the pixels (mm_processor_kwargs), the images, or raise the length.",
        )
    elif budget is not None and images > 1 and needed > budget:
        yield Remark(
            setting="max_num_batched_tokens",
            message=f"{images} images of maximal size take {needed} tokens, more than one step of"
            f" {budget}: they are encoded over several steps, which old engines could not do.",
            suggestion=f"Raise max_num_batched_tokens above {needed}, or cap the pixels.",
        )


def _video_reserved(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    has_images = item_limit(context.given, "image")
    kind = spec.vision.kind.lower() if spec.vision is not None else ""
    takes_video = "qwen" in f"{kind} {spec.model_type}"
    if has_images and takes_video and item_limit(context.given, "video") is None:
        yield Remark(
            message="Only images are limited: vLLM still sets a worst-case video aside, which may"
            " be as large as all images.",
            suggestion='Add "video": 0 when no videos are sent.',
        )


def _limits_without_media(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    if context.given.limit_mm_per_prompt and not spec.is_multimodal:
        yield Remark(
            message="The model takes text only, so there is nothing to limit.",
            suggestion="Leave limit_mm_per_prompt out.",
        )


def _encoder_heads(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    vision, ranks = spec.vision, context.tensor_parallel_size
    is_whole = context.given.mm_encoder_tp_mode == "data" or disables_media(context.given)
    if vision is None or not vision.sharded or is_whole or vision.num_heads <= 0:
        return
    if vision.num_heads % ranks:
        yield Remark(
            message=f"The encoder's {vision.num_heads} heads do not divide by {ranks} ranks.",
            suggestion="Set mm_encoder_tp_mode=data, which gives every rank the whole encoder.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="MMD001",
        title="A step holds one whole media item",
        help="Models whose image tokens look at each other (Gemma 3 and 4) cannot cut an item"
        " over steps. The step budget must hold the largest one.",
        settings=("max_num_batched_tokens",),
        severity="error",
        since="0.8.0",
        source=(thread("PR 2", repository="decoderesearch/interp-engine"),),
        check=with_model(_whole_item),
    ),
    Rule(
        id="MMD002",
        title="Room for as many images as are allowed",
        help="vLLM profiles with images of maximal size. It is a warning: usual images are much"
        " smaller, and capping the pixels frees the room.",
        settings=_LIMITS,
        severity="warning",
        source=(thread("issue 18266"), thread("issue 11842")),
        check=with_model(_many_images),
    ),
    Rule(
        id="MMD003",
        title="Videos that nobody sends are set aside too",
        help="Every kind that is not limited counts once with its worst case.",
        settings=_LIMITS,
        severity="note",
        source=(thread("issue 15802"),),
        check=with_model(_video_reserved),
    ),
    Rule(
        id="MMD004",
        title="Media limits on a text model",
        help="A leftover of another model.",
        settings=_LIMITS,
        severity="note",
        source=(vllm("config/multimodal.py"),),
        check=with_model(_limits_without_media),
    ),
    Rule(
        id="MMD005",
        title="The encoder's heads divide by the tensor-parallel size",
        help="Most encoders are cut like the language model. mm_encoder_tp_mode=data copies them"
        " instead.",
        settings=("tensor_parallel_size",),
        severity="error",
        source=(vllm("tools/recipes/model_constraints.py"),),
        check=with_model(_encoder_heads),
    ),
)
