"""What is sent: a body that is the same on every try, and headers that prove the sender."""

from datetime import datetime

import msgspec
from standardwebhooks import Webhook as Signer

from api_schemas.base import Json
from api_schemas.study import Study
from api_schemas.validation import Validation
from service.measured import address_of, address_of_study


def message(record: Validation | Study) -> str:
    """Return the body: what happened, when, and where to read on."""
    kind, data = _of_study(record) if isinstance(record, Study) else _of_validation(record)
    body = {
        "type": f"{kind}.{record.status}",
        "timestamp": record.finished_at or record.created_at,
        "data": data,
    }
    return msgspec.json.encode(body).decode()


def _of_validation(validation: Validation) -> tuple[str, dict[str, Json]]:
    return "validation", {
        "id": validation.id,
        "recommendation_id": validation.recommendation_id,
        "mode": validation.mode,
        "status": validation.status,
        "verdict": validation.verdict,
        "url": address_of(validation.id),
    }


def _of_study(study: Study) -> tuple[str, dict[str, Json]]:
    return "study", {
        "id": study.id,
        "recommendation_id": study.request.recommendation_id,
        "status": study.status,
        "trials": len(study.trials),
        "best": study.best,
        "url": address_of_study(study.id),
    }


def signed_headers(body: str, *, identifier: str, at: datetime, secret: bytes) -> dict[str, str]:
    """Return the headers of one try at this time, in UTC; the id is the same on every try."""
    return {
        "webhook-id": identifier,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Signer(secret).sign(msg_id=identifier, timestamp=at, data=body),
        "content-type": "application/json",
    }
