"""Common functions of the webhook routes: access to webhooks, event ids in requests, pages, and webhooks as JSON."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from kwire.errors import InvalidEvent
from kwire.streams.commands import WebhookCommands, WebhookView
from kwire.streams.event_store.event_ids import EventId
from kwire.web.answers.errors import BadRequest, Refusal
from kwire.web.requests.origin_policy import check_name
from kwire.web.services import WebhookServices
from kwire.web.webhooks.shapes import ShownPlace, ShownWebhook, WebhooksQuery

TAG = "webhooks"
WEBHOOK_ID_LENGTH_MAX = 100
PATH = {"webhook": Annotated[str, msgspec.Meta(min_length=1, max_length=WEBHOOK_ID_LENGTH_MAX)]}

Shown = TypeVar("Shown")


def webhooks_of(services: WebhookServices) -> WebhookCommands:
    if services.commands is None:
        raise Refusal("webhooks are disabled: set kwire.webhooks.enable to true", code="WebhooksDisabled", status=403)
    return services.commands


async def page_of(
    webhooks: WebhookCommands, query: WebhooksQuery, show: Callable[[WebhookView], Shown]
) -> tuple[list[Shown], str | None]:
    """Return the webhooks of a page, and the `after` of the next page (None on the last page)."""
    # Request one webhook more than `limit`: if it exists, there is a next page.
    page = await webhooks.page(query.after, query.limit + 1, query.topic)
    listed: list[Shown] = []
    for one in page[: query.limit]:
        listed.append(show(one))
        # Yield to the event loop after each webhook, because a webhook may have a hundred topics.
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
    """Return the values of all fields of a ShownWebhook."""
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
