"""Files that Setpoint wrote: their header says release and hardware, which nothing else there does.

What writes it is `service/tuning/render`: a comment in every file, a table in the decision record.
"""

import re

import msgspec

from api_schemas.hardware import Hardware
from service.tuning.engine.versions import EngineVersion, parse_version
from service.tuning.errors import TuningError
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.lint.text import SourceFile

_HEAD = 4000
"""Characters in which a header stands; headlines of decision records are long."""
_COMMENT = re.compile(
    r"^# Setpoint: \S+ with vLLM (?P<version>\S+) on (?P<gpus>\d{1,4}) x (?P<gpu>.+)\.$",
    re.MULTILINE,
)
_ROWS = {
    "version": re.compile(r"^\| vLLM \| (\S+) \|$", re.MULTILINE),
    "gpu": re.compile(r"^\| hardware \| (?:\d+ machines of )?\d+ x (.+?) \|$", re.MULTILINE),
    "gpus": re.compile(r"^\| GPUs per server \| (\d{1,4}) \|$", re.MULTILINE),
}
_WIDEST_NODE = 8


class OwnHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a header says of the server in the file."""

    version: EngineVersion
    hardware: Hardware | None
    """Of one server; None where the catalogue does not hold the part."""


def own_header(file: SourceFile) -> OwnHeader | None:
    """Return what our own header says; None in files of others."""
    head = file.content[:_HEAD]
    said = _COMMENT.search(head)
    facts = said.groupdict() if said is not None else _table(head)
    if facts is None:
        return None
    try:
        version = parse_version(facts["version"])
    except TuningError:
        return None
    return OwnHeader(version=version, hardware=_hardware(facts["gpu"], int(facts["gpus"])))


def _table(head: str) -> dict[str, str] | None:
    found = {name: row.search(head) for name, row in _ROWS.items()}
    facts = {name: match[1] for name, match in found.items() if match is not None}
    return facts if len(facts) == len(_ROWS) else None


def _hardware(gpu: str, gpus: int) -> Hardware | None:
    per_node = min(max(1, gpus), _WIDEST_NODE)
    try:
        hardware = Hardware(gpu=gpu, gpus_per_node=per_node, nodes=max(1, gpus // per_node))
        resolve_hardware(hardware)
    except TuningError:
        return None
    return hardware
