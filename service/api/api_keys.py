"""API keys and the audit trail of a tenant: for its administrators."""

from datetime import timedelta
from typing import Annotated

from litestar import Response, delete, get, post
from litestar.openapi.spec import Example
from litestar.params import PathParameter, QueryParameter, RawBody

from api_schemas.access import (
    ApiKey,
    ApiKeyList,
    ApiKeyRequest,
    AuditPage,
    CreatedApiKey,
    RotationRequest,
)
from service.access import NewSecret, refusal_of
from service.api.bodies import encode, read_body
from service.api.context import Context, InjectedContext
from service.api.describe import JSON, Answer, Body, describe, leads_to
from service.api.paging import PageSize
from service.api.problems import Refusal, not_found

ApiKeyId = Annotated[
    str,
    PathParameter(
        max_length=64, description="Id of a key.", examples=[Example(value="k3v9x1m2q8za")]
    ),
]
_TAG = "access"


def _key_request() -> ApiKeyRequest:
    return ApiKeyRequest(name="ci", scopes=["read", "recommend"], expires_in_s=7_776_000)


def _created_answer(description: str) -> Answer:
    return Answer(
        201,
        description,
        kind=CreatedApiKey,
        headers=("Location",),
        links=leads_to(
            "getApiKey", "revokeApiKey", "rotateApiKey", takes="key_id", place="/key/id"
        ),
    )


def _rotation_request() -> RotationRequest:
    return RotationRequest(overlap_s=3600)


@post(
    "/api-keys",
    operation_id="createApiKey",
    summary="Make an API key",
    tags=[_TAG],
    sync_to_thread=True,
    opt=describe(
        _created_answer("The key, shown this once."),
        body=Body(ApiKeyRequest, "Name, scopes and lifetime.", {"for a pipeline": _key_request}),
        problems=("store-unavailable",),
    ),
)
def create_api_key(body: RawBody, context: InjectedContext) -> Response[bytes]:
    """Make a key for the caller's own tenant. Only a hash of it is kept: it cannot be shown again.

    An Idempotency-Key is not honoured here, because a replay would have to keep the secret.
    """
    request = read_body(body, ApiKeyRequest)
    at = context.now()
    lifetime = request.expires_in_s
    made = context.api_keys.create(
        name=request.name,
        tenant=context.caller.tenant,
        scopes=request.scopes,
        created_by=context.caller.actor,
        at=at,
        expires_at=None if lifetime is None else at + timedelta(seconds=lifetime),
    )
    return _created(*made)


@get(
    "/api-keys",
    operation_id="listApiKeys",
    summary="List API keys",
    tags=[_TAG],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "All keys of the tenant, also ended ones, newest first.", kind=ApiKeyList),
        problems=("store-unavailable",),
    ),
)
def list_api_keys(context: InjectedContext) -> Response[bytes]:
    """Return the keys of the caller's tenant without their secrets, with the time of last use."""
    items = context.api_keys.all(tenant=context.caller.tenant)
    return Response(encode(ApiKeyList(items=items)), media_type=JSON)


@get(
    "/api-keys/{key_id:str}",
    operation_id="getApiKey",
    summary="Show an API key",
    tags=[_TAG],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "The key without its secret.", kind=ApiKey),
        problems=("not-found", "store-unavailable"),
    ),
)
def get_api_key(key_id: ApiKeyId, context: InjectedContext) -> Response[bytes]:
    """Return one key of the caller's tenant."""
    return Response(encode(_find(context, key_id)), media_type=JSON)


@delete(
    "/api-keys/{key_id:str}",
    operation_id="revokeApiKey",
    summary="Revoke an API key",
    tags=[_TAG],
    sync_to_thread=True,
    status_code=200,
    opt=describe(
        Answer(
            200, "The key, whose record stays; no process takes it a second later.", kind=ApiKey
        ),
        problems=("not-found", "store-unavailable"),
    ),
)
def revoke_api_key(key_id: ApiKeyId, context: InjectedContext) -> Response[bytes]:
    """End a key for good; it stays on the list. Asking again changes nothing."""
    key = _find(context, key_id)
    revoked = context.api_keys.revoke(key.id, at=context.now())
    return Response(encode(revoked or key), media_type=JSON)


@post(
    "/api-keys/{key_id:str}/rotations",
    operation_id="rotateApiKey",
    summary="Replace an API key",
    tags=[_TAG],
    sync_to_thread=True,
    opt=describe(
        _created_answer("The new key, shown this once."),
        body=Body(
            RotationRequest, "How long the old key still works.", {"an hour": _rotation_request}
        ),
        problems=("not-found", "conflict", "store-unavailable"),
    ),
)
def rotate_api_key(key_id: ApiKeyId, body: RawBody, context: InjectedContext) -> Response[bytes]:
    """Make a key of the same name, tenant, scopes and end, and let the old one end soon."""
    request = read_body(body, RotationRequest)
    key, at = _find(context, key_id), context.now()
    reason = refusal_of(key, at=at)
    if reason is not None:
        raise Refusal("conflict", f"The key is {reason}; make a new one.")
    overlap = timedelta(seconds=request.overlap_s)
    return _created(
        *context.api_keys.rotate(key, created_by=context.caller.actor, at=at, overlap=overlap)
    )


@get(
    "/audit-events",
    operation_id="listAuditEvents",
    summary="Show who did what",
    tags=[_TAG],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "One page, newest first.", kind=AuditPage),
        problems=("store-unavailable",),
    ),
)
def list_audit_events(
    *,
    context: InjectedContext,
    cursor: Annotated[
        str | None,
        QueryParameter(
            pattern=r"^[0-9]{1,19}-[0-9]{1,19}$(?!\n)",
            description="Where the page starts: `next_cursor` of the last one.",
        ),
    ] = None,
    limit: PageSize = 50,
) -> Response[bytes]:
    """Return what the tenant's keys changed, and what was forbidden to them.

    The newest ten thousand events are kept.
    """
    events = context.audit.newest(tenant=context.caller.tenant, limit=limit, before=cursor)
    following = events[-1].id if len(events) == limit else None
    return Response(encode(AuditPage(items=events, next_cursor=following)), media_type=JSON)


def _find(context: Context, identifier: str) -> ApiKey:
    """Return a key of the caller's own tenant; those of others do not exist here."""
    key = context.api_keys.find(identifier)
    if key is None or key.tenant != context.caller.tenant:
        raise not_found("API key", identifier)
    return key


def _created(key: ApiKey, secret: NewSecret) -> Response[bytes]:
    return Response(
        encode(CreatedApiKey(key=key, secret=secret.text)),
        status_code=201,
        media_type=JSON,
        headers={"Location": f"/api-keys/{key.id}"},
    )
