"""Every file says the same configuration, in its own format."""

import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.argv import from_argv
from service.tuning.engine.facts import known_settings, metrics
from service.tuning.engine.versions import NEWEST, EngineVersion, parse_version
from service.tuning.errors import InvalidRequest
from service.tuning.render.files import render_all
from service.tuning.render.rendering import Rendering
from tests.unit.tuning.engine.settings_strategy import configs
from tests.unit.tuning.render.chart import chart_argv
from tests.unit.tuning.render.examples import CONFIGS, VERSIONS, config, node, rendering, stated

FAKE_VLLM = "#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
CASES = [(name, version) for name in CONFIGS for version in VERSIONS]
NASTY = EngineConfig(
    chat_template='it\'s "$HOME" $(id) `id` \\ {{ x }} | #',
    served_model_name=["a b", "c;d"],
    speculative_config={"model": "x/y", "note": "$(id) 'quoted'"},
    revision="--not-a-flag",
    watermark=-0.5,
)


def files(what: Rendering) -> dict[str, str]:
    """Return the contents of all files by path."""
    return {file.path: file.content for file in render_all(what)}


def run_script(script: str, folder: Path, **env: str) -> list[str]:
    """Return the arguments that serve.sh hands to vLLM."""
    fake = folder / "vllm"
    fake.write_text(FAKE_VLLM)
    fake.chmod(0o755)
    path = folder / "serve.sh"
    path.write_text(script)
    done = subprocess.run(
        ["bash", str(path)],  # noqa: S607
        env={"PATH": f"{folder}:{os.environ['PATH']}", **env},  # noqa: TID251
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout))


def loaded_argv(text: str, version: EngineVersion) -> list[str]:
    """Return the arguments that vLLM's loader makes of vllm.yaml (vllm 0.33.0)."""
    argv = ["vllm", "serve"]
    for key, value in yaml.safe_load(text).items():
        if isinstance(value, bool):
            argv += [f"--{key}"] if value else []
        elif isinstance(value, list):
            argv += [f"--{key}", *map(str, value)]
        else:
            assert not isinstance(value, dict) or version.since("0.16.0")
            argv += [f"--{key}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return argv


def same_settings(argv: list[str], what: Rendering) -> None:
    """Assert that a command line states the rendered configuration."""
    parsed = from_argv(argv, what.version)

    assert parsed.is_accepted, parsed.problems
    assert parsed.model in {what.model_id, None}
    assert stated(parsed.config) == stated(what.settings)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_every_release_gets_only_settings_that_it_knows(name: str, version: str) -> None:
    """No rendered command carries a flag that its release lacks."""
    release = parse_version(version)
    what = rendering(config(name, release), version=version)
    known = {f"--{setting.replace('_', '-')}" for setting in known_settings(release)}

    flags = {a.partition("=")[0] for a in what.argv if a.startswith("--")}

    assert {flag.replace("--no-", "--") for flag in flags} <= known
    assert from_argv(what.argv, release).is_accepted


@pytest.mark.parametrize(("name", "version"), CASES)
def test_every_file_states_the_same_configuration(name: str, version: str) -> None:
    """compose, Kubernetes, KServe, Helm and vLLM's own file all lead to the same settings."""
    release = parse_version(version)
    what = rendering(config(name, release), version=version)

    found = files(what)

    service = yaml.safe_load(found["compose.yaml"])["services"]["vllm"]
    same_settings([*service["entrypoint"], *service["command"]], what)
    pod = next(yaml.safe_load_all(found["deployment.yaml"]))["spec"]["template"]["spec"]
    same_settings([*pod["containers"][0]["command"], *pod["containers"][0]["args"]], what)
    predictor = yaml.safe_load(found["inference-service.yaml"])["spec"]["predictor"]
    assert predictor["containers"][0]["args"] == pod["containers"][0]["args"]
    same_settings(loaded_argv(found["vllm.yaml"], release), what)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_the_chart_adds_nothing_but_its_own_defaults(name: str, version: str) -> None:
    """The production stack's template yields the configuration, host, port and stated defaults."""
    release = parse_version(version)
    what = rendering(config(name, release), version=version)

    parsed = from_argv(chart_argv(yaml.safe_load(files(what)["values.yaml"])), release)

    assert parsed.is_accepted, parsed.problems
    assert not [p for p in parsed.problems if p.code == "duplicate"]
    said = stated(parsed.config)
    wanted = {"enable_prefix_caching": True, "tensor_parallel_size": 1} | stated(what.settings)
    wanted |= {"host": "0.0.0.0", "port": 8000}
    if what.settings.enable_prefix_caching is False:
        del wanted["enable_prefix_caching"]
    assert said == wanted


@pytest.mark.parametrize("name", CONFIGS)
def test_the_script_hands_over_exactly_the_command(name: str, tmp_path: Path) -> None:
    """Running serve.sh starts vLLM with the rendered arguments, whatever they contain."""
    what = rendering(config(name, NEWEST))

    assert run_script(files(what)["serve.sh"], tmp_path) == what.argv[1:]


def test_quoting_survives_every_format(tmp_path: Path) -> None:
    """Quotes, dollars, backticks, braces and leading dashes arrive as they were."""
    what = rendering(NASTY, env={"VLLM_NOTE": "it's $HOME `id` #", "VLLM_ARGS": "a b"})
    found = files(what)

    assert run_script(found["serve.sh"], tmp_path) == what.argv[1:]
    service = yaml.safe_load(found["compose.yaml"])["services"]["vllm"]
    assert [a.replace("$$", "$") for a in service["command"]] == what.argv[1:]
    assert service["environment"]["VLLM_NOTE"] == "it's $$HOME `id` #"
    container = next(yaml.safe_load_all(found["deployment.yaml"]))["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert [a.replace("$$(", "$(") for a in container["args"]] == what.argv[3:]
    same_settings(loaded_argv(found["vllm.yaml"], NEWEST), what)


@given(data=st.data(), version=st.sampled_from(VERSIONS))
@settings(max_examples=25, deadline=None)
def test_vllms_own_file_reads_back(data: st.DataObject, version: str) -> None:
    """vllm.yaml, read as the loader reads it, gives the configuration; no key is ever false."""
    release = parse_version(version)
    # Ranks that do not spread evenly over nodes are refused, which has its own test.
    drawn = msgspec.structs.replace(data.draw(configs(release)), data_parallel_size=None)
    what = rendering(drawn, version=version)

    text = files(what)["vllm.yaml"]

    assert False not in yaml.safe_load(text).values() or 0 in yaml.safe_load(text).values()
    assert stated(from_argv(loaded_argv(text, release), release).config) == stated(what.settings)


def test_off_switches_use_the_negative_flag() -> None:
    """`key: false` would be dropped by the loader, so it is never written."""
    text = files(rendering(EngineConfig(enable_prefix_caching=False)))["vllm.yaml"]

    assert yaml.safe_load(text)["no-enable-prefix-caching"] is True


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("layout", ["plain", "nasty", "pipeline", "data", "ray"])
def test_the_script_is_clean(layout: str, tmp_path: Path) -> None:
    """Shellcheck has nothing to say about serve.sh."""
    what = {
        "plain": rendering(config("chat", NEWEST)),
        "nasty": rendering(NASTY, env={"VLLM_NOTE": "it's $HOME"}),
        "pipeline": over_two_nodes(pipeline_parallel_size=2),
        "data": over_two_nodes(data_parallel_size=4, tensor_parallel_size=4),
        "ray": over_two_nodes(pipeline_parallel_size=2, version="0.10.2"),
    }[layout]
    path = tmp_path / "serve.sh"
    path.write_text(files(what)["serve.sh"])

    done = subprocess.run(
        ["shellcheck", str(path)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == ""


def over_two_nodes(version: str = "0.33.0", **parallel: int) -> Rendering:
    """Return a rendering of one server on two nodes of 8 GPUs."""
    sizes = {"tensor_parallel_size": 8} | parallel
    return rendering(EngineConfig(**sizes), version=version, node=node(gpus_per_node=8, nodes=2))


def test_a_pipeline_over_nodes_joins_by_rank(tmp_path: Path) -> None:
    """Each node starts the same script; all but the first run without an API server."""
    script = files(over_two_nodes(pipeline_parallel_size=2))["serve.sh"]

    first = run_script(script, tmp_path, NODE_RANK="0", MASTER_ADDR="10.0.0.1")
    second = run_script(script, tmp_path, NODE_RANK="1", MASTER_ADDR="10.0.0.1")

    assert first[-6:] == ["--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.1"]
    assert second[-3:] == ["--master-addr", "10.0.0.1", "--headless"]
    assert from_argv(["vllm", *second], NEWEST).is_accepted


def test_data_parallel_ranks_over_nodes_start_at_their_own(tmp_path: Path) -> None:
    """The second node holds the ranks after those of the first."""
    script = files(over_two_nodes(data_parallel_size=4, tensor_parallel_size=4))["serve.sh"]

    second = run_script(script, tmp_path, NODE_RANK="1", MASTER_ADDR="10.0.0.1")

    assert second[-3:] == ["--headless", "--data-parallel-start-rank", "2"]
    assert from_argv(["vllm", *second], NEWEST).is_accepted


def test_before_nnodes_several_nodes_need_ray(tmp_path: Path) -> None:
    """Releases before 0.11.1 join nodes through Ray."""
    script = files(over_two_nodes(pipeline_parallel_size=2, version="0.10.2"))["serve.sh"]

    assert run_script(script, tmp_path)[-2:] == ["--distributed-executor-backend", "ray"]


def test_a_server_over_nodes_has_no_container_files() -> None:
    """What one pod cannot hold is left out, and the record says why."""
    found = files(over_two_nodes(pipeline_parallel_size=2))

    assert not {"compose.yaml", "deployment.yaml", "values.yaml", "inference-service.yaml"} & set(
        found
    )
    assert "spans 2 nodes" in found["DECISION.md"]


def test_ranks_that_do_not_spread_evenly_are_refused() -> None:
    """Three ranks of four GPUs do not fit two nodes of eight alike."""
    with pytest.raises(InvalidRequest) as refusal:
        files(over_two_nodes(data_parallel_size=3, tensor_parallel_size=4))

    assert refusal.value.pointer == "/engine/config/data_parallel_size"


def test_radeon_and_instinct_have_their_own_image_and_resource() -> None:
    """ROCm parts get the ROCm image, amd.com/gpu and the device files."""
    found = files(rendering(config("chat", NEWEST), node=node(vendor="amd")))

    pod = next(yaml.safe_load_all(found["deployment.yaml"]))["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "vllm/vllm-openai-rocm:v0.33.0"
    assert pod["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "1"}
    assert "/dev/kfd" in yaml.safe_load(found["compose.yaml"])["services"]["vllm"]["devices"]
    model = yaml.safe_load(found["values.yaml"])["servingEngineSpec"]["modelSpec"][0]
    assert model["requestGPUType"] == "amd.com/gpu"


def test_without_a_published_image_no_container_files_are_made() -> None:
    """Before 0.14.0 the project published no ROCm image with its tag."""
    what = rendering(config("chat", NEWEST), version="0.12.0", node=node(vendor="amd"))

    found = files(what)

    assert "compose.yaml" not in found
    assert "no published image" in found["DECISION.md"]
    assert "serve.sh" in found


def test_a_cpu_asks_for_no_gpu() -> None:
    """On a CPU neither limits nor reservations name a GPU."""
    found = files(rendering(node=node(vendor="cpu")))

    pod = next(yaml.safe_load_all(found["deployment.yaml"]))["spec"]["template"]["spec"]
    assert "limits" not in pod["containers"][0]["resources"]
    assert "deploy" not in yaml.safe_load(found["compose.yaml"])["services"]["vllm"]


def test_pods_ask_for_all_gpus_of_the_server() -> None:
    """Tensor, pipeline and data parallel sizes multiply."""
    sizes = EngineConfig(tensor_parallel_size=2, pipeline_parallel_size=2, data_parallel_size=2)
    found = files(rendering(sizes, replicas=3))

    deployment, service = yaml.safe_load_all(found["deployment.yaml"])
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert deployment["spec"]["replicas"] == 3
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert pod["volumes"][0]["emptyDir"]["medium"] == "Memory"


def test_the_image_carries_the_tag_of_the_release() -> None:
    """Post-releases have images of their own."""
    found = files(rendering(version="0.8.5.post1"))

    image = yaml.safe_load(found["compose.yaml"])["services"]["vllm"]["image"]
    assert image == "vllm/vllm-openai:v0.8.5.post1"


def test_no_secret_ever_stands_in_a_file() -> None:
    """Tokens and keys of the environment become references, never values."""
    secrets = {"HF_TOKEN": "hf_topsecret", "VLLM_API_KEY": "topsecret", "AWS_SECRET": "topsecret"}
    found = files(rendering(env=secrets | {"VLLM_LOGGING_LEVEL": "INFO"}))

    assert not [path for path, content in found.items() if "topsecret" in content]
    assert "VLLM_API_KEY" in found["deployment.yaml"]


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b"])
def test_an_environment_value_of_several_lines_is_refused(value: str) -> None:
    """No env file could hold it, so it is refused with its field."""
    with pytest.raises(InvalidRequest) as refusal:
        rendering(env={"VLLM_X": value})

    assert refusal.value.pointer == "/engine/env/VLLM_X"


@pytest.mark.parametrize("name", CONFIGS)
def test_the_chart_gets_the_types_of_its_schema(name: str) -> None:
    """Counts are whole numbers, texts are texts, as values.schema.json of the chart wants."""
    engine = yaml.safe_load(files(rendering(config(name, NEWEST)))["values.yaml"])[
        "servingEngineSpec"
    ]
    (model,) = engine["modelSpec"]
    vllm = model["vllmConfig"]

    counts = [vllm.get(key, 1) for key in ("maxModelLen", "maxNumSeqs", "tensorParallelSize")]
    assert {type(c) for c in [*counts, model["requestCPU"], model["replicaCount"]]} == {int}
    assert {type(argument) for argument in vllm["extraArgs"]} <= {str}
    assert {type(model[key]) for key in ("tag", "requestMemory", "shmSize")} == {str}
    assert type(vllm["enablePrefixCaching"]) is bool
    assert engine["strategy"]["rollingUpdate"]["maxSurge"] == 0


def test_large_numbers_reach_the_chart_as_text() -> None:
    """Helm would print a million tokens with an exponent, which vLLM refuses."""
    what = rendering(EngineConfig(max_model_len=1_048_576))

    argv = chart_argv(yaml.safe_load(files(what)["values.yaml"]))

    assert from_argv(argv, NEWEST).config.max_model_len == 1_048_576


@pytest.mark.parametrize("version", VERSIONS)
def test_alerts_use_metrics_that_the_release_exposes(version: str) -> None:
    """Every vllm: name in the rules is one of that release."""
    rules = yaml.safe_load(files(rendering(version=version))["alerts.yaml"])["groups"][0]["rules"]
    exposed = {metric.name for metric in metrics(parse_version(version))}

    for rule in rules:
        for word in rule["expr"].replace("(", " ").replace("{", " ").split():
            if word.startswith("vllm:"):
                name = word.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
                assert name in exposed
    assert {"VllmPreemptions", "VllmKvCacheFull", "VllmQueue", "VllmTtftP95"} <= {
        rule["alert"] for rule in rules
    }


def offline_arguments(script: str) -> dict[str, Json]:
    """Return what llm.py hands to the `LLM` class, which is not installed here."""
    seen: dict[str, Json] = {}

    class Output:
        outputs = (types.SimpleNamespace(text="done"),)

    class LLM:
        def __init__(self, **arguments: Json) -> None:
            seen.update(arguments)

        def generate(self, prompts: list[str], _parameters: object) -> list[Output]:
            return [Output() for _ in prompts]

    module = types.ModuleType("vllm")
    module.LLM = LLM  # type: ignore[attr-defined]
    module.SamplingParams = lambda **_: None  # type: ignore[attr-defined]
    sys.modules["vllm"] = module
    try:
        exec(compile(script, "llm.py", "exec"), {"__name__": "__main__"})  # noqa: S102
    finally:
        del sys.modules["vllm"]
    return seen


@pytest.mark.parametrize("name", CONFIGS)
def test_the_offline_script_takes_the_same_settings(name: str) -> None:
    """llm.py runs, and hands the engine's settings to the class under the same names."""
    what = rendering(config(name, NEWEST))

    given_to_class = offline_arguments(files(what)["llm.py"])

    left_out = {"data_parallel_size", "swap_space"}
    wanted = {n: v for n, v in CONFIGS[name].items() if n not in left_out}
    if wanted.get("max_model_len") == "auto":
        wanted["max_model_len"] = -1
    if name == "mixture":
        # The class takes no data-parallel ranks; whole experts need as many tensor-parallel ones.
        wanted["tensor_parallel_size"] = 8
    assert given_to_class == {"model": what.model_id, **wanted}
