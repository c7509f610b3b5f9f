"""Commands in scripts: words, variables, prefixes, and where each argument stands."""

import pytest

from service.tuning.lint.limits import MAX_LINE_CHARACTERS, Unreadable
from tests.unit.tuning.lint.asked import argv, engines

_SERVE = ["vllm", "serve", "m"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("vllm serve m --a 'x y'", [*_SERVE, "--a", "x y"]),
        ('vllm serve m --a="x y"', [*_SERVE, "--a=x y"]),
        ("vllm serve m \\\n  --a 1 \\\n  --b", [*_SERVE, "--a", "1", "--b"]),
        ("vllm serve m --a '{\"b\": 1}' # why", [*_SERVE, "--a", '{"b": 1}']),
        ("A=1 nohup /opt/bin/vllm serve m > log 2>&1 &", ["/opt/bin/vllm", "serve", "m"]),
        ("exec uv run vllm serve m | tee log", _SERVE),
        ("cd x && vllm serve m; echo done", _SERVE),
        ("TP=4\nvllm serve m -tp $TP", [*_SERVE, "-tp", "4"]),
        ("vllm serve m -tp ${TP:-2} --b ${C-3}", [*_SERVE, "-tp", "2", "--b", "3"]),
        ('X="--a 1"\nvllm serve m $X', [*_SERVE, "--a", "1"]),
        ('X="--a 1"\nvllm serve m "$X"', [*_SERVE, "--a 1"]),
        (
            'args=(serve m\n  --a 1)\nargs+=(--b)\nvllm "${args[@]}" "$@"',
            [*_SERVE, "--a", "1", "--b"],
        ),
        ("if true; then\n  vllm serve m\nfi", _SERVE),
        ("bash -lc 'vllm serve m --a 1'", [*_SERVE, "--a", "1"]),
        ("cat <<EOF > x\nvllm serve not-this\nEOF\nvllm serve m", _SERVE),
        ("$ vllm serve m", _SERVE),
        ("env A=b vllm serve m", _SERVE),
        ("vllm serve m --a $'x y'", [*_SERVE, "--a", "x y"]),
        ("vllm serve m --a \\", [*_SERVE, "--a", ""]),
    ],
)
def test_words_are_those_that_a_shell_passes_on(script: str, expected: list[str]) -> None:
    """Quotes, continuations, variables, arrays and prefixes give the words of the command."""
    (engine,) = engines(script)

    assert argv(engine) == expected


def test_the_module_is_an_entry_point_too() -> None:
    """`python -m vllm.entrypoints.openai.api_server` is read from the module on."""
    (engine,) = engines("python3 -m vllm.entrypoints.openai.api_server --model m")

    assert argv(engine) == ["vllm.entrypoints.openai.api_server", "--model", "m"]


@pytest.mark.parametrize(
    ("script", "unresolved"),
    [
        ("vllm serve m --a $LEN", "$LEN"),
        ("vllm serve m --a=$(nproc)", "$(nproc)"),
        ("vllm serve m --a {{ .Values.len }}", "{{ .Values.len }}"),
        ("vllm serve m --a ${A:?needed}", "${A:?needed}"),
        ("vllm serve m --a <length> # up to 131072", "<length>"),
        ("vllm serve m --a x-<length>", "<length>"),
        ("vllm serve m --a 1 \\\n  ...", "..."),
        ("if x; then\n TP=8\nelse\n TP=4\nfi\nvllm serve m -tp $TP", "$TP"),
    ],
)
def test_what_only_a_run_can_tell_is_said(script: str, unresolved: str) -> None:
    """Unset variables, substitutions, templates and branches stay unresolved; none is guessed."""
    (engine,) = engines(script)

    assert [word.unresolved for word in engine.words if word.unresolved] == [unresolved]


def test_variables_around_the_command_are_its_environment() -> None:
    """Exports before it and assignments in front of it reach the server."""
    (engine,) = engines("export A=1\nB=2\nC=3 vllm serve m")

    assert {variable.name: variable.value for variable in engine.env} == {"A": "1", "C": "3"}


def test_docker_run_gives_image_environment_and_memory() -> None:
    """Options before the image belong to docker, what follows to vLLM."""
    (engine,) = engines(
        "docker run --gpus '\"device=0,1\"' -e HF_HOME=/x --shm-size 16g -p 8000:8000 \\\n"
        "  vllm/vllm-openai:v0.10.2 --model m -tp 2"
    )

    assert argv(engine)[1:] == ["--model", "m", "-tp", "2"]
    assert engine.version_text == "0.10.2"
    assert engine.container is not None
    assert (engine.container.shm_gib, engine.container.gpus) == (16.0, 2.0)
    assert [variable.name for variable in engine.env] == ["HF_HOME"]


def test_each_word_knows_its_place() -> None:
    """The place of an argument covers exactly its characters in the file, quotes included."""
    script = "# a comment\nvllm serve m \\\n   --max-model-len '8192'\n"
    (engine,) = engines(script, "serve.sh")
    last = engine.words[-1]

    assert script[last.place.start : last.place.end] == "'8192'"


def test_a_monstrous_line_is_refused() -> None:
    """Lines beyond the limit are not split."""
    with pytest.raises(Unreadable, match="longer"):
        engines("vllm serve m " + "x" * MAX_LINE_CHARACTERS)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.sh", "vllm serve m " + " ".join(f"--zz{i}yx" for i in range(5000))),
        ("a.sh", "vllm serve m --zz\n" * 600),
        ("a.sh", "vllm serve m\n" * 2001),
        ("a.py", "from vllm import LLM\nLLM(" + ",".join(f"a{i}=1" for i in range(3000)) + ")"),
        ("a.env", "VLLM_A=1\n" * 20_001),
        ("a.sh", "a " * 30_000),
        ("a.yaml", "\n".join(f"k{i}: {i}" for i in range(60_000))),
    ],
)
def test_more_than_any_real_file_is_refused_quickly(path: str, content: str) -> None:
    """Too many engines, arguments, unknown names, lines, words or values end in a refusal."""
    with pytest.raises(Unreadable, match="more than"):
        engines(content, path)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.yaml", "}}\n" + "{{" * 50_000),
        ("a.md", "".join("`" * (3 + i % 50) + "x\n" for i in range(5000))),
        ("-", "\n" * 100_000 + "x"),
        ("a.sh", ("$(" * 60 + "\n") * 500),
        ("a.sh", "vllm serve m '" + "{{" * 50_000),
        ("a.yaml", 'a: "' + "\\n" * 50_000 + '"'),
    ],
)
def test_text_made_to_be_slow_is_read_once(path: str, content: str) -> None:
    """Unclosed marks of every kind are passed in one go, without searching again and again."""
    assert len(engines(content, path)) <= 1
