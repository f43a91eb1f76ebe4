"""What all doors of webhooks share: whether they are served, the ids in requests, and a webhook as it is shown."""

from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire.broker.store.event_ids import EventId
from kwire.broker.webhooks.consumer import Consumer
from kwire.broker.webhooks.webhooks import Webhooks
from kwire.errors import InvalidEvent
from kwire.web.errors import BadRequest, Refusal
from kwire.web.safety import check_name
from kwire.web.services import WebServices
from kwire.web.webhooks.shapes import ShownPlace, ShownWebhook

TAG = "webhooks"
WEBHOOK_ID_LENGTH_MAX = 100
PATH = {"webhook": Annotated[str, msgspec.Meta(min_length=1, max_length=WEBHOOK_ID_LENGTH_MAX)]}


def webhooks_of(services: WebServices) -> Webhooks:
    if services.webhooks is None:
        raise Refusal(
            "webhooks are not served here: kwire.webhooks.enable is false", code="WebhooksDisabled", status=403
        )
    return services.webhooks


def consumer_of(services: WebServices, request: web.Request) -> Consumer:
    """The webhook that the path names; raises WebhookNotFound."""
    return webhooks_of(services).get(request.match_info["webhook"])


def event_id_of(text: str) -> EventId:
    try:
        event_id = EventId.parse(text)
    except InvalidEvent as error:
        raise BadRequest(error.message) from None
    check_name(event_id.topic)
    return event_id


def shown(webhooks: Webhooks, consumer: Consumer) -> ShownWebhook:
    return msgspec.convert(facts_of(webhooks, consumer), ShownWebhook)


def facts_of(webhooks: Webhooks, consumer: Consumer) -> dict[str, Any]:
    """All fields of a ShownWebhook."""
    return {
        **consumer.definition.shown(),
        "topics": {
            name: ShownPlace(lastEventId=place.last_event_id, pending=place.pending, retrying=place.retrying)
            for name, place in webhooks.places(consumer).items()
        },
        "delivered": consumer.delivered_count,
        "failed": consumer.failed_count,
        "deadLetters": len(consumer.dead),
    }
