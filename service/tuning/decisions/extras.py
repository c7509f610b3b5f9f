"""Why settings are there that follow from the model or that the caller fixed."""

import msgspec

from api_schemas.explanation import Decision
from service.tuning.decisions.case import Case, decision
from service.tuning.decisions.sources import REQUEST, vllm

_LORA = ("enable_lora", "max_loras", "max_lora_rank")


def adapters(case: Case) -> list[Decision]:
    """Return why adapters are switched on, when the request names some."""
    lora = case.problem.model.lora
    if lora is None:
        return []
    return [
        decision(
            setting,
            getattr(case.config, setting),
            rule="CHO040",
            reason=f"The request serves {lora.max_adapters} adapters of rank {lora.max_rank} at "
            "most; vLLM reserves their memory at start.",
            inputs={"max_adapters": lora.max_adapters, "max_rank": lora.max_rank},
            source=(REQUEST, vllm("config/lora.py")),
            if_higher="More memory is reserved, and the kernels work on more padding.",
            if_lower="Adapters above it are refused or wait for each other.",
            confidence="high",
        )
        for setting in _LORA
        if not case.is_pinned(setting)
    ]


def pinned(case: Case, *, explained: set[str]) -> list[Decision]:
    """Return a decision for each fixed setting that no other one explains."""
    pin = case.problem.constraints.pin
    if pin is None:
        return []
    names = [field for field in pin.__struct_fields__ if getattr(pin, field) is not None]
    return [
        decision(
            name,
            msgspec.to_builtins(getattr(case.config, name)),
            rule="CHO041",
            reason="Fixed by the request; the other settings are chosen around it.",
            source=(REQUEST,),
            if_higher="Not examined: the request fixes the value.",
            if_lower="Not examined: the request fixes the value.",
            confidence="high",
        )
        for name in names
        if name not in explained
    ]
