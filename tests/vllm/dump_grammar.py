"""Print what `vllm serve` accepts, as its own parser says; runs inside the vLLM environment."""

import argparse
import json
import sys
from collections.abc import Callable

from vllm.entrypoints.cli import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.version import __version__

KINDS = {
    "int": "int",
    "float": "float",
    "str": "str",
    "loads": "json",
    "parse_dataclass": "json",
    "human_readable_int": "size",
    "human_readable_int_or_auto": "size_or_auto",
    "union_dict_and_str": "json_or_str",
}


def serve_parser() -> argparse.ArgumentParser:
    """Return the parser of the sub-command."""
    top = FlexibleArgumentParser(prog="vllm")
    commands = top.add_subparsers(dest="subparser", required=True)
    return serve.cmd_init()[0].subparser_init(commands)


def inner(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return the type behind the wrappers for optional values."""
    cells = dict(
        zip(parse.__code__.co_freevars, parse.__closure__ or (), strict=True)
        if hasattr(parse, "__code__")
        else ()
    )
    return inner(cells["return_type"].cell_contents) if "return_type" in cells else parse


def kind(action: argparse.Action) -> str:
    """Return how the value is written."""
    if type(action).__name__ == "EnableDisableAction":
        return "boolean"
    if action.nargs == 0:
        return "switch"
    return KINDS.get(getattr(inner(action.type), "__name__", "") if action.type else "", "str")


def plain(value: object) -> object:
    """Return a default that JSON can hold; None for the rest."""
    return value if type(value) in {bool, int, float, str} else None


def entry(action: argparse.Action, group: str) -> dict[str, object]:
    """Return one setting's grammar."""
    long = [option for option in action.option_strings if option.startswith("--")]
    found: dict[str, object] = {"kind": kind(action), "flag": long[0]}
    if action.nargs == "+":
        found["is_list"] = True
    if type(action).__name__ == "_AppendAction":
        found["is_repeated"] = True
    if short := [option for option in action.option_strings if not option.startswith("--")]:
        found["short"] = short
    if aliases := [o for o in long[1:] if kind(action) not in {"boolean", "switch"}]:
        found["aliases"] = aliases
    if choices := [choice for choice in action.choices or () if choice is not None]:
        found["choices"] = choices
    if (default := plain(action.default)) is not None:
        found["default"] = default
    if group == "Frontend":
        found["is_frontend"] = True
    return found


def grammar() -> dict[str, object]:
    """Return version and grammar of every flag."""
    parser = serve_parser()
    groups = {
        action.dest: group.title or ""
        for group in parser._action_groups
        for action in group._group_actions
    }
    settings = {
        action.dest: entry(action, groups[action.dest])
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    }
    return {"version": __version__, "settings": settings}


if __name__ == "__main__":
    json.dump(grammar(), sys.stdout, indent=1, sort_keys=True)
