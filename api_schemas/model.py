"""Which model is asked about."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Fraction, Json, ModelId, Name, Value

SpeculativeMethod = Literal["eagle", "eagle3", "mtp", "ngram", "draft_model"]


class Lora(Value, frozen=True, kw_only=True):
    """Adapters that are served beside the base model."""

    max_rank: Annotated[int, Meta(ge=1, le=512, description="Largest adapter rank.")]
    max_adapters: Annotated[int, Meta(ge=1, le=1024, description="Adapters on the GPU at once.")]


class Speculative(Value, frozen=True, kw_only=True):
    """Speculative decoding: how tokens are drafted and how many are accepted."""

    method: SpeculativeMethod
    num_tokens: Annotated[int, Meta(ge=1, le=64, description="Draft tokens per step.")]
    acceptance: (
        Annotated[Fraction, Meta(description="Share of draft tokens that are accepted.")] | None
    ) = None
    model: "ModelRef | None" = None


class ModelRef(Value, frozen=True, kw_only=True):
    """A model by id, or by its Hugging Face config.json given inline."""

    id: ModelId
    revision: Name | None = None
    config: (
        Annotated[
            dict[str, Json],
            Meta(description="The model's config.json as it is; it wins over the catalogue."),
        ]
        | None
    ) = None
    weights_bytes: (
        Annotated[int, Meta(ge=1, le=10**14, description="Total bytes of the checkpoint's files.")]
        | None
    ) = None
    lora: Lora | None = None
    speculative: Speculative | None = None
