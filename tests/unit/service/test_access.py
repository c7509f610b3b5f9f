"""Keys and callers, without a store."""

from datetime import UTC, datetime, timedelta

import pytest

from api_schemas.access import ApiKey
from service.access import (
    ANONYMOUS,
    caller_of,
    digest_of,
    identifier_of,
    is_loopback,
    matches,
    new_secret,
    refusal_of,
)
from service.identifiers import timestamp

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def key(**fields: object) -> ApiKey:
    given = {
        "id": "k3v9x1m2q8za",
        "prefix": "sp_k3v9x1m2q8za",
        "name": "ci",
        "tenant": "team-a",
        "scopes": ["read"],
        "created_at": timestamp(NOW),
        "created_by": "operator",
    }
    return ApiKey(**(given | fields))  # type: ignore[arg-type]


def test_a_key_is_recognised_by_itself_only() -> None:
    """Its hash matches it and no other key; its id can be read from it."""
    first, second = new_secret(), new_secret()

    assert identifier_of(first.text) == first.identifier
    assert matches(first.text, digest=digest_of(first.text))
    assert not matches(second.text, digest=digest_of(first.text))


def test_a_key_does_not_show_in_its_repr() -> None:
    """What is logged by mistake holds the visible prefix only."""
    secret = new_secret()

    assert secret.identifier in repr(secret)
    assert secret.text.rsplit("_", 1)[1] not in repr(secret)


@pytest.mark.parametrize(
    "text", ["", "sp_", "sp_short_x", "Bearer x", "sp_ABCDEFGHIJKL_" + "a" * 43]
)
def test_what_is_no_key_has_no_id(text: str) -> None:
    """Malformed keys are told apart before the store is asked."""
    assert identifier_of(text) is None


def test_a_key_ends_at_its_times() -> None:
    """It is valid before its expiry and its revocation, and not from then on."""
    later = timestamp(NOW + timedelta(seconds=1))

    assert refusal_of(key(), at=NOW) is None
    assert refusal_of(key(expires_at=later), at=NOW) is None
    assert refusal_of(key(expires_at=later), at=NOW + timedelta(seconds=1)) == "expired"
    assert refusal_of(key(revoked_at=timestamp(NOW)), at=NOW) == "revoked"


def test_admin_has_every_scope_and_nobody_else_has_more_than_given() -> None:
    """Scopes do not imply each other, but admin implies all."""
    reader, admin = caller_of(key()), caller_of(key(scopes=["admin"]))

    assert reader.may("read")
    assert not reader.may("recommend")
    assert admin.may("validate")
    assert not ANONYMOUS.may("admin")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.4", False),
        ("example.org", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, expected: bool) -> None:  # noqa: FBT001
    """A name other than localhost may mean anything, so it does not count."""
    assert is_loopback(host) is expected
