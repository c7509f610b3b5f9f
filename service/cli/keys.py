"""`setpoint keys`: the API keys of a service, for whoever can reach its store."""

import getpass
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.table import Table

from api_schemas.access import ApiKey, ApiKeyRequest, AuditEvent, Scope, Tenant
from service.access import ALL_SCOPES, NewSecret, refusal_of
from service.cli.documents import refused
from service.cli.exit_codes import UNREACHABLE
from service.cli.output import console
from service.identifiers import timestamp
from service.settings import InvalidSettings, Settings, read_settings
from service.store.keys import DEFAULT_TENANT

if TYPE_CHECKING:
    import redis

    from service.store.api_keys import ApiKeyStore

_DAY_S = 86_400
_CREATED, _DONE = 201, 200
_data_dir = click.option("--data-dir", help="Folder of the embedded store.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def keys() -> None:
    """Make, list, replace and revoke API keys.

    The commands work on the store itself: the one of SETPOINT_REDIS_URL, or the embedded one in the
    data folder, whether the service runs or not. From the first key on, every caller needs one.
    """


@keys.command()
@click.option("--name", required=True, help="What the key is for.")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Whose records it sees.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(ALL_SCOPES),
    default=("read", "recommend"),
    show_default=True,
    help="What it may do; give it several times.",
)
@click.option("--expires-days", type=click.FloatRange(min=0.0001, max=3650), help="Days it lives.")
@_as_json
@_data_dir
def create(
    *,
    name: str,
    tenant: str,
    scopes: tuple[Scope, ...],
    expires_days: float | None,
    as_json: bool,
    data_dir: str | None,
) -> None:
    """Make a key and print it, for this one time."""
    lifetime_s = None if expires_days is None else max(1, round(expires_days * _DAY_S))
    asked = _checked(name=name, tenant=tenant, scopes=list(scopes), expires_in_s=lifetime_s)
    at = datetime.now(UTC)
    with _store(data_dir) as client:
        record, secret = _keys_in(client).create(
            name=asked.name,
            tenant=tenant,
            scopes=asked.scopes,
            created_by=_operator(),
            at=at,
            expires_at=None if lifetime_s is None else at + timedelta(seconds=lifetime_s),
        )
        _remember(client, "createApiKey", record, status=_CREATED)
    _show_secret(record, secret, as_json=as_json)


@keys.command(name="list")
@click.option("--tenant", help="Only this tenant.")
@_as_json
@_data_dir
def list_keys(*, tenant: str | None, as_json: bool, data_dir: str | None) -> None:
    """Show all keys without their secrets, also ended ones."""
    with _store(data_dir) as client:
        found = _keys_in(client).all(tenant=tenant)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    table = Table(box=None)
    for heading in ("prefix", "name", "tenant", "scopes", "state", "created", "expires", "used"):
        table.add_column(heading)
    for key in found:
        state = refusal_of(key, at=datetime.now(UTC)) or "valid"
        dates = (key.created_at, key.expires_at or "never", key.last_used_at or "never")
        table.add_row(key.prefix, key.name, key.tenant, " ".join(key.scopes), state, *dates)
    console().print(table)


@keys.command()
@click.argument("key", metavar="ID")
@_data_dir
def revoke(*, key: str, data_dir: str | None) -> None:
    """End a key for good, within a second everywhere; ID is its id or prefix."""
    with _store(data_dir) as client:
        record = _find(client, key)
        _keys_in(client).revoke(record.id, at=datetime.now(UTC))
        _remember(client, "revokeApiKey", record, status=_DONE)
    click.echo(f"revoked {record.prefix} ({record.name})", err=True)


@keys.command()
@click.argument("key", metavar="ID")
@click.option(
    "--overlap-s",
    type=click.IntRange(0, 2_592_000),
    default=0,
    show_default=True,
    help="Seconds for which the old key still works.",
)
@_as_json
@_data_dir
def rotate(*, key: str, overlap_s: int, as_json: bool, data_dir: str | None) -> None:
    """Make a key of the same name, tenant and scopes, and let the old one end."""
    at = datetime.now(UTC)
    with _store(data_dir) as client:
        old = _find(client, key)
        reason = refusal_of(old, at=at)
        if reason is not None:
            raise refused(f"{old.prefix} is {reason}; make a new key")
        overlap = timedelta(seconds=overlap_s)
        record, secret = _keys_in(client).rotate(
            old, created_by=_operator(), at=at, overlap=overlap
        )
        _remember(client, "rotateApiKey", record, status=_CREATED)
    _show_secret(record, secret, as_json=as_json)


@contextmanager
def _store(data_dir: str | None) -> Iterator["redis.Redis"]:
    """Yield a client of the service's store; an embedded one is started when none runs."""
    from service.embedded import DataFolderInUse, StoreNotStarted  # noqa: PLC0415  # of an extra
    from service.log import configure_logging  # noqa: PLC0415
    from service.open_store import opened_store  # noqa: PLC0415
    from service.store.client import StoreUnavailable  # noqa: PLC0415

    configure_logging(level="error", output="console")
    try:
        with opened_store(_settings(data_dir)) as client:
            yield client
    except (DataFolderInUse, StoreNotStarted, StoreUnavailable) as error:
        click.echo(f"setpoint: the store cannot be reached: {error}", err=True)
        sys.exit(UNREACHABLE)


def _settings(data_dir: str | None) -> Settings:
    try:
        return read_settings(data_dir=data_dir)
    except InvalidSettings as error:
        raise refused(str(error)) from None


def _keys_in(client: "redis.Redis") -> "ApiKeyStore":
    from service.store.api_keys import ApiKeyStore  # noqa: PLC0415  # of an extra

    return ApiKeyStore(client)


def _find(client: "redis.Redis", name: str) -> ApiKey:
    key = _keys_in(client).find(name.removeprefix("sp_"))
    if key is None:
        raise refused(f"there is no key {name}; `setpoint keys list` shows them")
    return key


def _checked(*, tenant: str, **fields: Any) -> ApiKeyRequest:  # noqa: ANN401  # what click read
    def convert(kind: Any, value: object) -> Any:  # noqa: ANN401
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise refused(str(error)) from None

    checked: Callable[[Any, object], Any] = convert
    checked(Tenant, tenant)
    request: ApiKeyRequest = checked(ApiKeyRequest, fields)
    return request


def _remember(client: "redis.Redis", action: str, key: ApiKey, *, status: int) -> None:
    from service.store.audit import AuditTrail  # noqa: PLC0415  # of an extra

    event = AuditEvent(
        id="",
        at=timestamp(datetime.now(UTC)),
        actor=_operator(),
        action=action,
        target=f"/api-keys/{key.id}",
        status=status,
        request_id="",
    )
    AuditTrail(client).append(event, tenant=key.tenant)


def _operator() -> str:
    """Return how the trail names whoever types."""
    try:
        return f"operator {getpass.getuser()}"
    except (KeyError, OSError):
        return "operator"


def _show_secret(key: ApiKey, secret: NewSecret, *, as_json: bool) -> None:
    if as_json:
        shown = msgspec.json.encode({"key": key, "secret": secret.text})
        click.echo(msgspec.json.format(shown).decode())
        return
    click.echo(secret.text)
    scopes = ", ".join(key.scopes)
    click.echo(f"{key.prefix}: {key.name}, tenant {key.tenant}, scopes {scopes}.", err=True)
    click.echo(
        "Keep it now: only a hash is stored. Commands read it in SETPOINT_API_KEY.", err=True
    )
