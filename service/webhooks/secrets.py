"""Secrets of webhooks: files that an operator put into a folder, by name.

What has no secret there is not delivered, so that no caller can make a process send to addresses
of its own.
"""

import base64
import binascii
from pathlib import Path

_PREFIX = "whsec_"


def read_secret(name: str, folder: Path | None) -> bytes | None:
    """Return the secret of this name; None when there is none, or it cannot be read.

    A file holds `whsec_` with base64 behind it, as the specification writes secrets, or the bytes
    themselves.
    """
    if folder is None or name.startswith(".") or Path(name).name != name:
        return None
    try:
        text = (folder / name).read_text().strip()
        if not text.startswith(_PREFIX):
            return text.encode() or None
        return base64.b64decode(text.removeprefix(_PREFIX), validate=True) or None
    except (OSError, ValueError, binascii.Error):
        return None
