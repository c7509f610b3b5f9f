"""What is sent, and how it is signed."""

import base64
from datetime import UTC, datetime

import msgspec
from standardwebhooks import Webhook as Verifier

from api_schemas.study import Choices, Study, StudyRequest
from api_schemas.validation import Validation, ValidationPlan
from service.webhooks.message import message, signed_headers

_SECRET = b"0123456789abcdef01234567"


def _validation() -> Validation:
    return Validation(
        id="v1",
        recommendation_id="r1",
        mode="boot",
        plan=ValidationPlan(mode="boot"),
        status="succeeded",
        stage="succeeded",
        progress=1.0,
        created_at="2026-01-02T03:04:05.000Z",
        finished_at="2026-01-02T03:05:05.000Z",
        verdict="pass",
    )


def test_a_message_says_what_happened_and_where_to_read_on() -> None:
    """Type, time of the event, verdict and address; never more than the record says."""
    body = msgspec.json.decode(message(_validation()))

    assert body["type"] == "validation.succeeded"
    assert body["timestamp"] == "2026-01-02T03:05:05.000Z"
    assert body["data"]["verdict"] == "pass"
    assert body["data"]["url"] == "/validations/v1"


def test_a_study_is_told_in_the_same_words() -> None:
    """Type, time, how it went and where to read on; `best` is the number of its best trial."""
    request = StudyRequest(recommendation_id="r1", space={"max_num_seqs": Choices(values=[2, 4])})
    study = Study(
        id="s1",
        created_at="2026-01-02T03:04:05.000Z",
        finished_at="2026-01-02T03:05:05.000Z",
        request=request,
        status="succeeded",
        stage="succeeded",
        progress=1.0,
        best=3,
    )

    body = msgspec.json.decode(message(study))

    assert body["type"] == "study.succeeded"
    assert body["timestamp"] == "2026-01-02T03:05:05.000Z"
    assert body["data"] == {
        "id": "s1",
        "recommendation_id": "r1",
        "status": "succeeded",
        "trials": 0,
        "best": 3,
        "url": "/studies/s1",
    }


def test_every_try_has_the_same_body() -> None:
    """A message that is sent again says the same, byte by byte."""
    assert message(_validation()) == message(_validation())


def test_a_receiver_with_the_library_can_verify_it() -> None:
    """The specification's own library accepts what is sent, and nothing that was changed."""
    body, at = message(_validation()), datetime.now(UTC)

    headers = signed_headers(body, identifier="v1", at=at, secret=_SECRET)

    verifier = Verifier("whsec_" + base64.b64encode(_SECRET).decode())
    assert verifier.verify(body, headers)["data"]["id"] == "v1"


def test_the_signature_is_that_of_the_specifications_example() -> None:
    """The known example of the Standard Webhooks libraries gives the known signature."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    at = datetime.fromtimestamp(1614265330, tz=UTC)

    headers = signed_headers(
        '{"test": 2432232314}', identifier="msg_p5jXN8AQM9LWM0D4loKWxJek", at=at, secret=secret
    )

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
