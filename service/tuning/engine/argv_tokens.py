"""Small pieces of vLLM's command-line grammar that look at single arguments."""

import re
from collections.abc import Mapping, Sequence

from api_schemas.base import Json
from service.tuning.engine.values import read_json, read_size

SERVER_MODULE = "vllm.entrypoints.openai.api_server"
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


def is_negative_number(argument: str) -> bool:
    """Whether argparse takes the argument for a number although it starts with a dash."""
    return _NEGATIVE_NUMBER.fullmatch(argument) is not None


def first_argument(argv: Sequence[str]) -> int:
    """Return the index of the first argument after program and sub-command."""
    if SERVER_MODULE in argv:
        return list(argv).index(SERVER_MODULE) + 1
    for index, argument in enumerate(argv[:2]):
        if argument == "serve":
            return index + 1
    return 1 if argv and argv[0].rsplit("/", 1)[-1] == "vllm" else 0


def dashed(flag: str) -> str:
    """Return a long flag with dashes up to the first dot."""
    name, dot, rest = flag.partition(".")
    return name.replace("_", "-") + dot + rest if flag.startswith("--") else flag


def loose_value(text: str) -> Json:
    """Return JSON where the text is JSON, a number where it has a suffix, else the text."""
    try:
        return read_json(text)
    except ValueError:
        pass
    try:
        return read_size(text)
    except ValueError:
        return text


def merge(target: dict[str, Json], update: Mapping[str, Json]) -> None:
    """Put `update` into `target`: objects are merged, lists joined, the rest replaced."""
    for key, value in update.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        elif isinstance(value, list) and isinstance(target.get(key), list):
            target[key] = target[key] + value
        else:
            target[key] = value
