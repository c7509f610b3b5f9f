"""What we write is what vLLM 0.33.0 itself accepts, and what we read is what it reads."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.argv import from_argv, to_argv
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.facts import is_known
from service.tuning.engine.grammar import NOT_CONFIGURATION, Setting, grammar
from service.tuning.engine.package_data import read_facts
from service.tuning.engine.versions import NEWEST
from service.tuning.render.files import render_all
from tests.unit.tuning.engine.settings_strategy import configs
from tests.unit.tuning.engine.test_defaults import CPU, H100, model, node
from tests.unit.tuning.render.examples import CONFIGS, config, rendering
from tests.vllm.conftest import Ask

pytestmark = pytest.mark.vllm

CURRENT = [setting for setting in grammar().values() if is_known(setting.name, NEWEST)]
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
COMPARABLE = {"boolean", "switch", "int", "size", "size_or_auto", "float", "str"}
NOT_ALONE = {
    "chat_template": "must name a file or be a template",
    "data_parallel_multi_port_external_lb": "needs data_parallel_size",
    "enable_auto_tool_choice": "needs tool_call_parser",
    "enable_log_outputs": "needs enable_log_requests",
    "grpc_port": "needs the Rust front end",
}
"""Settings that the serve command's own check refuses without another one."""
UNLIKE = {"device_ids": "read as a list of numbers", "lora_modules": "read as objects"}
"""Settings whose value vLLM takes apart."""
CPU_REFUSES = {"mixture": "needs GPUs for its expert exchange"}
"""Examples that the config objects refuse on the CPU platform, which is all there is here."""


def samples(setting: Setting) -> list[Json]:
    """Return values of a setting: both truths, every choice, or one of its kind."""
    if setting.kind in {"boolean", "switch"}:
        return [True, False]
    if setting.name == "lora_modules":
        return [["name=path"]]
    values: list[Json] = list(setting.choices) or [
        {
            "int": 3,
            "size": 4096,
            "size_or_auto": 4096,
            "float": 0.5,
            "json": {},
            "json_or_str": {"a": 1},
        }.get(setting.kind, "text")
    ]
    return [[value] for value in values] if setting.is_list or setting.is_repeated else values


def real_value(setting: Setting, value: Json) -> Json:
    """Return a value as vLLM's namespace holds it."""
    return -1 if setting.kind == "size_or_auto" and value == "auto" else value


def assert_same_values(config: EngineConfig, answer: dict[str, Json]) -> None:
    """Assert that vLLM read the values of the configuration."""
    for setting in CURRENT:
        value = getattr(config, setting.name)
        if value is None or setting.kind not in COMPARABLE or setting.name in UNLIKE:
            continue
        if setting.name in answer["values"]:
            assert answer["values"][setting.name] == real_value(setting, value), setting.name


def without_checked_objects(config: EngineConfig) -> EngineConfig:
    """Return the configuration without objects, whose keys the real parser checks."""
    objects = [s.name for s in CURRENT if s.kind in {"json", "json_or_str"}]
    return replace(config, **dict.fromkeys([*objects, "lora_modules"]))


def test_the_grammar_is_what_the_parser_says(ask: Ask) -> None:
    """Flags, kinds, choices and defaults in the package data are those of the real parser."""
    facts = read_facts("grammar")

    assert ask(grammar=True) == {"version": facts["version"], "settings": facts["settings"]}


@pytest.mark.parametrize("setting", CURRENT, ids=lambda setting: setting.name)
def test_every_setting_that_we_write_is_accepted(ask: Ask, setting: Setting) -> None:
    """Each setting alone, with each of its values, passes the real parser and means the same."""
    allowed = {"accepted", "command"} if setting.name in NOT_ALONE else {"accepted"}
    for value in samples(setting):
        wanted = EngineConfig(**{setting.name: value})

        answer = ask(to_argv(MODEL, wanted, NEWEST)[1:])

        assert answer["stage"] in allowed, answer["message"]
        assert_same_values(wanted, answer)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_rendered_command_passes_parser_and_config_objects(ask: Ask, name: str) -> None:
    """The example commands pass both gates of vLLM 0.33.0 that need no GPU."""
    wanted = config(name, NEWEST)
    answer = ask(to_argv(MODEL, wanted, NEWEST)[1:], model="moe" if name == "mixture" else "dense")

    if name in CPU_REFUSES:
        assert answer["stage"] != "parser", answer["message"]
    else:
        assert answer["stage"] == "accepted", answer["message"]
    assert_same_values(wanted, answer)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_rendered_file_is_read_by_the_real_loader(ask: Ask, name: str, tmp_path: Path) -> None:
    """`vllm serve --config vllm.yaml` leads to the values of the command."""
    what = rendering(config(name, NEWEST))
    path = tmp_path / "vllm.yaml"
    path.write_text(next(f.content for f in render_all(what) if f.path == "vllm.yaml"))

    from_file = ask(["serve", "--config", str(path)])
    from_command = ask(what.argv[1:])

    assert from_file["stage"] == "accepted", from_file["message"]
    assert from_file["values"] | {"config": None} == from_command["values"] | {
        "model_tag": from_file["values"]["model_tag"],
        "model": from_file["values"]["model"],
    }


@given(wanted=configs(NEWEST, most=12))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_configuration_means_the_same_to_vllm(ask: Ask, wanted: EngineConfig) -> None:
    """Random configurations pass the real parser with the values that we meant."""
    wanted = without_checked_objects(wanted)

    answer = ask(to_argv(MODEL, wanted, NEWEST)[1:])

    assert answer["stage"] in {"accepted", "command"}, answer["message"]
    assert_same_values(wanted, answer)


LINES = [
    "m --max_num_seqs 8",
    "m --max-num-seqs=8",
    "-tp 2 m",
    "m -tp=2 -q fp8",
    "m -tp2",
    "m -t 2",
    "m -qfp8",
    "m --max-model-len 25.6k",
    "m --max-model-len 32K",
    "m --max-model-len -1",
    "m --max-model-len AUTO",
    "m --max-num-batched-tokens 2.5K",
    "m --max-num-batched-tokens 2.5k",
    "m --kv-cache-memory-bytes 512Ki",
    "m --kv-cache-memory-bytes 16M",
    "m -O3",
    "m -O 0",
    "m -O=2",
    "m --disable-prefix-caching",
    "m --no-enable-prefix-caching",
    "m --enable-custom-all-reduce",
    "m --no-disable-custom-all-reduce",
    "m --enforce-eager False",
    "m --enforce-eager=false",
    "--enforce-eager False",
    "m --enable-prefix-caching=false",
    "m --swap-space 4",
    "m --num-scheduler-steps 8",
    "m --device cpu",
    "m --kv-cache-memory 16M",
    "m --max-num-seq 8",
    "m --gpu-mem 0.8",
    "m --max-num 8",
    "m --max-num-seqs 1k",
    "m --max-num-seqs 8.0",
    "m --max-num-seqs",
    "m --max-num-seqs --enforce-eager",
    "m --max-num-seqs 8 --max-num-seqs 9",
    "m n",
    "m --no-such-flag 1",
    "m --dtype bf16",
    "m --disable-async-scheduling",
    "m --no-async-scheduling",
    "m --disable-log-requests",
    "m --speculative-config {not-json",
    "m --speculative-config.method ngram --speculative-config.num_speculative_tokens 3",
    "m -sc.method ngram",
    "m --cudagraph-capture-sizes 1 2 4",
    "--cudagraph-capture-sizes 1 2 m",
    "m --served-model-name a b",
    "m --device-memory-utilization 0.8",
    "m --seed -1",
    "m --watermark=-0.5",
    "m --max-lora-rank 33",
    "m --headless",
    "m --no-headless",
    "m --disable-log-stats",
    "m --limit-mm-per-prompt image=2",
    "m -dp 2 -ep",
    "--model m -tp 2",
    "--model=m",
    "m --block-size 17",
    "m --performance-mode fast",
    "m --api-key k1 k2 --seed 1",
    "m --revision=--x",
]


@pytest.mark.parametrize("line", LINES)
def test_we_read_command_lines_as_vllm_does(ask: Ask, line: str) -> None:
    """Our reader accepts and refuses what the real parser does, and reads the same values."""
    argv = ["serve", *line.split(" ")]
    ours = from_argv(argv, NEWEST)

    answer = ask(argv)

    assert ours.is_accepted is (answer["stage"] != "parser"), answer["message"]
    if ours.is_accepted:
        assert ours.model == answer["values"]["model_tag"]
        assert_same_values(ours.config, answer)


def test_no_secret_setting_is_a_field() -> None:
    """The flags that are no configuration are exactly those that the wire type leaves out."""
    flags = set(read_facts("grammar")["settings"])

    assert flags - set(EngineConfig.__struct_fields__) == NOT_CONFIGURATION


@given(data=st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_mangled_command_lines_are_judged_as_vllm_does(ask: Ask, data: st.DataObject) -> None:
    """Good command lines with one argument dropped or doubled get vLLM's own verdict."""
    config = without_checked_objects(data.draw(configs(NEWEST, most=4)))
    argv = to_argv(MODEL, config, NEWEST)[1:]
    place = data.draw(st.integers(2, len(argv)))
    mangled = argv[:place] + data.draw(
        st.sampled_from([argv[place + 1 :], argv[place - 1 : place] + argv[place:]])
    )
    answer = ask(mangled)

    assert from_argv(mangled, NEWEST).is_accepted is (answer["stage"] != "parser"), (
        mangled,
        answer["message"],
    )


@given(
    seqs=st.integers(1, 1100),
    tokens=st.integers(1, 3000) | st.just(16384),
    mode=st.sampled_from(["balanced", "interactivity"]),
    draft_tokens=st.integers(0, 4),
    maximum=st.none() | st.integers(1, 700),
)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_graph_sizes_are_those_that_vllm_captures(
    ask: Ask, *, seqs: int, tokens: int, mode: str, draft_tokens: int, maximum: int | None
) -> None:
    """The grid of CUDA-graph sizes is the one of vLLM's own method."""
    tokens = max(seqs, tokens)
    draft = {"method": "eagle3", "num_speculative_tokens": draft_tokens} if draft_tokens else None
    stated = EngineConfig(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        performance_mode=mode,
        speculative_config=draft,
    )
    filled = effective_config(
        replace(stated, max_cudagraph_capture_size=maximum),
        spec=model(),
        node=node(H100),
        version=NEWEST,
    )

    real = ask(
        capture={
            "seqs": seqs,
            "tokens": tokens,
            "mode": mode,
            "query_len": 1 + draft_tokens,
            "maximum": maximum,
        }
    )["sizes"]

    assert filled.cudagraph_capture_sizes == real
    assert filled.max_cudagraph_capture_size == max(real)


@given(
    max_num_seqs=st.none() | st.integers(1, 600),
    max_num_batched_tokens=st.none() | st.integers(1, 10_000),
    max_model_len=st.none() | st.integers(1, 131_072),
    performance_mode=st.none() | st.sampled_from(["throughput", "interactivity"]),
    enable_chunked_prefill=st.none() | st.booleans(),
    tensor_parallel_size=st.none() | st.sampled_from([1, 2, 4]),
    pipeline_parallel_size=st.none() | st.sampled_from([1, 2]),
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_defaults_are_those_that_vllm_fills_in(ask: Ask, **given_settings: Json) -> None:
    """On its CPU platform, where it can be asked, vLLM fills in what we fill in."""
    wanted = EngineConfig(**given_settings)

    answer = ask(to_argv(MODEL, wanted, NEWEST)[1:], model="dense")

    if answer["stage"] == "accepted":
        filled = effective_config(wanted, spec=model(), node=node(CPU), version=NEWEST)
        assert answer["config"] == {name: getattr(filled, name) for name in answer["config"]}
