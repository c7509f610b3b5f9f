"""Pinned settings: what the release does not know is refused before anything is searched."""

from api_schemas.engine import EngineConfig
from service.tuning.engine.facts import refusal
from service.tuning.engine.versions import EngineVersion
from service.tuning.errors import InvalidRequest


def check_pins(pin: EngineConfig | None, version: EngineVersion) -> None:
    """Refuse a pinned setting that the release lacks.

    Raises:
        InvalidRequest: With the pointer of the setting and what replaced it.
    """
    if pin is None:
        return
    for name in pin.__struct_fields__:
        if getattr(pin, name) is None:
            continue
        reason = refusal(name, version)
        if reason is not None:
            raise InvalidRequest(reason, pointer=f"/constraints/pin/{name}")
