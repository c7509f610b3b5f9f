"""Tokens that CI systems issue to their jobs (OpenID Connect): who they stand for here.

`examples/access/oidc.json` shows the file of trusted issuers.

A token counts when a trusted issuer signed it for us, it is in time, and its claims match a grant.
An issuer's keys are fetched from where its discovery document says, and kept for a while.
"""

import base64
import importlib.util
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Meta

from api_schemas.access import Scope, Tenant
from service.access import Caller, is_loopback
from service.log import get_logger

_DISCOVERY = "/.well-known/openid-configuration"
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Signatures by private keys only: with a shared secret, or none, anybody could sign."""
_LEEWAY_S = 30
_KEYS_LIFETIME_S = 600.0
_REFETCH_PAUSE_S = 30.0
"""An unknown key id makes us look again, but not more often than this."""
_TIMEOUT_S = 5.0
_LARGEST_BYTES = 1024 * 1024
_LONGEST_TOKEN = 16 * 1024
_SEGMENTS = 3

_log = get_logger(__name__)

Text = Annotated[str, Meta(min_length=1, max_length=1024)]
Url = Annotated[str, Meta(pattern=r"^https?://[^\s/?#]+[^\s?#]*$(?!\n)", max_length=1024)]
Keys = Any
"""A key set of the JOSE library, which is loaded on use."""


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job may do whose token has all these claims; a trailing * matches any rest."""

    claims: Annotated[dict[Text, Text], Meta(min_length=1)]
    tenant: Tenant
    scopes: Annotated[list[Scope], Meta(min_length=1)]


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trusted issuer, the audience that its tokens must name, and what they grant."""

    issuer: Url
    audience: Text
    grants: Annotated[list[Grant], Meta(min_length=1)]


class Trust(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file that SETPOINT_OIDC_FILE names."""

    issuers: Annotated[list[Issuer], Meta(min_length=1)]


class InvalidToken(Exception):
    """A token that does not count; the message says why, without any of it."""


class InvalidTrust(Exception):
    """A file of issuers that cannot be used; the message says why."""


def read_trust(path: str) -> Trust:
    """Return the trusted issuers of a file.

    Raises:
        InvalidTrust: It cannot be read, an issuer could be imitated, or the JOSE library is absent.
    """
    if importlib.util.find_spec("joserfc") is None:
        raise InvalidTrust("tokens need the package joserfc, which is not installed")
    try:
        trust = msgspec.json.decode(Path(path).read_bytes(), type=Trust)
        for issuer in trust.issuers:
            _refuse_plain_http(issuer.issuer)
    except (OSError, ValueError) as error:
        raise InvalidTrust(f"{path}: {error}") from None
    return trust


class TokenVerifier:
    """Turns tokens into callers."""

    def __init__(
        self,
        trust: Trust,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuers = {issuer.issuer: issuer for issuer in trust.issuers}
        self._now = now
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[Keys, float]] = {}

    def caller_of(self, token: str) -> Caller:
        """Return whom a token stands for.

        Raises:
            InvalidToken: It does not count.
        """
        issuer = self._issuers.get(_claimed_issuer(token))
        if issuer is None:
            raise InvalidToken("Its issuer is not trusted.")
        claims = self._verify(token, issuer)
        for grant in issuer.grants:
            if _matches(grant.claims, claims):
                subject = f"oidc:{urlsplit(issuer.issuer).netloc}:{claims['sub']}"
                return Caller(tenant=grant.tenant, key_id=subject, scopes=frozenset(grant.scopes))
        raise InvalidToken("Its claims match no grant.")

    def _verify(self, token: str, issuer: Issuer) -> Mapping[str, Any]:
        from joserfc import errors, jwt  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        try:
            decoded = self._decode(token, issuer)
            registry = jwt.JWTClaimsRegistry(
                now=int(self._now().timestamp()),
                leeway=_LEEWAY_S,
                iss={"essential": True, "value": issuer.issuer},
                aud={"essential": True, "value": issuer.audience},
                exp={"essential": True},
                sub={"essential": True},
            )
            registry.validate(decoded.claims)
        except errors.JoseError as error:
            raise InvalidToken(f"It was refused: {error.error}.") from None
        except (ValueError, TypeError, KeyError):
            raise InvalidToken("It is malformed.") from None
        claims: Mapping[str, Any] = decoded.claims
        return claims

    def _decode(self, token: str, issuer: Issuer) -> Any:  # noqa: ANN401  # the library's own type
        """Return the token with its signature checked; an unknown key may be a new one."""
        from joserfc import errors, jwt  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        try:
            keys = self._keys_of(issuer, lifetime_s=_KEYS_LIFETIME_S)
            return jwt.decode(token, keys, algorithms=_ALGORITHMS)
        except (errors.InvalidKeyIdError, errors.MissingKeyError):
            keys = self._keys_of(issuer, lifetime_s=_REFETCH_PAUSE_S)
            return jwt.decode(token, keys, algorithms=_ALGORITHMS)

    def _keys_of(self, issuer: Issuer, *, lifetime_s: float) -> Keys:
        with self._lock:  # one fetch for all who wait
            known = self._keys.get(issuer.issuer)
            at = self._monotonic()
            if known is not None and at - known[1] < lifetime_s:
                return known[0]
            try:
                keys = _fetch_keys(issuer.issuer)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                _log.warning("issuer_keys_not_fetched", issuer=issuer.issuer, reason=repr(error))
                if known is not None:
                    return known[0]  # still better than to refuse everybody
                raise InvalidToken("The keys of its issuer cannot be fetched.") from None
            self._keys[issuer.issuer] = (keys, at)
            return keys


def _claimed_issuer(token: str) -> str:
    """Return the issuer that a token names; nothing of it is believed yet."""
    parts = token.split(".")
    if len(parts) != _SEGMENTS or len(token) > _LONGEST_TOKEN:
        raise InvalidToken("It is malformed.")
    try:
        payload = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="))
    except ValueError:
        raise InvalidToken("It is malformed.") from None
    return str(payload.get("iss")) if isinstance(payload, dict) else ""


def _matches(wanted: Mapping[str, str], claims: Mapping[str, Any]) -> bool:
    return all(_fits(pattern, claims.get(name)) for name, pattern in wanted.items())


def _fits(pattern: str, value: object) -> bool:
    values: Sequence[object] = value if isinstance(value, list) else [value]
    texts = [text for text in values if isinstance(text, str)]
    if pattern.endswith("*"):
        return any(text.startswith(pattern[:-1]) for text in texts)
    return pattern in texts


def _fetch_keys(issuer: str) -> Keys:
    from joserfc.jwk import KeySet  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    with httpx.Client(timeout=_TIMEOUT_S, follow_redirects=False) as client:
        found = _get(client, issuer.rstrip("/") + _DISCOVERY)
        if found["issuer"] != issuer:
            raise ValueError("the discovery document is of another issuer")
        address = str(found["jwks_uri"])
        _refuse_plain_http(address)
        return KeySet.import_key_set(_get(client, address))  # type: ignore[arg-type, unused-ignore]


def _get(client: httpx.Client, url: str) -> dict[str, Any]:
    with client.stream("GET", url) as answer:
        answer.raise_for_status()
        content = b""
        for chunk in answer.iter_bytes():
            content += chunk
            if len(content) > _LARGEST_BYTES:
                raise ValueError("the answer is too large")
    return msgspec.json.decode(content, type=dict[str, Any])


def _refuse_plain_http(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError(f"{parts.scheme}://{parts.netloc} must be https")
