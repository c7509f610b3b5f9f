"""What the renderers write, the readers read: the same settings in every format."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import parse_version
from service.tuning.lint.found import FoundEngine
from service.tuning.lint.interpret import Interpreted, interpret
from service.tuning.lint.reading import read_file
from service.tuning.render.files import render_all
from service.tuning.render.rendering import Rendering
from tests.unit.tuning.engine.settings_strategy import configs
from tests.unit.tuning.render.examples import CONFIGS, config, rendering, stated

_READ_BACK = (
    "serve.sh",
    "vllm.yaml",
    "compose.yaml",
    "deployment.yaml",
    "values.yaml",
    "inference-service.yaml",
    "llm.py",
)
_BY_THE_CHART = frozenset({"tensor_parallel_size", "enable_prefix_caching", "host", "port"})
"""What the production stack's chart says itself where the configuration says nothing."""
_ENV = {"VLLM_LOGGING_LEVEL": "DEBUG", "TEXT": "a 'b' \"c\" $d $(e)"}


def _contents(what: Rendering) -> dict[str, str]:
    return {file.path: file.content for file in render_all(what) if file.path in _READ_BACK}


def _engine(path: str, content: str) -> FoundEngine:
    (engine,) = read_file(path, content).engines
    return engine


def _same(left: Json, right: Json) -> bool:
    if isinstance(left, float) and isinstance(right, int | float):
        return math.isclose(left, right)
    return bool(left == right)


def _assert_same(path: str, read: Interpreted, what: Rendering) -> None:
    """Assert that a file says the rendering's settings and nothing else."""
    wanted, found = stated(what.settings), stated(read.config)
    if path == "values.yaml":
        wanted = {name: v for name, v in wanted.items() if name not in {"host", "port"}}
        found = {n: v for n, v in found.items() if n in wanted or n not in _BY_THE_CHART}
    if path == "llm.py":
        wanted = {name: v for name, v in wanted.items() if name in found}
        ranks = what.settings.data_parallel_size or 1
        if ranks > 1 and what.settings.enable_expert_parallel:
            wanted["tensor_parallel_size"] = ranks * (what.settings.tensor_parallel_size or 1)
    if wanted.get("max_model_len") == "auto":
        found["max_model_len"] = "auto" if found["max_model_len"] in {"auto", -1} else None
    assert set(wanted) == set(found), path
    for name, value in wanted.items():
        assert _same(value, found[name]), (path, name, value, found[name])


@pytest.mark.parametrize("version", ["0.9.2", "0.20.0", "0.33.0"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_rendered_file_reads_back(name: str, version: str) -> None:
    """Model, settings, environment and release of the examples survive every format."""
    release = parse_version(version)
    settings_ = replace(config(name, release), swap_space=None)
    what = rendering(settings_, version=version, env=_ENV, served_model_name="my model")

    for path, content in _contents(what).items():
        engine = _engine(path, content)
        read = interpret(engine, release)

        assert read.model == what.model_id
        assert not [p for p in read.problems if p.problem.is_refused], path
        assert not read.unresolved
        _assert_same(path, read, what)
        if path in {"compose.yaml", "deployment.yaml", "values.yaml", "inference-service.yaml"}:
            assert engine.version_text == version
        if path != "vllm.yaml":
            assert {name: read.env.get(name) for name in _ENV} == _ENV, path


_PARALLEL = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "prefill_context_parallel_size",
)


def _on_one_node(wanted: EngineConfig) -> EngineConfig:
    """Return the configuration with ranks for one node: only then all files are rendered."""
    sizes = {name: getattr(wanted, name) for name in _PARALLEL}
    small = {name: 1 + size % 2 for name, size in sizes.items() if size is not None}
    return replace(wanted, **small, lora_modules=None)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(data=st.data(), version=st.sampled_from(["0.10.2", "0.24.0", "0.33.0"]))
def test_any_configuration_reads_back(data: st.DataObject, version: str) -> None:
    """Random settings of a release are read back from every file as they were meant."""
    release = parse_version(version)
    wanted = _on_one_node(data.draw(configs(release, most=8)))
    what = rendering(wanted, version=version)

    for path, content in _contents(what).items():
        _assert_same(path, interpret(_engine(path, content), release), what)
