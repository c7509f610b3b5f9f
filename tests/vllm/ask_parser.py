"""Ask the real vLLM about many command lines: JSON lines in, JSON lines out; no GPU.

In: {"argv": ["serve", MODEL, ...], "model_dir": DIR or absent}. Out: {"stage", "message",
"values"}: stage is "accepted", "parser" (refused by the argument parser), "command" (refused by the
serve command's own check) or "config" (refused by the config objects, which need a folder with
config.json and tokenizer instead of the model).
The line {"grammar": true} is answered with the grammar of every flag, {"capture": {...}} with the
CUDA-graph sizes for these limits; where config objects accept, "config" holds their main values.
"""

import argparse
import contextlib
import io
import json
import sys
from types import SimpleNamespace

from dump_grammar import grammar
from vllm.config import VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli import serve
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser


def make_parser() -> tuple[FlexibleArgumentParser, object]:
    """Return the top-level parser with the serve command, and the command."""
    top = FlexibleArgumentParser(prog="vllm")
    commands = top.add_subparsers(dest="subparser", required=True)
    command = serve.cmd_init()[0]
    command.subparser_init(commands)
    return top, command


def refused(stage: str, error: BaseException, values: dict, complaint: str = "") -> dict:
    """Return a refusal with vLLM's own words."""
    message = f"{complaint[-600:]} {type(error).__name__}: {error}"
    return {"stage": stage, "message": message, "values": values}


def answer(top: FlexibleArgumentParser, command: object, line: dict[str, object]) -> dict:
    """Return what vLLM says to one command line."""
    if line.get("grammar"):
        return grammar()
    if "capture" in line:
        return {"sizes": captured(**line["capture"])}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            arguments = top.parse_args(list(line["argv"]))
    except (SystemExit, Exception) as error:  # noqa: BLE001  # vLLM raises anything it likes
        return refused("parser", error, {}, complaint.getvalue())
    values = {name: plain(value) for name, value in vars(arguments).items()}
    try:
        command.validate(arguments)
    except Exception as error:  # noqa: BLE001
        return refused("command", error, values)
    return judged(arguments, values, line.get("model_dir"))


def judged(arguments: argparse.Namespace, values: dict, model_dir: object) -> dict:
    """Return what the config objects say, where a folder stands in for the model."""
    if model_dir is not None:
        arguments.model = model_dir
        try:
            usage = UsageContext.OPENAI_API_SERVER
            made = AsyncEngineArgs.from_cli_args(arguments).create_engine_config(usage)
        except Exception as error:  # noqa: BLE001
            return refused("config", error, values)
        return {"stage": "accepted", "message": "", "values": values, "config": main_values(made)}
    return {"stage": "accepted", "message": "", "values": values}


def main_values(config: VllmConfig) -> dict:
    """Return what the config objects made of the settings that defaults depend on."""
    return {
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_model_len": config.model_config.max_model_len,
        "enable_chunked_prefill": config.scheduler_config.enable_chunked_prefill,
        "enable_prefix_caching": config.cache_config.enable_prefix_caching,
        "gpu_memory_utilization": config.cache_config.gpu_memory_utilization,
        "async_scheduling": config.scheduler_config.async_scheduling,
    }


def captured(seqs: int, tokens: int, mode: str, query_len: int, maximum: int | None) -> list[int]:
    """Return the sizes that vLLM captures, from its own method on a bare object."""
    compilation = SimpleNamespace(
        cudagraph_mode=None,
        max_cudagraph_capture_size=maximum,
        cudagraph_capture_sizes=None,
        post_init_cudagraph_sizes=lambda: None,
    )
    bare = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(max_num_seqs=seqs, max_num_batched_tokens=tokens),
        uniform_decode_query_len=query_len,
        speculative_config=None,
        performance_mode=mode,
    )
    VllmConfig._set_cudagraph_sizes(bare)
    return compilation.cudagraph_capture_sizes


def plain(value: object) -> object:
    """Return a value that JSON can hold."""
    if isinstance(value, bool | int | float | str | list | dict | None):
        try:
            json.dumps(value)
        except TypeError:
            return str(value)
        return value
    return str(value)


def main() -> None:
    """Answer every line of standard input."""
    out = sys.stdout
    sys.stdout = sys.stderr  # vLLM logs to standard output
    top, command = make_parser()
    for text in sys.stdin:
        print(json.dumps(answer(top, command, json.loads(text))), file=out, flush=True)


if __name__ == "__main__":
    main()
