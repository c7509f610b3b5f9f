"""Speculative decoding: how many tokens a step drafts, verifies and keeps."""

from api_schemas.engine import EngineConfig
from api_schemas.model import Speculative
from service.tuning.engine.platform import speculative_method, speculative_tokens
from service.tuning.latency.work import Speculation
from service.tuning.models.spec import ModelSpec

DEFAULT_ACCEPTANCE = {
    "eagle": 0.45,
    "eagle3": 0.55,
    "mtp": 0.65,
    "draft_model": 0.5,
    "ngram": 0.25,
}
"""Share of draft tokens kept when the caller does not say: mid-range of what vLLM's speculation
reports print for chat; it depends on the text, so an answer that rests on it is wide."""
_DRAFT_LAYERS = {"eagle": 1.0, "eagle3": 1.0, "mtp": 1.0, "ngram": 0.1}
_DRAFT_MODEL_SHARE = 0.2
"""Layers of a small draft model over those of its target."""


def read_speculation(
    *, spec: ModelSpec, config: EngineConfig, speculative: Speculative | None
) -> Speculation | None:
    """Return the speculation that the request or the engine's settings ask for; None without."""
    if speculative is not None:
        return _speculation(
            spec, speculative.method, speculative.num_tokens, speculative.acceptance
        )
    tokens, method = speculative_tokens(config), speculative_method(config)
    if tokens <= 0 or method is None:
        return None
    return _speculation(spec, method, tokens, None)


def _speculation(
    spec: ModelSpec, method: str, num_tokens: int, acceptance: float | None
) -> Speculation:
    typical = DEFAULT_ACCEPTANCE.get(method, 0.4)
    return Speculation(
        num_tokens=num_tokens,
        acceptance=typical if acceptance is None else acceptance,
        draft_layers=_DRAFT_LAYERS.get(method, _DRAFT_MODEL_SHARE * spec.num_layers),
    )
