"""Pinned settings: what the release does not know is refused before anything is searched."""

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.facts import refusal
from service.tuning.engine.value_types import wrong_type
from service.tuning.engine.versions import EngineVersion
from service.tuning.errors import InvalidRequest

_AUTO = -1
"""Another spelling of auto: vllm 0.14.0 engine/arg_utils.py."""
_MOST_SHOWN = 8
_FROM_ONE = frozenset(
    {
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size",
    }
)


def check_pins(pin: EngineConfig | None, version: EngineVersion) -> None:
    """Refuse a pinned setting that the release lacks, or a value that no release takes.

    Raises:
        InvalidRequest: With the pointer of the setting and what replaced it.
    """
    if pin is None:
        return
    for name in pin.__struct_fields__:
        if getattr(pin, name) is None:
            continue
        reason = refusal(name, version) or _out_of_range(name, getattr(pin, name))
        if reason is not None:
            raise InvalidRequest(reason, pointer=f"/constraints/pin/{name}")
        if (wrong := wrong_type(name, getattr(pin, name))) is not None:
            raise InvalidRequest(wrong[1], pointer=f"/constraints/pin/{name}{wrong[0]}")


def _out_of_range(name: str, value: Json) -> str | None:
    """Return why no release takes the value, or None."""
    if name in _FROM_ONE and value < 1:
        return f"{name} is a whole number from 1 up, not {value}"
    if name == "gpu_memory_utilization" and not 0 < value <= 1:
        return f"gpu_memory_utilization is a share above 0 and at most 1, not {value}"
    if name == "max_model_len" and isinstance(value, int) and value < 1 and value != _AUTO:
        return f"max_model_len is a number of tokens or auto, not {value}"
    if name == "cudagraph_capture_sizes" and (not value or min(value) < 1):
        return f"cudagraph_capture_sizes lists batch sizes from 1 up, not {value[:_MOST_SHOWN]}"
    return None
