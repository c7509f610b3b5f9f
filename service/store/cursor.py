"""Opaque cursors: where a page ended."""

import base64
import binascii

from service.identifiers import is_identifier

_VERSION = "1:"


class InvalidCursor(Exception):
    """A cursor that no page of this service handed out."""


def encode_cursor(last_id: str) -> str:
    """Return the cursor of the page after this id."""
    return base64.urlsafe_b64encode((_VERSION + last_id).encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """Return the id after which the page starts.

    Raises:
        InvalidCursor: The text is no cursor.
    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise InvalidCursor(cursor) from error
    identifier = text.removeprefix(_VERSION)
    if not text.startswith(_VERSION) or not is_identifier(identifier):
        raise InvalidCursor(cursor)
    return identifier
