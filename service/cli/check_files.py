"""The files that a check reads: named ones, whole folders, standard input."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from api_schemas.check import CheckFile
from service.cli.documents import read_document, refused

_SUFFIXES = frozenset({".yaml", ".yml", ".json", ".sh", ".bash", ".py", ".env", ".service", ".md"})
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})
_MOST_FILES = 2000


def collect(paths: Sequence[str]) -> list[CheckFile]:
    """Return the files with their texts; folders are searched for what can hold a command.

    Raises:
        Refused: A file is missing, unreadable or no text, or there are too many.
    """
    names = [name for path in paths for name in _names(path)]
    if not names:
        raise refused("no file to check was found")
    if len(names) > _MOST_FILES:
        raise refused(f"more than {_MOST_FILES} files; name fewer")
    return [CheckFile(path=name, content=_text(name)) for name in dict.fromkeys(names)]


def _names(path: str) -> Iterator[str]:
    if path == "-" or not Path(path).is_dir():
        yield path
        return
    for folder, subfolders, files in os.walk(path):
        subfolders[:] = sorted(n for n in subfolders if n not in _SKIPPED and n[0] != ".")
        for name in sorted(files):
            if Path(name).suffix in _SUFFIXES:
                yield str(Path(folder, name))


def _text(name: str) -> str:
    try:
        return read_document(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refused(f"{name} is no UTF-8 text: {error.reason} at byte {error.start}") from None
