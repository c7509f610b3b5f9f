"""The gate refuses the command lines that vLLM 0.33.0's own parser refuses, and no others."""

import json
import random
import shlex
from collections.abc import Callable, Iterator
from importlib import resources

import pytest

from service.tuning.engine.argv import to_argv
from service.tuning.engine.versions import NEWEST
from service.tuning.lint.interpret import interpret
from service.tuning.lint.reading import read_command
from tests.unit.tuning.render.examples import CONFIGS, config
from tests.vllm.conftest import Ask

pytestmark = pytest.mark.vllm

_MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_LINES = 400
_SEED = 20261129
_REFUSED_LATER = {"--quantization", "-q", "--kv-cache-dtype", "--limit-mm-per-prompt"}
"""Their values are judged by vLLM's configuration objects, after the parser."""
_EXTRA = [
    "--swap-space 4",
    "--enforce-eager false",
    "--enforce-eager=True",
    "--no-enforce-eager",
    "--disable-log-requests",
    "--enable-reasoning",
    "--num-scheduler-steps 8",
    "--max-num-seq 8",
    "--max-num 8",
    "--gpu-mem 0.5",
    "--max-num-seqs 8.0",
    "--max-num-seqs 1k",
    "--max-model-len 32k",
    "--max-model-len 2.5K",
    "--max-model-len -1",
    "--max-model-len auto",
    "--dtype bf16",
    "--dtype half",
    "--block-size 16",
    "--api-key a b",
    "-O2",
    "-O4",
    "-O 1",
    "--seed -1",
    "--compilation-config 3",
    '--compilation-config {"use_inductor":false}',
    '--attention-config {"no_such":1}',
    '-cc.inductor_compile_config={"a":~1}',
    '--speculative-config={"method":~"ngram"}',
    "--speculative-config.method ngram",
    "--hf-overrides {}",
    "stray",
    "--",
    "-tp",
    "--port=80a",
    "--served-model-name a b c",
    "--disable-prefix-caching",
    "--task embed",
    "--device cuda",
]
_VALUES = ["0", "-1", "1.5", "4k", "4K", "abc", "{}", "[1]", "true", "", "1e3", "0x10"]
Mutation = Callable[[random.Random, list[str]], list[str]]


def _flags(argv: list[str]) -> list[int]:
    return [i for i, word in enumerate(argv) if word.startswith("--") and i > 1]


def _drop(rng: random.Random, argv: list[str]) -> list[str]:
    place = rng.randrange(1, len(argv))
    return argv[:place] + argv[place + 1 :]


def _double(rng: random.Random, argv: list[str]) -> list[str]:
    place = rng.randrange(1, len(argv))
    return [*argv[: place + 1], argv[place], *argv[place + 1 :]]


def _respelt(rng: random.Random, argv: list[str]) -> list[str]:
    """Underscores, a missing letter, another letter, capitals, or a shortened name."""
    places = _flags(argv)
    if not places:
        return argv
    place = rng.choice(places)
    flag = argv[place]
    at = rng.randrange(2, len(flag))
    spelt = rng.choice(
        [
            "--" + flag[2:].replace("-", "_"),
            flag[:at] + flag[at + 1 :],
            flag[:at] + "x" + flag[at:],
            flag.upper(),
            flag[: max(4, len(flag) - rng.randrange(1, 6))],
        ]
    )
    return [*argv[:place], spelt, *argv[place + 1 :]]


def _other_value(rng: random.Random, argv: list[str]) -> list[str]:
    places = [i for i in _flags(argv) if argv[i] not in _REFUSED_LATER and i + 1 < len(argv)]
    if not places:
        return argv
    place = rng.choice(places) + 1
    value = rng.choice(
        ["0", "-1", "1.5", "4k", "4K", "abc", "{}", "[1]", "true", "", "1e3", "0x10"]
    )
    return [*argv[:place], value, *argv[place + 1 :]]


def _joined(rng: random.Random, argv: list[str]) -> list[str]:
    places = [i for i in _flags(argv) if i + 1 < len(argv)]
    if not places:
        return argv
    place = rng.choice(places)
    return [*argv[:place], f"{argv[place]}={argv[place + 1]}", *argv[place + 2 :]]


def _added(rng: random.Random, argv: list[str]) -> list[str]:
    # A tilde stands for a blank inside one argument.
    words = [word.replace("~", " ") for word in rng.choice(_EXTRA).split(" ")]
    place = rng.choice([2, len(argv)])
    return [*argv[:place], *words, *argv[place:]]


_MUTATIONS: tuple[Mutation, ...] = (_drop, _double, _respelt, _other_value, _joined, _added)


def _lines() -> Iterator[list[str]]:
    """Yield command lines: the examples, each changed once or twice."""
    rng = random.Random(_SEED)  # noqa: S311  # the same lines in every run
    valid = [to_argv(_MODEL, config(name, NEWEST), NEWEST)[1:] for name in CONFIGS]
    for turn in range(_LINES):
        argv = list(valid[turn % len(valid)])
        for _ in range(1 + turn % 2):
            argv = rng.choice(_MUTATIONS)(rng, argv) if len(argv) > 1 else argv
        yield argv


def _is_refused(argv: list[str]) -> bool:
    (engine,) = read_command(shlex.join(["vllm", *argv])).engines
    return any(p.problem.is_refused for p in interpret(engine, NEWEST).problems)


def test_mutated_commands_get_vllms_own_verdict(ask: Ask) -> None:
    """Of 400 changed commands each is refused by the gate exactly when vLLM's parser refuses it."""
    verdicts = [(argv, _is_refused(argv), ask(argv)) for argv in _lines()]
    other = [(a, ours, r["message"]) for a, ours, r in verdicts if ours is not _by_vllm(r)]

    assert not other, other[:5]
    refused = sum(ours for _, ours, _ in verdicts)
    assert 100 < refused < 300


def _by_vllm(answer: dict[str, object]) -> bool:
    return answer["stage"] == "parser"


def test_the_keys_of_objects_are_those_that_the_parser_takes(ask: Ask) -> None:
    """Every closed object refuses a made-up key, and no listed key is called unexpected."""
    path = resources.files("service.tuning.lint") / "data" / "object_keys.json"
    for setting, keys in json.loads(path.read_text())["keys"].items():
        flag = f"--{setting.replace('_', '-')}"
        made_up = ask(["serve", "m", flag, '{"no_such_key": 1}'])
        listed = ask(["serve", "m", flag, json.dumps(dict.fromkeys(keys, "?"))])

        assert "unexpected_keyword_argument" in made_up["message"], setting
        assert "unexpected_keyword_argument" not in listed["message"], setting
