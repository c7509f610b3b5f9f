"""Webhooks: what was sent to whom, what came of it, and sending it again."""

from typing import Annotated

from litestar import Response, get, post
from litestar.openapi.spec import Example
from litestar.params import PathParameter, QueryParameter

from api_schemas.webhook import WebhookDelivery, WebhookDeliveryPage
from service.api import examples
from service.api.bodies import encode
from service.api.context import InjectedContext
from service.api.describe import JSON, Answer, describe
from service.api.paging import PageCursor, PageSize, next_link, position_of
from service.api.problems import not_found
from service.store.cursor import encode_cursor

_PATH = "/webhook-deliveries"
DeliveryId = Annotated[
    str,
    PathParameter(
        max_length=64,
        description="Id of a delivery: that of the validation or study it tells of.",
        examples=[Example(value=examples.VALIDATION_ID)],
    ),
]


@get(
    _PATH,
    operation_id="listWebhookDeliveries",
    summary="List webhook deliveries",
    tags=["proof"],
    sync_to_thread=True,
    opt=describe(
        Answer(200, "One page, newest first.", kind=WebhookDeliveryPage, headers=("Link",)),
        problems=("store-unavailable",),
    ),
)
def list_webhook_deliveries(
    *,
    context: InjectedContext,
    validation_id: Annotated[
        str | None, QueryParameter(max_length=64, description="Only what tells of this validation.")
    ] = None,
    study_id: Annotated[
        str | None, QueryParameter(max_length=64, description="Only what tells of this study.")
    ] = None,
    cursor: PageCursor = None,
    limit: PageSize = 50,
) -> Response[bytes]:
    """Return each message with every try: when, what was answered, how long it took, what follows.

    A message that is not taken is sent again after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h.
    """
    after = position_of(cursor)
    run_id = validation_id or study_id
    if run_id is not None:
        items = [
            item
            for item in context.webhooks.of_run(run_id)
            if (item.validation_id, item.study_id) == (validation_id, study_id)
        ]
        answer = WebhookDeliveryPage(items=items, next_cursor=None)
        return Response(encode(answer), media_type=JSON)
    found, last_id = context.webhooks.page(limit=limit, after=after)
    following = encode_cursor(last_id) if last_id else None
    answer = WebhookDeliveryPage(items=found, next_cursor=following)
    headers = next_link(_PATH, {"limit": limit}, following)
    return Response(encode(answer), media_type=JSON, headers=headers)


@post(
    f"{_PATH}/{{delivery_id:str}}/replay",
    operation_id="replayWebhookDelivery",
    summary="Send a webhook again",
    tags=["proof"],
    sync_to_thread=True,
    status_code=202,
    opt=describe(
        Answer(202, "It is due at once.", kind=WebhookDelivery),
        problems=("not-found", "store-unavailable"),
    ),
)
def replay_webhook_delivery(delivery_id: DeliveryId, context: InjectedContext) -> Response[bytes]:
    """Send the same message with the same id, whatever became of it, with all its tries anew.

    A receiver that keeps the ids it has seen can tell it from a new one.
    """
    delivery = context.webhooks.replay(delivery_id)
    if delivery is None:
        raise not_found("webhook delivery", delivery_id)
    return Response(encode(delivery), status_code=202, media_type=JSON)
