"""What is sent: a body that is the same on every try, and headers that prove the sender."""

from datetime import datetime

import msgspec
from standardwebhooks import Webhook as Signer

from api_schemas.validation import Validation
from service.measured import address_of


def message(validation: Validation) -> str:
    """Return the body: what happened, when, and where to read on."""
    body = {
        "type": f"validation.{validation.status}",
        "timestamp": validation.finished_at or validation.created_at,
        "data": {
            "id": validation.id,
            "recommendation_id": validation.recommendation_id,
            "mode": validation.mode,
            "status": validation.status,
            "verdict": validation.verdict,
            "url": address_of(validation.id),
        },
    }
    return msgspec.json.encode(body).decode()


def signed_headers(body: str, *, identifier: str, at: datetime, secret: bytes) -> dict[str, str]:
    """Return the headers of one try at this time, in UTC; the id is the same on every try."""
    return {
        "webhook-id": identifier,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Signer(secret).sign(msg_id=identifier, timestamp=at, data=body),
        "content-type": "application/json",
    }
