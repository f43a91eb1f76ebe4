"""What all doors of webhooks share: whether they are served, the ids in requests, and a webhook as it is shown."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from kwire.broker.store.event_ids import EventId
from kwire.errors import InvalidEvent
from kwire.streams.commands import WebhookCommands, WebhookView
from kwire.web.errors import BadRequest, Refusal
from kwire.web.safety import check_name
from kwire.web.services import WebServices
from kwire.web.webhooks.shapes import ShownPlace, ShownWebhook, WebhooksQuery

TAG = "webhooks"
WEBHOOK_ID_LENGTH_MAX = 100
PATH = {"webhook": Annotated[str, msgspec.Meta(min_length=1, max_length=WEBHOOK_ID_LENGTH_MAX)]}

Shown = TypeVar("Shown")


def webhooks_of(services: WebServices) -> WebhookCommands:
    if services.commands.webhooks is None:
        raise Refusal(
            "webhooks are not served here: kwire.webhooks.enable is false", code="WebhooksDisabled", status=403
        )
    return services.commands.webhooks


async def page_of(
    webhooks: WebhookCommands, query: WebhooksQuery, show: Callable[[WebhookView], Shown]
) -> tuple[list[Shown], str | None]:
    """(the webhooks that the query asks for; what to give as `after` for the next page, None after the last one)."""
    # One more than asked for, to know whether there is a next page.
    page = await webhooks.page(query.after, query.limit + 1, query.topic)
    listed: list[Shown] = []
    for one in page[: query.limit]:
        listed.append(show(one))
        # Each may have a hundred topics; others get their turn.
        await asyncio.sleep(0)
    return listed, page[query.limit - 1].definition.webhook_id if len(page) > query.limit else None


def event_id_of(text: str) -> EventId:
    try:
        event_id = EventId.parse(text)
    except InvalidEvent as error:
        raise BadRequest(error.message) from None
    check_name(event_id.topic)
    return event_id


def shown(webhook: WebhookView) -> ShownWebhook:
    return msgspec.convert(facts_of(webhook), ShownWebhook)


def facts_of(webhook: WebhookView) -> dict[str, Any]:
    """All fields of a ShownWebhook."""
    return {
        **webhook.definition.shown(),
        "topics": {
            name: ShownPlace(lastEventId=place.last_event_id, pending=place.pending, retrying=place.retrying)
            for name, place in webhook.places.items()
        },
        "delivered": webhook.delivered_count,
        "failed": webhook.failed_count,
        "deadLetters": webhook.dead_count,
    }
