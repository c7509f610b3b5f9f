"""Ask the real vLLM about many command lines: JSON lines in, JSON lines out; no GPU.

In: {"argv": ["serve", MODEL, ...], "model_dir": DIR or absent}. Out: {"stage", "message",
"values"}: stage is "accepted", "parser" (refused by the argument parser) or "config" (refused by
the config objects, which need a folder with config.json and tokenizer instead of the model).
"""

import argparse
import contextlib
import io
import json
import sys

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser


def make_parser() -> tuple[FlexibleArgumentParser, object]:
    """Return the top-level parser with the serve command, and the command."""
    top = FlexibleArgumentParser(prog="vllm")
    commands = top.add_subparsers(dest="subparser", required=True)
    command = serve.cmd_init()[0]
    command.subparser_init(commands)
    return top, command


def parse(top: FlexibleArgumentParser, command: object, argv: list[str]) -> argparse.Namespace:
    """Return the parsed arguments; SystemExit or an exception when refused."""
    arguments = top.parse_args(argv)
    command.validate(arguments)
    if getattr(arguments, "model_tag", None):
        arguments.model = arguments.model_tag
    return arguments


def answer(top: FlexibleArgumentParser, command: object, line: dict[str, object]) -> dict:
    """Return what vLLM says to one command line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            arguments = parse(top, command, list(line["argv"]))
    except (SystemExit, Exception) as error:  # vLLM raises anything it likes here
        return {"stage": "parser", "message": f"{complaint.getvalue()[-600:]} {error}", "values": {}}
    values = {name: plain(value) for name, value in vars(arguments).items()}
    if line.get("model_dir") is None:
        return {"stage": "accepted", "message": "", "values": values}
    arguments.model = line["model_dir"]
    try:
        AsyncEngineArgs.from_cli_args(arguments).create_engine_config()
    except Exception as error:
        return {"stage": "config", "message": f"{type(error).__name__}: {error}", "values": values}
    return {"stage": "accepted", "message": "", "values": values}


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
