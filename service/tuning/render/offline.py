"""llm.py: the same configuration for offline work with the `LLM` class."""

from collections.abc import Mapping

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.recommendation import RenderedFile
from service.tuning.engine.argv import given_settings, setting_argv
from service.tuning.engine.grammar import grammar
from service.tuning.render.rendering import Rendering
from service.tuning.render.text import commented, header

_SERVER_ONLY = frozenset({"served_model_name", "enable_log_requests", "data_parallel_size"})
"""Settings of the server; the `LLM` class refuses data parallelism of dense models."""


def llm_script(rendering: Rendering) -> RenderedFile:
    """Return llm.py: a script that answers one prompt offline."""
    left_out = sorted(name for name in given_settings(rendering.config) if _is_server_only(name))
    notes = header(rendering)
    if _spread_ranks(rendering.config) is not None:
        notes.append(
            "The LLM class takes no data-parallel ranks: tensor parallelism spreads the experts "
            "over as many GPUs."
        )
    if left_out:
        notes.append(f"Settings of the server alone are left out: {', '.join(left_out)}.")
    body = _SCRIPT.format(
        environment=_environment(rendering),
        arguments=_pretty({"model": rendering.argv[2], **_arguments(rendering)}),
    )
    return RenderedFile(path="llm.py", media_type="text/x-python", content=commented(notes) + body)


_SCRIPT = '''\
"""Offline inference with the settings of the recommendation."""

{environment}from vllm import LLM, SamplingParams

SETTINGS = {arguments}


def main() -> None:
    """Answer one prompt."""
    llm = LLM(**SETTINGS)
    outputs = llm.generate(["Hello, my name is"], SamplingParams(max_tokens=32))
    print(outputs[0].outputs[0].text)


if __name__ == "__main__":
    main()
'''


def _arguments(rendering: Rendering) -> dict[str, Json]:
    """Return keyword arguments; settings that the release lacks are refused as on its command."""
    found: dict[str, Json] = {}
    for name, value in given_settings(rendering.config).items():
        setting_argv(name, value, rendering.version)
        if _is_server_only(name):
            continue
        # The class takes the number that stands for auto on the command line.
        found[name] = -1 if name == "max_model_len" and value == "auto" else value
    ranks = _spread_ranks(rendering.config)
    return found if ranks is None else found | {"tensor_parallel_size": ranks}


def _spread_ranks(config: EngineConfig) -> int | None:
    """Return the tensor-parallel ranks that hold the experts of data-parallel ones, or None.

    Without them each engine would hold every expert, which is what they were spread for.
    """
    ranks = config.data_parallel_size or 1
    if ranks == 1 or not config.enable_expert_parallel:
        return None
    return ranks * (config.tensor_parallel_size or 1)


def _is_server_only(name: str) -> bool:
    setting = grammar().get(name)
    return name in _SERVER_ONLY or (setting is not None and setting.is_frontend)


def _environment(rendering: Rendering) -> str:
    if not rendering.plain_env:
        return ""
    return f"import os\n\nos.environ.update({_pretty(rendering.plain_env)})\n\n"


def _pretty(values: Mapping[str, Json]) -> str:
    """Return a dict literal, one entry a line."""
    lines = "".join(f"    {name!r}: {value!r},\n" for name, value in values.items())
    return f"{{\n{lines}}}"
