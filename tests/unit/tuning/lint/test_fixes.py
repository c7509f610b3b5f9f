"""Corrections by position: the mistake is gone, everything else is as it was."""

import pytest

from api_schemas.engine import Engine
from tests.unit.tuning.lint.asked import checked

_CASES = {
    "a script": (
        "serve.sh",
        (
            "#!/bin/sh\n# keep me\nvllm serve m \\\n  --swap-space 4 \\\n"
            "  --max-num-seq 8 \\\n  --enforce-eager false \\\n  --dtype 'bf16'  # and me\n"
        ),
        (
            "#!/bin/sh\n# keep me\nvllm serve m \\\n"
            "  --max-num-seqs 8 \\\n  --no-enforce-eager \\\n  --dtype 'bfloat16'  # and me\n"
        ),
    ),
    "a list of lines": (
        "d.yaml",
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - image: a/vllm-openai:v0.33.0\n"
            "      args:\n        - --model=m  # the model\n        - --swap-space\n        - '4'\n"
            '        - "--enable-prefix-caching=false"\n        # a comment\n        - --seed=1\n'
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - image: a/vllm-openai:v0.33.0\n"
            "      args:\n        - --model=m  # the model\n"
            '        - "--no-enable-prefix-caching"\n        # a comment\n        - --seed=1\n'
        ),
    ),
    "a list in brackets": (
        "compose.yaml",
        (
            "services:\n  a:\n    image: vllm/vllm-openai:v0.33.0  # pinned\n"
            '    command: ["--model", "m", "--num-scheduler-steps", "8", "--seed", "1"]\n'
        ),
        (
            "services:\n  a:\n    image: vllm/vllm-openai:v0.33.0  # pinned\n"
            '    command: ["--model", "m", "--seed", "1"]\n'
        ),
    ),
    "the last of a list in brackets": (
        "compose.yaml",
        'services:\n  a:\n    image: vllm/vllm-openai:v0.33.0\n    command: [--swap-space, "4"]\n',
        "services:\n  a:\n    image: vllm/vllm-openai:v0.33.0\n    command: []\n",
    ),
    "vLLM's own file": (
        "vllm.yaml",
        "model: m\n# why\nenable-prefix-caching: false  # off\nswap-space: 4\ndtype: bf16\n",
        "model: m\n# why\nno-enable-prefix-caching: true  # off\ndtype: bfloat16\n",
    ),
    "Python": (
        "a.py",
        (
            "from vllm import LLM\nllm = LLM(\n    'm',\n    swap_space=4,  # old\n    seed=1,\n)\n"
            "two = LLM('m', seed=1, swap_space=4)\n"
        ),
        (
            "from vllm import LLM\nllm = LLM(\n    'm',\n    # old\n    seed=1,\n)\n"
            "two = LLM('m', seed=1)\n"
        ),
    ),
    "Markdown": (
        "a.md",
        "```bash\nvllm serve m --seed 1 --swap-space=4 # x\n```\n",
        "```bash\nvllm serve m --seed 1 # x\n```\n",
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_safe_corrections_are_made_in_place(name: str) -> None:
    """The corrected file is the old one but for the corrected arguments."""
    path, before, after = _CASES[name]

    (fixed,) = checked(path, before, fix=True).fixed_files

    assert fixed.content == after


@pytest.mark.parametrize("name", _CASES)
def test_corrected_files_need_no_further_correction(name: str) -> None:
    """A second run changes nothing, and nothing is refused any more."""
    path, _, after = _CASES[name]
    report = checked(path, after, fix=True)

    assert report.fixed_files == []
    assert report.counts.error == 0


def test_a_renamed_flag_gets_its_new_name_for_the_release() -> None:
    """0.19 refuses --disable-log-requests; the release before it needs no correction."""
    content = "vllm serve m --disable-log-requests\n"
    (fixed,) = checked("a.sh", content, fix=True, engine=Engine(version="0.19.0")).fixed_files

    assert fixed.content == "vllm serve m --no-enable-log-requests\n"
    old = checked("a.sh", content, fix=True, engine=Engine(version="0.10.0"))
    assert old.fixed_files == []


@pytest.mark.parametrize(
    "content",
    [
        "vllm serve m --nonsense 1\n",
        "X='--swap-space 4'\nvllm serve m $X\n",
        "vllm serve m -tp 3 --max-num-seqs 1k\n",
    ],
)
def test_what_has_no_safe_correction_stays(content: str) -> None:
    """Unknown flags, values behind variables and choices of people are never rewritten."""
    assert checked("a.sh", content, fix=True).fixed_files == []


def test_nothing_is_fixed_unless_asked() -> None:
    """Without fix the answer holds no files."""
    assert checked("a.sh", "vllm serve m --swap-space 4").fixed_files == []
