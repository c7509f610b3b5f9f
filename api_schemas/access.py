"""Who may call: API keys, and the trail of what was done with them."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Record, Request, Response

Scope = Literal["read", "recommend", "validate", "admin"]
"""read: what is stored and known; recommend: advice, what-ifs, checks and registered models;
validate: proofs and measurements; admin: keys and the audit trail, and all the others."""
Tenant = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9\-]{0,62}$(?!\n)",
        description="Whose records a key reads and writes.",
        examples=["team-a"],
    ),
]
KeyName = Annotated[
    str, Meta(min_length=1, max_length=128, description="What the key is for.", examples=["ci"])
]
Lifetime = Annotated[
    int, Meta(ge=1, le=315_360_000, description="Seconds until the key ends; never when absent.")
]
Overlap = Annotated[
    int, Meta(ge=0, le=2_592_000, description="Seconds for which the old key still works.")
]


class ApiKeyRequest(Request, frozen=True, kw_only=True):
    """A key to make, for the tenant of the caller."""

    name: KeyName
    scopes: Annotated[
        list[Scope], Meta(min_length=1, max_length=4, description="What the key may do.")
    ]
    expires_in_s: Lifetime | None = None


class RotationRequest(Request, frozen=True, kw_only=True):
    """A key to replace by a new one of the same name, tenant and scopes."""

    overlap_s: Overlap = 0


class ApiKey(Record, frozen=True, kw_only=True):
    """A key as it is kept and shown: never with its secret."""

    id: str
    prefix: str
    """How the key begins: enough to recognise it by."""
    name: str
    tenant: str
    scopes: list[Scope]
    created_at: str
    created_by: str
    """Id of the key that made it, or who did it on the command line."""
    expires_at: str | None = None
    revoked_at: str | None = None
    last_used_at: str | None = None
    """To the minute."""


class ApiKeyList(Response, frozen=True, kw_only=True):
    """All keys of a tenant, the newest first."""

    items: list[ApiKey]


class CreatedApiKey(Response, frozen=True, kw_only=True):
    """A new key; `secret` is shown this once and stored nowhere."""

    key: ApiKey
    secret: str


class AuditEvent(Response, frozen=True, kw_only=True):
    """Who did what when."""

    id: str
    at: str
    actor: str
    """Id of the key; `anonymous` without one."""
    action: str
    """Operation, as the OpenAPI document names it."""
    target: str
    """Address of what was changed."""
    status: int
    """What was answered."""
    request_id: str


class AuditPage(Response, frozen=True, kw_only=True):
    """Events, the newest first."""

    items: list[AuditEvent]
    next_cursor: str | None
