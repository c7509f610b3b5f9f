"""Manifests: compose, Kubernetes, vLLM's own file; what surrounds the server."""

import pytest

from service.tuning.engine.versions import parse_version
from tests.unit.tuning.lint.asked import argv, checked, config_of, engines, found

_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama}
spec:
  template:
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai:v0.30.0
          args:
            - --model=Qwen/Qwen3-8B
            - --tensor-parallel-size
            - "2"  # two GPUs
            - --swap-space=4
          env:
            - {name: VLLM_USE_V1, value: "1"}
            - name: HF_TOKEN
              valueFrom: {secretKeyRef: {name: s, key: t}}
          resources: {limits: {nvidia.com/gpu: 2}}
"""


def test_a_deployment_is_read_with_release_and_places() -> None:
    """The image's tag is the release, and findings point at the very item."""
    report = checked("d.yaml", _DEPLOYMENT)

    (engine,) = report.engines
    assert (engine.model, engine.version, engine.version_source) == (
        "Qwen/Qwen3-8B",
        "0.30.0",
        "image",
    )
    (gone,) = found(report, "VER001")
    assert gone.location is not None
    assert (gone.location.line, gone.location.column) == (14, 15)
    assert found(report, "ENV001")[0].location is not None
    assert report.verdict == "fail"


def test_several_ranks_without_shared_memory_are_warned_of() -> None:
    """Without a volume at /dev/shm two ranks have 64 MiB; with one the warning is gone."""
    mounted = _DEPLOYMENT.replace(
        "          env:",
        "          volumeMounts: [{name: shm, mountPath: /dev/shm}]\n          env:",
    ).replace(
        "      containers:",
        "      volumes: [{name: shm, emptyDir: {medium: Memory}}]\n      containers:",
    )

    assert found(checked("d.yaml", _DEPLOYMENT), "CTR001")
    assert not found(checked("d.yaml", mounted), "CTR001")


@pytest.mark.parametrize(("gpus", "rule"), [(1, "CTR002"), (4, "CTR003"), (2, None)])
def test_gpus_and_ranks_are_compared(gpus: int, rule: str | None) -> None:
    """Too few GPUs are an error, idle ones a warning, as many as ranks are fine."""
    report = checked("d.yaml", _DEPLOYMENT.replace("gpu: 2", f"gpu: {gpus}"))
    rules = {finding.rule for finding in report.findings}

    assert rules & {"CTR002", "CTR003"} == ({rule} if rule else set())


def test_scripts_inside_containers_are_read_with_their_variables() -> None:
    """`sh -c` with a block of text, and $(NAME) of the container's own variables."""
    content = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - image: vllm/vllm-openai:v0.33.0
      command: [/bin/sh, -c]
      args:
        - |
          vllm serve Qwen/Qwen3-8B \\
            --max-model-len 8192
    - image: vllm/vllm-openai:v0.33.0
      env: [{name: LEN, value: "4096"}]
      args: [--model, m, --max-model-len, $(LEN)]
"""
    first, second = engines(content, "pod.yaml")

    assert config_of(first).max_model_len == 8192
    assert config_of(second).max_model_len == 4096
    word = first.words[-1]
    assert content[word.place.start : word.place.end] == "8192"


def test_compose_fills_in_defaults_and_keeps_the_rest_open() -> None:
    """${NAME:-default} has its default, ${NAME} is said to be unresolved, $$ is a dollar."""
    content = """\
services:
  a:
    image: vllm/vllm-openai:${TAG:-v0.20.0}
    command: --model m --max-model-len ${LEN:-2048} --seed ${SEED}
    ipc: host
  db:
    image: postgres
"""
    (engine,) = engines(content, "compose.yaml")

    assert engine.version_text == "0.20.0"
    assert argv(engine)[1:5] == ["--model", "m", "--max-model-len", "2048"]
    assert [word.unresolved for word in engine.words if word.unresolved] == ["${SEED}"]


def test_the_configuration_file_means_what_the_loader_makes_of_it() -> None:
    """True is a flag, false is dropped with a warning, lists and objects become values."""
    content = """\
model: Qwen/Qwen3-8B
enable_chunked_prefill: false
enforce-eager: true
max-model-len: 32k
served-model-name: [a, b]
speculative-config: {method: ngram, num_speculative_tokens: 3}
"""
    report = checked("vllm.yaml", content)
    config = report.engines[0].config

    assert config.enable_chunked_prefill is None
    assert config.enforce_eager is True
    assert config.max_model_len == 32_000
    assert config.served_model_name == ["a", "b"]
    assert config.speculative_config == {"method": "ngram", "num_speculative_tokens": 3}
    (dropped,) = found(report, "CFG001")
    assert dropped.suggestion == "no-enable-chunked-prefill: true"


def test_a_template_is_not_guessed() -> None:
    """Branches make the file inconclusive; a single expression leaves only its value open."""
    branching = "{{- if .Values.x }}\n" + _DEPLOYMENT + "{{- end }}\n"
    single = _DEPLOYMENT.replace('"2"', "{{ .Values.tp | quote }}")

    assert checked("d.yaml", branching).verdict == "inconclusive"
    report = checked("d.yaml", single)
    assert report.engines[0].unresolved == ["tensor_parallel_size"]
    assert report.engines[0].config.tensor_parallel_size is None
    assert "{{ .Values.tp | quote }}" in found(report, "TPL001")[0].message


def test_nothing_to_check_is_no_pass() -> None:
    """A file without an engine is inconclusive, an unreadable one fails."""
    assert checked("a.yaml", "kind: Service\napiVersion: v1\n").verdict == "inconclusive"
    broken = checked("a.yaml", "a: [")
    assert (broken.verdict, broken.findings[0].rule) == ("fail", "FIL001")


def test_a_service_called_vllm_is_refused() -> None:
    """Service links would set VLLM_PORT."""
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: vllm}\n"

    assert found(checked("s.yaml", service + "---\n" + _DEPLOYMENT), "CTR006")


def test_long_manifests_are_read_whole() -> None:
    """Two hundred Deployments in one file give two hundred engines."""
    content = "---\n".join([_DEPLOYMENT] * 200)

    assert len(engines(content, "d.yaml")) == 200


def test_the_release_of_an_unpinned_image_is_assumed_and_said() -> None:
    """Latest is checked as the newest release, with a warning and a note."""
    report = checked("d.yaml", _DEPLOYMENT.replace("v0.30.0", "latest"))

    assert parse_version(report.engines[0].version).text == parse_version(None).text
    assert found(report, "CTR007")
    assert found(report, "CHK002")


def test_a_template_that_is_no_yaml_is_inconclusive_too() -> None:
    """Expressions that leave no YAML behind make the file a template, not a broken file."""
    report = checked(
        "service.yaml", "metadata:\n  {{- toYaml .Values.labels | nindent 2 }}\n  name: x\n"
    )

    assert report.verdict == "inconclusive"
    assert found(report, "TPL002")


def test_a_second_open_argument_is_no_second_model() -> None:
    """Whatever cannot be resolved behind the model is left out, not taken for a model."""
    report = checked("a.sh", "vllm serve az://<container>/<path> --seed 1 <more>\n")

    assert report.counts.error == 0
