"""The command that starts a recommended configuration under an installed release."""

import msgspec

from api_schemas.base import Json  # noqa: TC001  # a field or a variable of it is read at run time
from api_schemas.engine import EngineConfig
from service.tuning.engine.argv import given_settings, setting_argv
from service.tuning.engine.versions import EngineVersion
from service.tuning.errors import InvalidRequest

_OURS = (
    "host",
    "port",
    "uds",
    "served_model_name",
    "root_path",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_ca_certs",
    "api_server_count",
    "headless",
    "log_config_file",
)
"""Settings of where and how to listen: a measurement chooses its own."""
_LOADS_CODE = (
    "trust_remote_code",
    "middleware",
    "logits_processors",
    "worker_cls",
    "worker_extension_cls",
    "scheduler_cls",
    "tool_parser_plugin",
    "reasoning_parser_plugin",
    "io_processor_plugin",
    "model_class_overrides",
    "kv_transfer_config",
    "ec_transfer_config",
)
"""Settings that make vLLM import code of the caller's choice."""
_CPU_BLOCK_TOKENS = 32
"""vLLM's CPU kernels want blocks of a multiple of 32 tokens (vllm 0.32.0, CPU build)."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What is started, and how it differs from what was recommended."""

    config: EngineConfig
    """The settings that the command really carries."""
    flags: list[str]
    notes: list[str]


def launch_of(config: EngineConfig, *, version: EngineVersion, allow_code: bool = False) -> Launch:
    """Return the flags for this release; settings that it lacks are left out and noted.

    What would load code is left out as well, unless the node's operator allowed it: whoever may
    ask for a recommendation must not get to run programs on the worker.
    """
    flags: list[str] = []
    notes: list[str] = []
    left_out: dict[str, Json] = {}
    for name, value in given_settings(config).items():
        if name in _OURS:
            left_out[name] = None
            continue
        if name in _LOADS_CODE and not allow_code:
            left_out[name] = None
            notes.append(f"{name} was left out: it loads code (SETPOINT_WORKER_ALLOW_CODE).")
            continue
        try:
            flags += setting_argv(name, value, version)
        except InvalidRequest as error:
            left_out[name] = None
            notes.append(f"{name} was left out: {error.message}")
    return Launch(config=msgspec.structs.replace(config, **left_out), flags=flags, notes=notes)


def adapt_to_cpu(config: EngineConfig, *, kv_cache_bytes: int) -> tuple[EngineConfig, list[str]]:
    """Return the configuration as vLLM's CPU backend can run it, and what was changed.

    The pool is always given in bytes: by itself the CPU backend takes a share of all memory.
    """
    changes: dict[str, Json] = {"gpu_memory_utilization": None, "enforce_eager": True}
    changes["kv_cache_memory_bytes"] = kv_cache_bytes
    notes = [f"On the CPU the KV cache is given as {kv_cache_bytes} bytes."]
    if config.enforce_eager is False:
        notes.append("enforce_eager is on: the CPU backend has no CUDA graphs.")
    block = config.block_size
    if block is not None and block % _CPU_BLOCK_TOKENS:
        rounded = -(-block // _CPU_BLOCK_TOKENS) * _CPU_BLOCK_TOKENS
        changes["block_size"] = rounded
        notes.append(f"block_size is {rounded} instead of {block}: the CPU kernels want 32s.")
    return msgspec.structs.replace(config, **changes), notes


def serve_command(
    launch: Launch, *, executable: str, model: str, served_name: str, port: int
) -> list[str]:
    """Return the argument list; the model is a path or an id, the name is the one requests use."""
    where = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", served_name]
    return [executable, "serve", model, *launch.flags, *where]
