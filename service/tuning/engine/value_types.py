"""Values inside settings that are objects: what vLLM's own config objects take."""

from api_schemas.base import Json


def wrong_type(name: str, value: Json) -> tuple[str, str] | None:
    """Return the pointer below the setting and why vLLM refuses its value, or None.

    Source: vLLM 0.33.0 config/speculative.py and config/multimodal.py, which validate these
    objects with pydantic when the server starts.
    """
    if not isinstance(value, dict):
        return None
    if name == "speculative_config":
        return _wrong_speculation(value)
    if name == "limit_mm_per_prompt":
        return _wrong_limits(value)
    return None


def _wrong_speculation(config: dict[str, Json]) -> tuple[str, str] | None:
    for key in ("method", "model"):
        stated = config.get(key)
        if stated is not None and not isinstance(stated, str):
            return f"/{key}", f"speculative_config.{key} is a name, not {stated!r}"
    tokens = config.get("num_speculative_tokens")
    if tokens is not None and (_whole(tokens) or 0) < 1:
        return (
            "/num_speculative_tokens",
            f"num_speculative_tokens is a whole number from 1 up, not {tokens!r}",
        )
    return None


def _wrong_limits(config: dict[str, Json]) -> tuple[str, str] | None:
    for kind, limit in config.items():
        count = limit.get("count", 0) if isinstance(limit, dict) else limit
        if _whole(count) is None:
            return f"/{kind}", f"limit_mm_per_prompt.{kind} is a whole number, not {limit!r}"
    return None


def _whole(value: Json) -> int | None:
    """Return the number that vLLM reads: a whole one, also when written as text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None
