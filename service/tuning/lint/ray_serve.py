"""Ray Serve LLM: `llm_configs` in a serve configuration or inside a RayService.

Key names from docs.ray.io, Serving LLMs: model_loading_config and engine_kwargs.
"""

from collections.abc import Iterator

from service.tuning.lint.found import FoundEngine, Given, Reading, Word
from service.tuning.lint.manifest_words import word_of
from service.tuning.lint.template import open_part
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, find, items, plain


def is_serve_config(document: Node) -> bool:
    """Whether the document lists applications with LLM configurations."""
    return any(True for _ in _configs(document))


def read_serve_config(document: Node, content: str) -> Reading:
    """Return one engine for each LLM configuration."""
    engines = [_engine(config, content) for config in _configs(document)]
    return Reading(engines=tuple(engines))


def _configs(document: Node) -> Iterator[Mapping]:
    lists = [items(app, "args", "llm_configs") for app in items(document, "applications")]
    for configs in (*lists, items(document, "llm_configs")):
        yield from (config for config in configs if isinstance(config, Mapping))


def _engine(config: Mapping, content: str) -> FoundEngine:
    kwargs = find(config, "engine_kwargs")
    given = [] if not isinstance(kwargs, Mapping) else list(kwargs.all_entries())
    model = _model(config, content)
    return FoundEngine(
        title=f"Ray Serve LLM {model.value if model else ''}".strip(),
        form="python",
        span=config.span,
        given=tuple(_given(key, value, content) for key, value in given),
        model=model,
    )


def _given(key: Scalar, value: Node, content: str) -> Given:
    unresolved = open_part(value.text, content) if isinstance(value, Scalar) else None
    return Given(key.text.value, plain(value), key.span, value.span, unresolved)


def _model(config: Mapping, content: str) -> Word | None:
    loading = find(config, "model_loading_config")
    for name in ("model_source", "model_id"):
        node = find(loading, name)
        if isinstance(node, Scalar) and node.value is not None:
            return word_of(node, content)
    return None
