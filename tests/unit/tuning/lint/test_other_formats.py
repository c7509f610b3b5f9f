"""The further formats: Helm values, KServe, Ray, KAITO, systemd, Python, Markdown, recipes."""

import pytest

from api_schemas.engine import Engine
from api_schemas.hardware import Hardware
from service.tuning.lint.limits import Unreadable
from tests.unit.tuning.lint.asked import argv, checked, config_of, engines, found

_STACK = """\
servingEngineSpec:
  modelSpec:
    - name: llama
      repository: vllm/vllm-openai
      tag: v0.20.0
      modelURL: Qwen/Qwen3-8B
      requestGPU: {gpus}
      vllmConfig:
        maxModelLen: 8192
        extraArgs: ["--max-num-seqs", "64"]
"""


def test_the_stacks_values_mean_what_its_templates_make_of_them() -> None:
    """Prefix caching is off unless it is said, sizes become flags, the tag is the release."""
    (engine,) = engines(_STACK.format(gpus=1), "values.yaml")
    config = config_of(engine)

    assert (config.max_model_len, config.max_num_seqs) == (8192, 64)
    assert config.enable_prefix_caching is False
    assert engine.version_text == "0.20.0"


def test_values_of_a_subchart_are_found() -> None:
    """The same values under the name of a dependency are read too."""
    nested = "stack:\n" + "".join(f"  {line}\n" for line in _STACK.format(gpus=1).splitlines())

    assert len(engines(nested, "values.yaml")) == 1


def test_a_fraction_of_a_gpu_is_warned_of() -> None:
    """The chart rounds it down to none."""
    assert found(checked("values.yaml", _STACK.format(gpus=0.5)), "CTR004")
    assert not found(checked("values.yaml", _STACK.format(gpus=1)), "CTR004")


def test_llm_d_values_give_an_engine_for_each_role() -> None:
    """Model and parallel sizes come from the chart's keys, the rest from args."""
    content = """\
modelArtifacts: {uri: "hf://Qwen/Qwen3-32B", name: qwen}
decode:
  parallelism: {tensor: 4}
  containers:
    - {name: vllm, modelCommand: vllmServe, args: ["--max-num-seqs", "8"]}
prefill:
  containers:
    - name: vllm
      modelCommand: custom
      command: [/bin/sh, -c]
      args: ["vllm serve Qwen/Qwen3-32B --enforce-eager"]
"""
    decode, prefill = engines(content, "values.yaml")

    assert argv(decode)[:3] == ["vllm", "serve", "Qwen/Qwen3-32B"]
    assert config_of(decode).tensor_parallel_size == 4
    assert config_of(prefill).enforce_eager is True


def test_kserve_model_formats_pass_their_arguments_on() -> None:
    """The runtime's own flags are left out, the model is the one it loads."""
    content = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llama}
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      args: [--model_name=llama, --model_id=Qwen/Qwen3-8B, --max-model-len=8192]
      resources: {limits: {nvidia.com/gpu: "1"}}
"""
    (engine,) = engines(content, "isvc.yaml")

    assert argv(engine) == ["vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len=8192"]


def test_an_llm_inference_service_is_read_with_its_parallelism() -> None:
    """Model, sizes, arguments and VLLM_ADDITIONAL_ARGS come together."""
    content = """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: "hf://Qwen/Qwen3-8B", name: qwen}
  parallelism: {tensor: 2, expert: true}
  template:
    containers:
      - name: main
        env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-num-seqs 8 --enforce-eager"}]
"""
    (engine,) = engines(content, "llmisvc.yaml")
    config = config_of(engine)

    assert engine.model is not None
    assert engine.model.value == "Qwen/Qwen3-8B"
    assert (config.tensor_parallel_size, config.max_num_seqs) == (2, 8)
    assert (config.enable_expert_parallel, config.enforce_eager) == (True, True)


def test_a_ray_service_is_read_inside_its_text() -> None:
    """The serve configuration is YAML inside YAML; places are those of the outer file."""
    content = """\
apiVersion: ray.io/v1
kind: RayService
spec:
  serveConfigV2: |
    applications:
      - name: llm
        args:
          llm_configs:
            - model_loading_config: {model_id: q, model_source: Qwen/Qwen3-8B}
              engine_kwargs:
                swap_space: 4
                max_model_len: 4096
"""
    report = checked("ray.yaml", content)

    assert report.engines[0].model == "Qwen/Qwen3-8B"
    assert report.engines[0].config.max_model_len == 4096
    (gone,) = found(report, "VER001")
    assert gone.location is not None
    assert (gone.location.line, gone.location.column) == (11, 17)


def test_kaito_takes_model_and_settings_from_two_objects() -> None:
    """The workspace names the model, its ConfigMap the settings."""
    content = """\
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: w}
inference: {preset: {name: Qwen/Qwen3-8B}, config: params}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: params}
data:
  inference_config.yaml: |
    max_probe_steps: 6
    vllm:
      gpu-memory-utilization: 0.95
      swap-space: 4
"""
    report = checked("kaito.yaml", content)

    assert report.engines[0].model == "Qwen/Qwen3-8B"
    assert report.engines[0].config.gpu_memory_utilization == 0.95
    (gone,) = found(report, "VER001")
    assert gone.location is not None
    assert gone.location.line == 14


def test_a_unit_of_systemd_is_read_with_its_environment() -> None:
    """ExecStart over several lines, Environment lines, and specifiers that stay open."""
    content = """\
[Service]
Environment="VLLM_USE_V1=1" OTHER=2
ExecStart=/opt/vllm/bin/vllm serve Qwen/Qwen3-8B \\
  --port %i \\
  --swap-space 4
"""
    report = checked("vllm@.service", content)

    assert found(report, "VER001")[0].location is not None
    assert found(report, "ENV001")
    assert report.engines[0].unresolved == ["port"]


def test_environment_files_are_judged_by_their_variables_alone() -> None:
    """A variable that is gone is found; nothing is said about settings."""
    report = checked("vllm.env", "# note\nVLLM_USE_V1=1\nHF_TOKEN=\n")

    assert [finding.rule for finding in report.findings] == ["ENV001"]


_PYTHON = """\
import os
from vllm import LLM, AsyncEngineArgs

os.environ["VLLM_USE_V1"] = "1"
SETTINGS = {"max_model_len": 4096, "swap_space": 4}
ü = "Qwen/Qwen3-8B"; llm = LLM(ü, enforce_eager=True, **SETTINGS)
args = AsyncEngineArgs(model="m", tensor_parallel_size=int(input()), nonsense=1)
"""


def test_calls_in_python_are_parsed_and_never_run() -> None:
    """Literals, names and unpacked dictionaries are read; expressions stay open."""
    report = checked("serve.py", _PYTHON)
    llm, engine_args = report.engines

    assert llm.model == "Qwen/Qwen3-8B"
    assert (llm.config.max_model_len, llm.config.enforce_eager) == (4096, True)
    assert engine_args.unresolved == ["tensor_parallel_size"]
    eager = next(f for f in found(report, "GRF001") if f.location is not None)
    assert eager.location is not None
    assert (eager.location.line, eager.location.column) == (6, 35)
    assert [finding.setting for finding in found(report, "CLI001")] == ["nonsense"]


def test_commands_in_lists_of_python_are_read() -> None:
    """A server started with subprocess is found by its list."""
    (engine,) = engines('import subprocess\nrun(["vllm", "serve", "m", "-tp", str(n)])\n', "a.py")

    assert argv(engine)[:3] == ["vllm", "serve", "m"]
    assert engine.words[-1].unresolved == "str(n)"


def test_other_modules_named_llm_are_no_engines() -> None:
    """LLM(...) counts only where vllm is imported."""
    assert not engines("from other import LLM\nLLM(model='m')\n", "a.py")
    with pytest.raises(Unreadable, match="Python"):
        engines("def (", "a.py")


def test_code_in_markdown_is_read_at_its_place() -> None:
    """Fenced commands and manifests are checked where they stand in the page."""
    content = """\
# Guide

```bash
vllm serve Qwen/Qwen3-8B --swap-space 4
```

  ```yaml
  services:
    a: {image: "vllm/vllm-openai:v0.33.0", command: "--model m --num-scheduler-steps 8"}
  ```
"""
    report = checked("guide.md", content)
    lines = [finding.location and finding.location.line for finding in found(report, "VER001")]

    assert sorted(lines) == [4, 9]


def test_recipes_give_base_features_and_variants() -> None:
    """Each list of arguments is read after the base, for the model it names."""
    content = """\
meta: {title: t}
model: {model_id: Qwen/Qwen3-8B, base_args: ["--trust-remote-code", "--max-model-len auto"]}
features: {tools: {args: ["--swap-space", "4"]}}
variants:
  fp8: {model_id: Qwen/Qwen3-8B-FP8, extra_args: ["--kv-cache-dtype", "fp8"]}
guide: |
  ```bash
  vllm serve Qwen/Qwen3-8B -tp 2
  ```
"""
    found_engines = engines(content, "recipe.yaml")

    assert [config_of(engine).max_model_len for engine in found_engines[:3]] == ["auto"] * 3
    assert argv(found_engines[2])[2] == "Qwen/Qwen3-8B-FP8"
    assert config_of(found_engines[3]).tensor_parallel_size == 2


def test_fragments_in_markdown_are_passed_over() -> None:
    """Code that is no whole file, and literals that are no settings, end nothing."""
    content = "```python\ndef (\n```\n```bash\nvllm serve m\n```\n"

    assert len(engines(content, "a.md")) == 1
    (engine,) = engines("from vllm import LLM\nLLM('m', seed=..., revision=b'x')\n", "a.py")
    assert [given.unresolved for given in engine.given] == ["...", "b'x'"]


def test_the_llm_class_is_estimated_with_its_own_batch_limits() -> None:
    """Offline, vLLM takes twice the tokens a step that its server does on large GPUs."""
    request = {"hardware": Hardware(gpu="H100-SXM5-80GB"), "engine": Engine(version="0.33.0")}
    offline = 'from vllm import LLM\nllm = LLM(model="Qwen/Qwen3-8B", max_model_len=8192)\n'
    server = "vllm serve Qwen/Qwen3-8B --max-model-len 8192"

    limits = [
        report.estimate.defaults_applied.max_num_batched_tokens
        for report in (checked("run.py", offline, **request), checked("run.sh", server, **request))
        if report.estimate is not None
    ]

    assert limits == [16384, 8192]


def test_values_attached_to_keys_keep_their_underscores() -> None:
    """In vLLM's own file only the flag's name is written with dashes."""
    (engine,) = engines("model: a/b\nchat_template=my_chat.jinja: true\n", "vllm.yaml")

    assert config_of(engine).chat_template == "my_chat.jinja"
