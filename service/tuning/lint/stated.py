"""A configuration that is given as such, in the shape that readers give."""

import msgspec

from api_schemas.engine import EngineConfig
from service.tuning.lint.found import FoundEngine, Given
from service.tuning.lint.text import Span

_NOWHERE = Span(0, 0)


def stated_engine(config: EngineConfig) -> FoundEngine:
    """Return the engine with these settings."""
    settings = msgspec.to_builtins(config)
    return FoundEngine(
        title="configuration",
        form="python",
        span=_NOWHERE,
        given=tuple(Given(n, v, _NOWHERE, _NOWHERE) for n, v in settings.items()),
    )
