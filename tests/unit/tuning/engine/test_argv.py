"""Configurations as command lines, both ways."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.argv import ParsedArgv, from_argv, given_settings, to_argv
from service.tuning.engine.facts import is_known, known_settings
from service.tuning.engine.grammar import NOT_CONFIGURATION, grammar
from service.tuning.engine.versions import NEWEST, parse_version
from service.tuning.errors import InvalidRequest
from tests.unit.tuning.engine.settings_strategy import configs

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
VERSIONS = (
    "0.8.5",
    "0.9.2",
    "0.10.2",
    "0.11.2",
    "0.14.0",
    "0.18.0",
    "0.20.0",
    "0.24.0",
    "0.28.0",
    "0.30.0",
    "0.33.0",
)


def read(*arguments: str, version: str = "0.33.0") -> ParsedArgv:
    """Return what `vllm serve` with these arguments says."""
    return from_argv(["vllm", "serve", *arguments], parse_version(version))


def codes(parsed: ParsedArgv) -> list[str]:
    """Return the codes of all problems, in order of place."""
    return [problem.code for problem in parsed.problems]


@given(data=st.data(), version=st.sampled_from(VERSIONS))
@settings(max_examples=150)
def test_what_is_written_reads_back(data: st.DataObject, version: str) -> None:
    """Reading a rendered command line gives the configuration that was rendered."""
    release = parse_version(version)
    config = data.draw(configs(release))

    parsed = from_argv(to_argv(MODEL, config, release), release)

    assert parsed.is_accepted
    assert parsed.model == MODEL
    written = given_settings(parsed.config)
    for name, value in given_settings(config).items():
        # False may be left out where that is the default, or where nothing else can say it.
        assert written.pop(name, False) == value, name
    assert written == {}


@given(data=st.data(), version=st.sampled_from(VERSIONS))
@settings(max_examples=50)
def test_only_flags_that_the_release_knows_are_written(data: st.DataObject, version: str) -> None:
    """Every flag in a command line names a setting of that release, or its negation."""
    release = parse_version(version)

    argv = to_argv(MODEL, data.draw(configs(release)), release)

    known = {f"--{name.replace('_', '-')}" for name in known_settings(release)}
    for argument in argv[3:]:
        if argument.startswith("--") and (flag := argument.partition("=")[0]) not in known:
            assert flag.replace("--no-", "--") in known


@given(st.text(max_size=40))
def test_any_command_line_is_read_without_a_crash(text: str) -> None:
    """Reading never raises, whatever it is given."""
    parsed = from_argv(["vllm", "serve", *text.split(" ")], NEWEST)

    assert all(0 <= problem.index <= len(text.split(" ")) + 2 for problem in parsed.problems)


def test_settings_stand_in_vllms_spelling() -> None:
    """Numbers, texts, lists, JSON and booleans each have their form."""
    config = EngineConfig(
        tensor_parallel_size=4,
        gpu_memory_utilization=0.9,
        max_model_len="auto",
        enable_prefix_caching=False,
        enforce_eager=True,
        cudagraph_capture_sizes=[1, 2, 4],
        speculative_config={"method": "eagle3", "num_speculative_tokens": 3},
    )

    assert to_argv(MODEL, config, NEWEST) == [
        *("vllm", "serve", MODEL),
        *("--tensor-parallel-size", "4"),
        *("--gpu-memory-utilization", "0.9"),
        *("--max-model-len", "auto"),
        "--no-enable-prefix-caching",
        "--enforce-eager",
        *("--speculative-config", '{"method":"eagle3","num_speculative_tokens":3}'),
        *("--cudagraph-capture-sizes", "1", "2", "4"),
    ]


@pytest.mark.parametrize(
    ("version", "setting", "arguments"),
    [
        ("0.33.0", "enable_chunked_prefill", ["--no-enable-chunked-prefill"]),
        ("0.8.5", "enable_chunked_prefill", ["--no-enable-chunked-prefill"]),
        ("0.8.4", "enable_chunked_prefill", ["--enable-chunked-prefill=False"]),
        ("0.8.0", "enable_prefix_caching", ["--no-enable-prefix-caching"]),
        ("0.8.5", "enforce_eager", []),
        ("0.9.0", "enforce_eager", ["--no-enforce-eager"]),
        ("0.33.0", "disable_log_stats", []),
        ("0.33.0", "enable_auto_tool_choice", []),
    ],
)
def test_switching_off_takes_the_form_of_the_release(
    version: str, setting: str, arguments: list[str]
) -> None:
    """False becomes the negative flag, the old `=False`, or nothing where that is the default."""
    config = EngineConfig(**{setting: False})

    assert to_argv(MODEL, config, parse_version(version))[3:] == arguments


def test_what_cannot_be_switched_off_is_refused() -> None:
    """A default that a release cannot switch off is no silent omission."""
    with pytest.raises(InvalidRequest) as refusal:
        to_argv(MODEL, EngineConfig(use_tqdm_on_load=False), parse_version("0.8.5"))

    assert refusal.value.pointer == "/engine/config/use_tqdm_on_load"


@pytest.mark.parametrize(
    ("config", "version", "part"),
    [
        (EngineConfig(swap_space=4), "0.33.0", "kv_offloading_size"),
        (EngineConfig(performance_mode="throughput"), "0.11.0", "0.17.0"),
        (EngineConfig(kv_cache_memory=1), "0.33.0", "kv_cache_memory_bytes"),
        (EngineConfig(max_model_len="auto"), "0.13.0", "0.14.0"),
        (EngineConfig(port="eighty"), "0.33.0", "port"),
        (EngineConfig(enable_mfu_metrics="yes"), "0.33.0", "neither true nor false"),
        (EngineConfig(seed={"a": 1}), "0.33.0", "whole number"),
        (EngineConfig(served_model_name=["--port"]), "0.33.0", "dash"),
    ],
)
def test_what_a_release_cannot_take_is_refused_with_its_field(
    config: EngineConfig, version: str, part: str
) -> None:
    """A setting of another release or a value of another kind names the field and the way out."""
    with pytest.raises(InvalidRequest) as refusal:
        to_argv(MODEL, config, parse_version(version))

    assert part in refusal.value.message
    assert refusal.value.pointer.startswith("/engine/config/")


@pytest.mark.parametrize("model_id", ["--port", "-tp", "", "a\nb", "a\0b"])
def test_a_model_id_can_never_be_a_flag(model_id: str) -> None:
    """Model ids that a parser or a shell could misread are refused."""
    with pytest.raises(InvalidRequest):
        to_argv(model_id, EngineConfig(), NEWEST)


def test_a_value_that_starts_with_a_dash_stays_a_value() -> None:
    """`--chat-template=--x` cannot be taken for a flag."""
    argv = to_argv(MODEL, EngineConfig(chat_template="--enforce-eager", watermark=-0.5), NEWEST)

    assert argv[3:] == ["--watermark=-0.5", "--chat-template=--enforce-eager"]
    assert from_argv(argv, NEWEST).config.enforce_eager is None


def test_images_per_prompt_had_a_form_of_their_own() -> None:
    """Before 0.9.0 the limit was written as pairs."""
    config = EngineConfig(limit_mm_per_prompt={"image": 2, "video": 0})

    assert to_argv(MODEL, config, parse_version("0.8.5"))[-1] == "image=2,video=0"
    assert to_argv(MODEL, config, NEWEST)[-1] == '{"image":2,"video":0}'


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["m", "--max_num_seqs", "8"], {"max_num_seqs": 8}),
        (["m", "--max-num-seqs=8"], {"max_num_seqs": 8}),
        (["-tp", "2", "m"], {"tensor_parallel_size": 2}),
        (["m", "-tp=2", "-q", "fp8"], {"tensor_parallel_size": 2, "quantization": "fp8"}),
        (["m", "--max-model-len", "25.6k"], {"max_model_len": 25_600}),
        (["m", "--max-model-len", "32K"], {"max_model_len": 32_768}),
        (["m", "--max-model-len", "-1"], {"max_model_len": "auto"}),
        (["m", "--kv-cache-memory-bytes", "16M"], {"kv_cache_memory_bytes": 2**24}),
        (["m", "-O3"], {"optimization_level": "3"}),
        (["m", "-O", "0"], {"optimization_level": "0"}),
        (["m", "--disable-prefix-caching"], {"enable_prefix_caching": False}),
        (["m", "--no-enable-prefix-caching"], {"enable_prefix_caching": False}),
        (["m", "--enable-custom-all-reduce"], {"disable_custom_all_reduce": False}),
        (["m", "--max-num-seqs", "8", "--max-num-seqs", "9"], {"max_num_seqs": 9}),
        (["m", "--device-memory-utilization", "0.8"], {"gpu_memory_utilization": 0.8}),
        (
            ["m", "--speculative-config.method", "ngram", "-sc.num_speculative_tokens=3"],
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
        ),
        (
            ["m", "-cc.cudagraph_capture_sizes+", "1,2", "-cc.mode", "3"],
            {"compilation_config": {"cudagraph_capture_sizes": ["1", "2"], "mode": 3}},
        ),
        (["m", "--cudagraph-capture-sizes", "1", "2"], {"cudagraph_capture_sizes": [1, 2]}),
    ],
)
def test_vllms_own_spellings_are_read(arguments: list[str], expected: dict[str, Json]) -> None:
    """Dashes or underscores, short flags, suffixes, dotted JSON and levels mean what vLLM means."""
    parsed = read(*arguments)

    assert parsed.is_accepted, parsed.problems
    assert parsed.model == "m"
    assert parsed.config == EngineConfig(**expected)


@pytest.mark.parametrize(
    ("arguments", "version", "code", "index"),
    [
        (["m", "--enforce-eager", "False"], "0.33.0", "boolean-takes-no-value", 4),
        (["m", "--enable-prefix-caching=false"], "0.33.0", "boolean-takes-no-value", 3),
        (["m", "--swap-space", "4"], "0.33.0", "not-in-version", 3),
        (["m", "--performance-mode", "throughput"], "0.16.0", "not-in-version", 3),
        (["m", "--disable-prefix-caching"], "0.32.0", "unknown-setting", 3),
        (["m", "--device", "cpu"], "0.33.0", "ambiguous", 3),
        (["m", "--no-such-flag", "1"], "0.33.0", "unknown-setting", 3),
        (["m", "--max-num-seqs", "1k"], "0.33.0", "bad-value", 3),
        (["m", "--max-num-seqs", "8.0"], "0.33.0", "bad-value", 3),
        (["m", "--max-num-batched-tokens", "2.5K"], "0.33.0", "bad-value", 3),
        (["m", "--kv-cache-memory-bytes", "512Ki"], "0.33.0", "bad-value", 3),
        (["m", "--dtype", "bf16"], "0.33.0", "bad-choice", 3),
        (["m", "--kv-cache-dtype", "fp9"], "0.20.0", "bad-choice", 3),
        (["m", "--max-num-seqs"], "0.33.0", "missing-value", 3),
        (["m", "--max-num-seqs", "--enforce-eager"], "0.33.0", "missing-value", 3),
        (["m", "n"], "0.33.0", "unexpected-argument", 3),
        (["m", "--speculative-config", "{not json"], "0.33.0", "bad-value", 3),
        (["m", "--disable-async-scheduling"], "0.32.0", "unknown-setting", 3),
    ],
)
def test_what_vllm_refuses_is_found_at_its_place(
    arguments: list[str], version: str, code: str, index: int
) -> None:
    """Each refusal names its code and the argument that causes it."""
    parsed = read(*arguments, version=version)

    assert not parsed.is_accepted
    assert [(p.code, p.index) for p in parsed.problems if p.is_refused] == [(code, index)]


def test_a_removed_setting_is_still_understood() -> None:
    """A setting of another release keeps its value, so that the checker can explain it."""
    parsed = read("m", "--swap-space", "4", "--num-scheduler-steps", "8")

    assert parsed.config == EngineConfig(swap_space=4, num_scheduler_steps=8)
    assert parsed.problems[0].suggestion == "--kv-offloading-size"


def test_a_truth_word_can_become_the_model() -> None:
    """`vllm serve --enforce-eager False` serves a model called False; that is worth a word."""
    parsed = read("--enforce-eager", "False")

    assert parsed.is_accepted
    assert parsed.model == "False"
    assert codes(parsed) == ["boolean-takes-no-value"]


def test_abbreviations_and_duplicates_are_notes() -> None:
    """VLLM takes unique prefixes and repeated flags silently; both are reported, not refused."""
    parsed = read("m", "--max-num-seq", "8", "--gpu-mem", "0.8", "--max-num-seqs", "9")

    assert parsed.is_accepted
    assert codes(parsed) == ["abbreviated", "abbreviated", "duplicate"]
    assert parsed.config == EngineConfig(max_num_seqs=9, gpu_memory_utilization=0.8)


def test_places_point_at_the_deciding_argument() -> None:
    """For a repeated setting the last occurrence decides."""
    parsed = read("m", "--max-num-seqs", "8", "--seed=1", "--max-num-seqs", "9")

    assert parsed.places == {"max_num_seqs": 6, "seed": 5}


def test_other_ways_to_start_are_read() -> None:
    """The module form names the model with a flag; a bare argument list works as well."""
    module = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m", "-tp", "2"]
    bare = ["--model=m", "-tp", "2"]

    assert from_argv(module, NEWEST).model == "m"
    assert from_argv(module, NEWEST).config == from_argv(bare, NEWEST).config


def test_secrets_and_files_are_named_but_not_kept() -> None:
    """A key on the command line is reported by its flag alone."""
    parsed = read("m", "--api-key", "secret-1", "--config", "vllm.yaml")

    assert parsed.left_out == ("--api-key",)
    assert parsed.config_file == "vllm.yaml"
    assert parsed.config == EngineConfig()


def test_the_old_truth_value_of_chunked_prefill_is_read() -> None:
    """From 0.5.3 to 0.8.4 chunked prefill took True or False."""
    parsed = read("m", "--enable-chunked-prefill=False", version="0.8.4")

    assert parsed.is_accepted
    assert parsed.config.enable_chunked_prefill is False


def test_the_grammar_names_no_secret() -> None:
    """Secrets, files and the model have no place in a configuration."""
    assert not set(grammar()) & NOT_CONFIGURATION
    assert is_known("api_key", NEWEST)


@pytest.mark.parametrize(
    "arguments",
    [
        ["m", "--seed", "9" * 400],
        ["m", "--max-model-len", "9" * 400 + "t"],
        ["m", "--kv-cache-memory-bytes", "9" * 30 + "T"],
        ["m", "--additional-config", '{"a": ' + "9" * 400 + "}"],
        ["m", "--additional-config", '{"a": NaN}'],
        ["m", "--additional-config", "{" * 20_000 + "}"],
        ["m", "--speculative-config" + ".a" * 5000, "1"],
        ["m", "--gpu-memory-utilization", "inf"],
    ],
)
def test_monstrous_values_are_refused_calmly(arguments: list[str]) -> None:
    """Numbers and depths that no JSON reader takes are problems, not crashes."""
    parsed = read(*arguments)

    assert codes(parsed) == ["bad-value"]
    assert msgspec.json.decode(msgspec.json.encode(parsed.config)) == {}


@pytest.mark.parametrize("level", ["-O²", "-O3", "-O=3", "-Ofast"])
def test_old_releases_take_levels_for_compilation(level: str) -> None:
    """Before 0.12.0 the short form set the compilation level."""
    parsed = read("m", level, version="0.10.2")

    assert parsed.is_accepted
    assert parsed.config.compilation_config is not None
