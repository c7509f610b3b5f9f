"""vLLM's own configuration file: keys that the loader turns into flags.

Follows the loader of vllm 0.33.0 (utils/argparse_utils.py, load_config_file): true becomes the flag
alone, false is dropped, lists become repeated values, objects become JSON.
"""

import json

from service.tuning.engine.facts import setting_history
from service.tuning.engine.grammar import NOT_CONFIGURATION
from service.tuning.lint.found import FoundEngine, Reading, Remark, Word
from service.tuning.lint.manifest_words import word_of
from service.tuning.lint.text import Text
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, Sequence, plain

TITLE = "vLLM configuration file"
_MOSTLY = 0.5


def is_vllm_yaml(document: Node) -> bool:
    """Whether at least half of the keys are settings that some release has."""
    if not isinstance(document, Mapping) or not document.entries:
        return False
    names = [key.text.value.partition("=")[0] for key, _ in document.all_entries()]
    known = sum(_is_setting(name) for name in names)
    return known >= max(1.0, _MOSTLY * len(names))


def _is_setting(name: str) -> bool:
    snake = name.replace("-", "_").removeprefix("no_")
    return snake in NOT_CONFIGURATION or setting_history(snake) is not None


def read_vllm_yaml(document: Mapping, content: str) -> Reading:
    """Return the engine that `vllm serve --config FILE` starts."""
    start = document.span.start
    words = [Word(Text.near("vllm", start)), Word(Text.near("serve", start))]
    remarks: list[Remark] = []
    for key, value in document.all_entries():
        flag, equals, attached = key.text.value.partition("=")
        name = flag.replace("_", "-") + equals + attached
        if name in {"model", "model-tag"} and isinstance(value, Scalar):
            words.insert(2, word_of(value, content))
        elif isinstance(value, Scalar) and value.value is False:
            remarks.append(_dropped(key, name))
        else:
            words.append(Word(Text(f"--{name}", [key.span.start] * (len(name) + 2)), span=key.span))
            words += _values(value, content)
    engine = FoundEngine(
        title=TITLE,
        form="yaml",
        span=document.span,
        words=tuple(words),
        remarks=tuple(remarks),
    )
    return Reading(engines=(engine,))


def _values(value: Node, content: str) -> list[Word]:
    match value:
        case Scalar() if value.value is True:
            return []
        case Scalar() if value.value is None:
            return [Word(Text.near("None", value.span.start), span=value.span)]
        case Scalar():
            return [word_of(value, content)]
        case Sequence():
            return [_item(item, content) for item in value.items]
        case Mapping():
            return [_object(value)]


def _item(item: Node, content: str) -> Word:
    return word_of(item, content) if isinstance(item, Scalar) else _object(item)


def _object(value: Node) -> Word:
    text = json.dumps(plain(value), separators=(",", ":"))
    return Word(Text.near(text, value.span.start), span=value.span)


def _dropped(key: Scalar, name: str) -> Remark:
    setting = key.text.value.replace("-", "_")
    return Remark(
        rule="CFG001",
        message=(
            f"{key.text.value}: false is dropped by the loader, so the setting keeps its default."
        ),
        suggestion=f"no-{name}: true",
        setting=setting,
        span=key.span,
    )
