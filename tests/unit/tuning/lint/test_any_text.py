"""No text whatsoever makes a reader fail in another way than by refusing it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_schemas.check import CheckFile, CheckRequest
from service.tuning.check import check
from tests.unit.tuning.lint.asked import TODAY

_TOKENS = st.sampled_from(
    [
        *("vllm", "serve", "m", "--max-model-len", "--swap-space", "-tp", "=", "32k", "false"),
        *("'", '"', "\\", "\n", "\r\n", " ", "\t", "$", "${", "}", "$(", ")", "(", "`", "{{", "}}"),
        *("|", "&", ";", "<", ">", "<<", "EOF", "#", "&&", "&>", "2>&1", "X=", "args=(", "+=("),
        *("if", "then", "fi", "for", "do", "done", "bash -c ", "docker run ", "-e ", "export "),
        *(":", "-", "- ", "[", "]", "{", "}", "? ", "*a", "&a ", "!!str ", "|\n", ">-\n", "---\n"),
        *("services:\n", "  a:\n", "    image: vllm/vllm-openai:v0.9.9\n", "    command: "),
        *("apiVersion: v1\n", "kind: Pod\n", "spec:\n", "  containers:\n", "  - args: ", "<<: "),
        *("model: ", "meta:\n", "vllm:\n", "true", "1e999", "0x", "é", "\ud7ff", "😀", "\x0c"),
        *("from vllm import LLM\n", "LLM(", "**", "...", ",", "b'x'", "lambda: 1", "```bash\n"),
        *("```\n", "~~~yaml\n", "[Service]\n", "ExecStart=", "Environment=", "%i", "VLLM_A=1\n"),
        *("servingEngineSpec:\n", "  modelSpec:\n", "  - modelURL: ", "data:\n", "a.sh: |\n"),
    ]
)
_PATHS = ["a.sh", "a.yaml", "a.py", "a.md", "a.env", "a.service", "-", "a.json", "Dockerfile"]


@pytest.mark.parametrize("path", _PATHS)
@settings(max_examples=120, deadline=None, derandomize=True)
@given(tokens=st.lists(_TOKENS, max_size=40))
def test_any_text_is_read_or_refused(path: str, tokens: list[str]) -> None:
    """Every text gets a verdict, places inside it, and a correction that can be read again."""
    content = "".join(tokens)
    request = CheckRequest(files=[CheckFile(path=path, content=content)], fix=True)

    report = check(request, today=TODAY)

    lines = content.count("\n") + 1
    for finding in report.findings:
        if finding.location is not None:
            assert 1 <= finding.location.line <= lines
            assert finding.location.column >= 1
    for file in report.fixed_files:
        check(CheckRequest(files=[file]), today=TODAY)
