"""vllm.yaml: the file that `vllm serve --config` reads.

Facts from the loader of vllm 0.33.0 (utils/argparse_utils.py, load_config_file): keys are flag
names; true becomes the flag alone; false is dropped, so an off switch is written as the negative
flag set to true; lists become repeated values, objects become JSON (from 0.16.0 on).
"""

import shlex

from api_schemas.base import Json
from api_schemas.recommendation import RenderedFile
from service.tuning.engine.argv import given_settings, setting_argv
from service.tuning.engine.grammar import grammar
from service.tuning.engine.versions import EngineVersion
from service.tuning.render.rendering import Rendering
from service.tuning.render.text import dump_yaml, header

_MODEL_KEY_SINCE = "0.9.0"
_OBJECTS_SINCE = "0.16.0"


def vllm_yaml(rendering: Rendering) -> RenderedFile:
    """Return vllm.yaml with every stated setting, and the model where the loader takes it."""
    model = rendering.argv[2]
    has_model = rendering.version.since(_MODEL_KEY_SINCE)
    entries: dict[str, Json] = {"model": model} if has_model else {}
    for name, value in given_settings(rendering.settings).items():
        entries |= yaml_entry(name, value, rendering.version)
    positional = "" if has_model else f"{shlex.quote(model)} "
    notes = [
        *header(rendering),
        f"Start with: vllm serve {positional}--config vllm.yaml",
        "A key set to false would be dropped by the loader: use the no- form set to true.",
    ]
    return RenderedFile(
        path="vllm.yaml",
        media_type="application/yaml",
        content=dump_yaml(entries, notes=notes),
    )


def yaml_entry(name: str, value: Json, version: EngineVersion) -> dict[str, Json]:
    """Return one setting as the loader reads it; empty when nothing needs to be said.

    Raises:
        InvalidRequest: the release lacks the setting or cannot take the value.
    """
    arguments = setting_argv(name, value, version)
    if not arguments:
        return {}
    flag, _, joined = arguments[0].partition("=")
    key = flag.removeprefix("--")
    if isinstance(value, bool):
        return {key: joined or True}
    if joined:
        # The loader writes key and value apart; a value with a dash must stay behind its "=".
        return {f"{key}={joined}": True}
    if isinstance(value, list):
        is_repeated = grammar()[name].is_repeated
        return {f"{key}={item}": True for item in value} if is_repeated else {key: value}
    if isinstance(value, dict) and version.since(_OBJECTS_SINCE):
        return {key: value}
    return {key: value if isinstance(value, int | float) else arguments[1]}
