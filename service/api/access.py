"""Who may call what: the table of scopes, and the guard that holds every route to it."""

import asyncio
import contextlib
import hashlib
import ipaddress
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.datastructures import Headers
from litestar.handlers import BaseRouteHandler

from api_schemas.access import ApiKey, Scope
from api_schemas.problem import FieldError
from service.access import ANONYMOUS, Caller, caller_of, identifier_of, is_loopback, refusal_of
from service.api.cors import origins_of
from service.api.limits import meter_request
from service.api.problems import Refusal
from service.oidc import InvalidToken, TokenVerifier
from service.settings import Settings
from service.store.api_keys import ApiKeyStore
from service.store.client import StoreUnavailable

PUBLIC: Final = None
REQUIRED_SCOPES: Mapping[str, Scope | None] = {
    "getIndex": PUBLIC,
    "getPortalFile": PUBLIC,
    "getLiveness": PUBLIC,
    "getReadiness": PUBLIC,
    "getOpenApiDocument": PUBLIC,
    "getProblemType": PUBLIC,
    "getMetrics": "read",
    "listModels": "read",
    "getModel": "read",
    "registerModel": "recommend",
    "deleteModel": "recommend",
    "listGpus": "read",
    "getGpu": "read",
    "listPresets": "read",
    "listEngineVersions": "read",
    "getEngineVersion": "read",
    "listEngineSettings": "read",
    "listRules": "read",
    "getRule": "read",
    "createEstimate": "recommend",
    "createCheck": "recommend",
    "createRecommendation": "recommend",
    "listRecommendations": "read",
    "getRecommendation": "read",
    "getRecommendationFile": "read",
    "deleteRecommendation": "recommend",
    "createValidation": "validate",
    "getValidation": "read",
    "followValidation": "read",
    "cancelValidation": "validate",
    "listWorkers": "read",
    "listWebhookDeliveries": "read",
    "replayWebhookDelivery": "validate",
    "createMeasurement": "validate",
    "listMeasurements": "read",
    "getMeasurement": "read",
    "deleteMeasurement": "validate",
    "listCalibrations": "read",
    "getAccuracy": "read",
    "createStudy": "validate",
    "listStudies": "read",
    "getStudy": "read",
    "followStudy": "read",
    "cancelStudy": "validate",
    "createApiKey": "admin",
    "listApiKeys": "admin",
    "getApiKey": "admin",
    "revokeApiKey": "admin",
    "rotateApiKey": "admin",
    "listAuditEvents": "admin",
    "callTool": "recommend",
}
"""What each operation needs. One that is not here needs `admin`; a test holds it to be complete."""
_SHIPPED = frozenset(
    {
        "getMetrics",
        "listGpus",
        "getGpu",
        "listPresets",
        "listEngineVersions",
        "getEngineVersion",
        "listEngineSettings",
        "listRules",
        "getRule",
    }
)
"""What answers without the store and is nobody's secret: on loopback it outlives the store."""
CALLER = "caller"
OPERATION = "operation"
TARGET = "target"
"""Where the state of a request keeps who asks, what it does, and what it did that to."""
OPERATION_ID = "operation_id"
"""The option that names the operation of a route that another library made."""
_FRESH_S = 0.5
"""How long a key may be believed without asking the store: revocation reaches every process."""
_MOST_REMEMBERED = 1024
_TOUCH_EVERY_S = 60.0
_CHALLENGE = 'Bearer realm="setpoint"'

_Connection = ASGIConnection[Any, Any, Any, Any]


async def authorize(connection: _Connection, handler: BaseRouteHandler) -> None:
    """Find out who asks, and refuse what the key does not allow."""
    scope = required_scope(handler)
    if scope is PUBLIC:
        return
    state = connection.scope["state"]
    if CALLER in state:  # one request calls a tool: who asks is known, and it was counted
        state[OPERATION] = _operation(handler)
        require(state[CALLER], scope)
        return
    context = connection.app.state.context
    caller = await context.authenticator.identify(
        connection.headers,
        client_host=connection.client.host if connection.client else "",
        needs_store=_operation(handler) not in _SHIPPED,
    )
    state[CALLER], state[OPERATION] = caller, _operation(handler)
    require(caller, scope)
    await meter_request(context, caller, state)


def required_scope(handler: BaseRouteHandler) -> Scope | None:
    """Return what a route needs, None when anybody may call it."""
    operation = _operation(handler)
    if operation is None:  # OPTIONS says only which methods there are
        return PUBLIC
    return REQUIRED_SCOPES.get(operation, "admin")


def _operation(handler: BaseRouteHandler) -> str | None:
    name = getattr(handler, "operation_id", None) or handler.opt.get(OPERATION_ID)
    return name if isinstance(name, str) else None


def caller_in(state: Mapping[str, Any]) -> Caller:
    """Return who the guard found; nobody in particular on public routes."""
    caller: Caller = state.get(CALLER, ANONYMOUS)
    return caller


def require(caller: Caller, scope: Scope) -> None:
    """Return when the caller has a scope.

    Raises:
        Refusal: It has not.
    """
    if caller.may(scope):
        return
    hint = "" if caller.key_id else " Make the first key with `setpoint keys create`."
    raise Refusal(
        "forbidden",
        f"This needs a key with the scope {scope}.{hint}",
        errors=[FieldError(pointer="scope", message=f"{scope} is missing")],
        WWW_Authenticate=f'{_CHALLENGE}, error="insufficient_scope", scope="{scope}"',
    )


class Authenticator:
    """Recognises callers; asks the store at most twice a second for each key."""

    def __init__(
        self,
        store: ApiKeyStore,
        *,
        settings: Settings,
        now: Callable[[], datetime],
        tokens: TokenVerifier | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._always_required = (
            settings.require_keys or tokens is not None or not is_loopback(settings.host)
        )
        self._origins = origins_of(settings.cors_origins)
        self._now = now
        self._monotonic = monotonic
        self._known: dict[bytes, tuple[ApiKey, float]] = {}
        self._touched: dict[str, float] = {}
        self._any_made: tuple[bool, float] | None = None

    async def identify(
        self, headers: Headers, *, client_host: str, needs_store: bool = True
    ) -> Caller:
        """Return the caller of a request with these headers, from this address.

        Raises:
            Refusal: A key is needed and none, or an invalid one, was given.
            StoreUnavailable: It cannot be told.
        """
        if not await self._is_key_required(needs_store=needs_store):
            _refuse_strangers(headers, client_host=client_host, origins=self._origins)
            return ANONYMOUS
        secret = _bearer(headers.getall("authorization", []))
        if self._tokens is not None and "." in secret:
            try:
                return await asyncio.to_thread(self._tokens.caller_of, secret)
            except InvalidToken as error:
                raise _unauthorized(f"The token does not count. {error}", invalid=True) from None
        key = await self._find(secret)
        if key is None:
            raise _unauthorized("The API key is not known.", invalid=True)
        reason = refusal_of(key, at=self._now())
        if reason is not None:
            raise _unauthorized(f"The API key is {reason}.", invalid=True)
        return caller_of(key)

    async def _is_key_required(self, *, needs_store: bool) -> bool:
        if self._always_required:
            return True
        at = self._monotonic()
        if self._any_made is None or at >= self._any_made[1]:
            try:
                made = await asyncio.to_thread(self._were_any_made)
            except StoreUnavailable:
                if needs_store:
                    raise
                return False
            self._any_made = (made, at + _FRESH_S)
        return self._any_made[0]

    def _were_any_made(self) -> bool:
        """Ask the store; while it is away what was so stays so, and once true it is for good."""
        before = self._any_made
        try:
            return self._store.any_made() or (before is not None and before[0])
        except StoreUnavailable:
            if before is None:
                raise  # it may be full of keys
            return before[0]

    async def _find(self, secret: str) -> ApiKey | None:
        identifier = identifier_of(secret)
        if identifier is None:
            return None
        digest, at = hashlib.sha256(secret.encode()).digest(), self._monotonic()
        remembered = self._known.get(digest)
        if remembered is not None and at < remembered[1]:
            return remembered[0]
        key = await asyncio.to_thread(self._ask, identifier, secret)
        self._known.pop(digest, None)
        if key is not None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[digest] = (key, at + _FRESH_S)
        return key

    def _ask(self, identifier: str, secret: str) -> ApiKey | None:
        key = self._store.authenticate(identifier, secret)
        at = self._monotonic()
        if key is not None and at >= self._touched.get(key.id, 0.0):
            self._touched[key.id] = at + _TOUCH_EVERY_S
            with contextlib.suppress(StoreUnavailable):  # the time of use is for people only
                self._store.touch(key.id, at=self._now())
        return key


def _bearer(authorization: list[str]) -> str:
    if not authorization:
        raise _unauthorized("Send an API key as `Authorization: Bearer`.", invalid=False)
    scheme, _, secret = authorization[0].partition(" ")
    if len(authorization) > 1 or scheme.lower() != "bearer":
        raise _unauthorized("Send one API key as `Authorization: Bearer`.", invalid=False)
    return secret.strip()


def _unauthorized(detail: str, *, invalid: bool) -> Refusal:
    challenge = f'{_CHALLENGE}, error="invalid_token"' if invalid else _CHALLENGE
    return Refusal("unauthorized", detail, WWW_Authenticate=challenge)


def _refuse_strangers(headers: Headers, *, client_host: str, origins: frozenset[str]) -> None:
    """Refuse whatever does not come from this machine's own user, as long as there are no keys.

    That is another machine, whatever server listens for us; a name that is not of this machine, as
    a proxy or a rebound DNS name would send; and a page of another origin in the user's browser.
    """
    if not _is_address(client_host):
        return  # a Unix socket, or a test
    named = [headers.get("host", ""), *headers.getall("origin", [])]
    foreign = [name for name in named if name not in origins and not is_loopback(_host_in(name))]
    if not is_loopback(client_host) or foreign:
        raise _unauthorized(
            "Without keys only this machine is served; make one with `setpoint keys create`.",
            invalid=False,
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host_in(text: str) -> str:
    """Return the host of a Host or Origin header; empty when there is none."""
    try:
        return urlsplit(text if "//" in text else f"//{text}").hostname or ""
    except ValueError:
        return ""
