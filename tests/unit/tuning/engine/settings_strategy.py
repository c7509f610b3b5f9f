"""Configurations that a release can take, for property tests."""

from hypothesis import strategies as st

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.facts import choices, is_known
from service.tuning.engine.grammar import Setting, grammar
from service.tuning.engine.versions import EngineVersion

_COUNTS = st.integers(1, 100_000)
_TEXTS = st.text(
    alphabet=st.characters(min_codepoint=32, max_codepoint=1000, categories=("L", "N", "P", "Z")),
    min_size=1,
    max_size=20,
).filter(lambda text: text != "None" and not text.lstrip().startswith("{"))
_JSON = st.dictionaries(
    st.text("abcdef_", min_size=1, max_size=6),
    st.integers(-5, 5) | st.booleans() | st.text(max_size=5) | st.lists(st.integers(0, 3)),
    max_size=3,
)
_FLOATS = st.floats(0, 1000, allow_nan=False)


def _items(setting: Setting) -> st.SearchStrategy[Json]:
    match setting.kind:
        case "boolean" | "switch":
            return st.booleans()
        case "int" | "size" | "size_or_auto":
            return _COUNTS
        case "float":
            return _FLOATS
        case "json":
            return _JSON
        case _:
            return _TEXTS


def values(setting: Setting, version: EngineVersion) -> st.SearchStrategy[Json]:
    """Return values that the release's command line takes for the setting."""
    allowed = choices(setting.name, version) or setting.choices
    items = st.sampled_from(list(allowed)) if allowed else _items(setting)
    if setting.is_list or setting.is_repeated:
        plain = items.filter(lambda item: not str(item).startswith("-"))
        # A repeated flag becomes one YAML key per value, so the same value twice has no form there.
        unique_by = str if setting.is_repeated else None
        return st.lists(plain, min_size=1, max_size=3, unique_by=unique_by)
    return items


@st.composite
def configs(draw: st.DrawFn, version: EngineVersion, *, most: int = 8) -> EngineConfig:
    """Return a configuration of a few random settings of that release."""
    usable = [s for s in grammar().values() if is_known(s.name, version)]
    if not version.since("0.9.0"):
        usable = [s for s in usable if s.name not in {"limit_mm_per_prompt", "use_tqdm_on_load"}]
    chosen = draw(
        st.lists(st.sampled_from(usable), max_size=most, unique_by=lambda setting: setting.name)
    )
    return EngineConfig(**{s.name: draw(values(s, version)) for s in chosen})
