"""/consumers: a simplified API for webhooks. A consumer has a callback URL and topics. The first failed delivery
removes the consumer.

A consumer is a webhook with the policy `remove`, so /webhooks shows it too. GET /consumers lists all webhooks.
"""

from typing import Annotated

import msgspec
from aiohttp import web

from kwire.streams.commands import WebhookView
from kwire.streams.webhooks.definition import Policy, State
from kwire.web.needs import ALTER_CLUSTER_FOR_OTHERS, READ_TOPICS
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import body_of, json_answer, query_of
from kwire.web.route import Route
from kwire.web.services import WebhookServices
from kwire.web.webhooks.lookup import (
    PATH,
    TAG,
    authorize_places,
    authorize_webhook,
    page_of,
    shown_or_none,
    webhook_request,
    webhooks_of,
)
from kwire.web.webhooks.shapes import DeletedWebhook, Places, Url, WebhooksQuery


class NewConsumer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    callback: Url
    topics: Places


class ShownConsumer(msgspec.Struct, kw_only=True):
    """A consumer. `topics` has the id of the last processed event of each topic, null if there is none."""

    id: str
    callback: str
    topics: dict[str, str | None]
    policy: Policy
    state: State


class RegisteredConsumer(ShownConsumer, kw_only=True):
    """A new consumer. Deliveries are signed with `secret` (Standard Webhooks). Only this answer contains the secret."""

    secret: str


class ConsumerList(msgspec.Struct, kw_only=True):
    """A page of consumers. `next` is the `after` of the next page, null on the last page."""

    consumers: list[ShownConsumer]
    next: Annotated[str | None, msgspec.Meta(description="null on the last page.")]


async def register(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks = webhooks_of(services)
    asked = await body_of(request, NewConsumer)
    access = access_of(request)
    raw = {"url": asked.callback, "topics": authorize_places(access, asked.topics), "policy": "remove"}
    webhook = await webhooks.register(webhook_request(access, raw))
    definition = webhook.definition
    answer = RegisteredConsumer(
        id=definition.webhook_id,
        callback=definition.url,
        topics=_last_ids(access, webhook),
        policy=definition.policy,
        state=definition.state,
        secret=definition.secrets.current,
    )
    return json_answer(answer, 201)


async def list_consumers(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, query = webhooks_of(services), query_of(request, WebhooksQuery)
    listed, after = await page_of(access_of(request), webhooks, query, _shown)
    return json_answer(ConsumerList(consumers=listed, next=after))


async def get_consumer(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    access = access_of(request)
    await authorize_webhook(access, webhooks, webhook_id)
    return json_answer(_shown(access, await webhooks.get(webhook_id)))


async def delete_consumer(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    await authorize_webhook(access_of(request), webhooks, webhook_id)
    await webhooks.remove(webhook_id)
    return json_answer(DeletedWebhook(success=True, id=webhook_id))


def _last_ids(access: RequestAccess, webhook: WebhookView) -> dict[str, str | None]:
    return {access.shown(name): shown_or_none(access, place.last_event_id) for name, place in webhook.places.items()}


def _shown(access: RequestAccess, webhook: WebhookView) -> ShownConsumer:
    definition = webhook.definition
    return ShownConsumer(
        id=definition.webhook_id,
        callback=definition.url,
        topics=_last_ids(access, webhook),
        policy=definition.policy,
        state=definition.state,
    )


ROUTES: tuple[Route[WebhookServices], ...] = (
    Route(
        "POST",
        "/consumers/register",
        register,
        "Register a callback for the events of topics",
        "The first answer that is not 2xx, or a timeout, removes the consumer.",
        tag=TAG,
        request=NewConsumer,
        answers={201: RegisteredConsumer},
        needs=(READ_TOPICS,),
    ),
    Route(
        "GET",
        "/consumers",
        list_consumers,
        "List the consumers",
        tag=TAG,
        query=WebhooksQuery,
        answers={200: ConsumerList},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
    Route(
        "GET",
        # The pattern excludes `register`, so that a GET of /consumers/register is answered with 405.
        "/consumers/{webhook:(?!register$)[^/]+}",
        get_consumer,
        "Describe a consumer and its progress",
        tag=TAG,
        parameters=PATH,
        answers={200: ShownConsumer},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
    Route(
        "DELETE",
        "/consumers/{webhook:(?!register$)[^/]+}",
        delete_consumer,
        "Remove a consumer",
        tag=TAG,
        parameters=PATH,
        answers={200: DeletedWebhook},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
)
