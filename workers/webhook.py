"""Telling the outcome to who asked for it, as Standard Webhooks describes it.

The secret is a file that the operator put on the node under the name in the plan; a plan whose
secret is not there is not delivered, so that no caller can send a worker to addresses of its own.
Source: the Standard Webhooks specification (id, timestamp and body, HMAC-SHA256, base64).
"""

import base64
import binascii
import hashlib
import hmac
import threading
from datetime import datetime
from pathlib import Path

import httpx
import msgspec

from api_schemas.validation import TERMINAL, Validation, Webhook
from service.identifiers import timestamp
from service.log import get_logger
from service.measured import address_of

_PAUSES_S = (0.0, 5.0, 30.0)
_LIMIT_S = 10.0
_PREFIX = "whsec_"
_log = get_logger(__name__)


def deliver(
    validation: Validation,
    *,
    secrets_dir: Path | None,
    now: datetime,
    pauses: tuple[float, ...] = _PAUSES_S,
) -> bool:
    """Send the outcome of a finished validation; tell whether it was taken."""
    hook = validation.plan.webhook
    if hook is None or validation.status not in TERMINAL:
        return False
    secret = read_secret(hook, secrets_dir)
    if secret is None:
        _log.warning("webhook_without_secret", id=validation.id, secret_ref=hook.secret_ref)
        return False
    body = message(validation, now=now)
    headers = signed_headers(body, identifier=validation.id, at=now, secret=secret)
    for pause_s in pauses:
        threading.Event().wait(pause_s)
        if _send(hook.url, body, headers):
            _log.info("webhook_delivered", id=validation.id)
            return True
    _log.warning("webhook_given_up", id=validation.id)
    return False


def message(validation: Validation, *, now: datetime) -> bytes:
    """Return the body: what happened, when, and where to read on."""
    return msgspec.json.encode(
        {
            "type": f"validation.{validation.status}",
            "timestamp": timestamp(now),
            "data": {
                "id": validation.id,
                "recommendation_id": validation.recommendation_id,
                "mode": validation.mode,
                "status": validation.status,
                "verdict": validation.verdict,
                "url": address_of(validation.id),
            },
        }
    )


def signed_headers(body: bytes, *, identifier: str, at: datetime, secret: bytes) -> dict[str, str]:
    """Return the headers that prove the sender; the id is the same on every try."""
    seconds = int(at.timestamp())
    signed = b"%s.%d.%s" % (identifier.encode(), seconds, body)
    signature = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": identifier,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{signature}",
        "content-type": "application/json",
    }


def read_secret(hook: Webhook, secrets_dir: Path | None) -> bytes | None:
    """Return the secret of this name; None when the node has none, or it cannot be read."""
    name = hook.secret_ref
    if secrets_dir is None or name.startswith(".") or Path(name).name != name:
        return None
    try:
        text = (secrets_dir / name).read_text().strip()
        if not text.startswith(_PREFIX):
            return text.encode() or None
        return base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (OSError, UnicodeDecodeError, binascii.Error):
        return None


def _send(url: str, body: bytes, headers: dict[str, str]) -> bool:
    try:
        answer = httpx.post(
            url, content=body, headers=headers, timeout=_LIMIT_S, follow_redirects=False
        )
    except httpx.HTTPError as error:
        _log.warning("webhook_failed", reason=str(error))
        return False
    if not answer.is_success:
        _log.warning("webhook_refused", status=answer.status_code)
    return answer.is_success
