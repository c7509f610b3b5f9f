"""Callers and their keys: how a key is written, recognised and judged. No I/O."""

import hashlib
import hmac
import ipaddress
import re
import secrets
from datetime import datetime

import msgspec

from api_schemas.access import ApiKey, Scope
from service.identifiers import timestamp
from service.store.keys import DEFAULT_TENANT

_KEY = re.compile(r"sp_([a-z0-9]{12})_[A-Za-z0-9_\-]{43}")
_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID_LENGTH = 12
_SECRET_BYTES = 32
ALL_SCOPES: tuple[Scope, ...] = ("read", "recommend", "validate", "admin")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request."""

    tenant: str
    key_id: str | None
    scopes: frozenset[Scope]

    @property
    def actor(self) -> str:
        """Return how the audit trail names this caller."""
        return self.key_id or "anonymous"

    def may(self, scope: Scope) -> bool:
        """Tell whether this caller has a scope; admin has all."""
        return scope in self.scopes or "admin" in self.scopes


ANONYMOUS = Caller(
    tenant=DEFAULT_TENANT, key_id=None, scopes=frozenset({"read", "recommend", "validate"})
)
"""A caller on this very machine while no key was ever made; the first one is made on the command
line, where the data folder proves who asks."""


class NewSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A key in full, as it is shown once; `repr` hides it."""

    identifier: str
    text: str

    def __repr__(self) -> str:
        """Return the visible part."""
        return f"NewSecret({prefix_of(self.identifier)!r})"


def new_secret() -> NewSecret:
    """Return a key that nobody had before: 256 random bits behind a visible id."""
    identifier = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return NewSecret(identifier=identifier, text=f"{prefix_of(identifier)}_{secret}")


def prefix_of(identifier: str) -> str:
    """Return the visible start of a key."""
    return f"sp_{identifier}"


def identifier_of(secret: str) -> str | None:
    """Return the id in a key, or None when the text is no key."""
    found = _KEY.fullmatch(secret)
    return found[1] if found else None


def digest_of(secret: str) -> str:
    """Return what is kept of a key.

    A plain hash is enough: nobody can guess 256 random bits, unlike a password.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def matches(secret: str, *, digest: str) -> bool:
    """Tell whether a key is the one that was kept, in a time that tells nothing."""
    return hmac.compare_digest(digest_of(secret), digest)


def refusal_of(key: ApiKey, *, at: datetime) -> str | None:
    """Return why a key is not valid at this time, None when it is."""
    if key.revoked_at is not None and key.revoked_at <= timestamp(at):
        return "revoked"
    if key.expires_at is not None and key.expires_at <= timestamp(at):
        return "expired"
    return None


def caller_of(key: ApiKey) -> Caller:
    """Return the caller that a valid key stands for."""
    return Caller(tenant=key.tenant, key_id=key.id, scopes=frozenset(key.scopes))


def is_loopback(host: str) -> bool:
    """Tell whether an address can only be reached from this machine; names count as `localhost`."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
