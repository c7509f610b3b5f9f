"""`setpoint webhooks`: what was sent of ended validations and studies, and sending it again."""

import click
import msgspec

from api_schemas.webhook import WebhookDelivery, WebhookDeliveryPage
from service.cli import client
from service.cli.output import as_json_option, print_json, print_rows, server_option

_PATH = "/webhook-deliveries"


class _Nothing(msgspec.Struct):
    """The body of a request that says all in its path."""


@click.group()
def webhooks() -> None:
    """Show webhook deliveries with their tries, and repeat one."""


@webhooks.command(name="list")
@click.option("--validation", "validation_id", metavar="ID", help="Only of this validation.")
@click.option("--study", "study_id", metavar="ID", help="Only of this study.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@as_json_option
@server_option
def list_deliveries(
    *, validation_id: str | None, study_id: str | None, limit: int, as_json: bool, server: str
) -> None:
    """Show the newest deliveries first."""
    of = {"validation_id": validation_id, "study_id": study_id}
    page = client.get(server, _PATH, WebhookDeliveryPage, limit=limit, **of)
    if as_json:
        print_json(page)
        return
    print_rows(
        "webhooks",
        ("id", "event", "status", "tries", "last outcome", "next try", "url"),
        (_row(item) for item in page.items),
    )


@webhooks.command()
@click.argument("identifier", metavar="ID")
@as_json_option
@server_option
def replay(*, identifier: str, as_json: bool, server: str) -> None:
    """Send a message again, with the same id, whatever became of it."""
    delivery = client.post(server, f"{_PATH}/{identifier}/replay", _Nothing(), WebhookDelivery)
    if as_json:
        print_json(delivery)
    else:
        click.echo(f"{delivery.id}: {delivery.event} is due at once to {delivery.url}")


def _row(item: WebhookDelivery) -> tuple[object, ...]:
    last = item.attempts[-1] if item.attempts else None
    tries = last.number if last else 0
    outcome = "" if last is None else f"{last.outcome} {last.status_code or ''}".strip()
    return (item.id, item.event, item.status, tries, outcome, item.next_attempt_at, item.url)
