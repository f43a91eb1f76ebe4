"""/consumers: the short way to a webhook. A callback URL and topics; the first failure removes the consumer.

A consumer is a webhook with the policy `remove`, so it is under /webhooks too; here are all webhooks, in short.
"""

from typing import Annotated

import msgspec
from aiohttp import web

from kwire.broker.webhooks.definition import Policy, State, parse_webhook
from kwire.streams.commands import WebhookView
from kwire.web.bodies import body_of, json_answer, query_of
from kwire.web.route import Route
from kwire.web.safety import check_name
from kwire.web.services import WebServices
from kwire.web.webhooks.lookup import PATH, TAG, page_of, webhooks_of
from kwire.web.webhooks.shapes import DeletedWebhook, Places, Url, WebhooksQuery


class NewConsumer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    callback: Url
    topics: Places


class ShownConsumer(msgspec.Struct, kw_only=True):
    """`topics`: the last event of each that is done with, or null."""

    id: str
    callback: str
    topics: dict[str, str | None]
    policy: Policy
    state: State


class RegisteredConsumer(ShownConsumer, kw_only=True):
    """Deliveries are signed with `secret`, as Standard Webhooks has it. It is told this once."""

    secret: str


class ConsumerList(msgspec.Struct, kw_only=True):
    """`next` is what to give as `after` for the page that follows."""

    consumers: list[ShownConsumer]
    next: Annotated[str | None, msgspec.Meta(description="null: this is the last page.")]


async def register(services: WebServices, request: web.Request) -> web.Response:
    webhooks = webhooks_of(services)
    asked = await body_of(request, NewConsumer)
    for name in asked.topics:
        check_name(name)
    raw = {"url": asked.callback, "topics": asked.topics, "policy": "remove"}
    webhook = await webhooks.register(parse_webhook(raw))
    definition = webhook.definition
    answer = RegisteredConsumer(
        id=definition.webhook_id,
        callback=definition.url,
        topics=_last_ids(webhook),
        policy=definition.policy,
        state=definition.state,
        secret=definition.secrets.current,
    )
    return json_answer(answer, 201)


async def list_consumers(services: WebServices, request: web.Request) -> web.Response:
    listed, after = await page_of(webhooks_of(services), query_of(request, WebhooksQuery), _shown)
    return json_answer(ConsumerList(consumers=listed, next=after))


async def get_consumer(services: WebServices, request: web.Request) -> web.Response:
    return json_answer(_shown(await webhooks_of(services).get(request.match_info["webhook"])))


async def delete_consumer(services: WebServices, request: web.Request) -> web.Response:
    webhook_id = request.match_info["webhook"]
    await webhooks_of(services).remove(webhook_id)
    return json_answer(DeletedWebhook(success=True, id=webhook_id))


def _last_ids(webhook: WebhookView) -> dict[str, str | None]:
    return {name: place.last_event_id for name, place in webhook.places.items()}


def _shown(webhook: WebhookView) -> ShownConsumer:
    definition = webhook.definition
    return ShownConsumer(
        id=definition.webhook_id,
        callback=definition.url,
        topics=_last_ids(webhook),
        policy=definition.policy,
        state=definition.state,
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/consumers/register",
        register,
        "Have the events of topics sent to a callback",
        "The first answer that is not 2xx, or that does not come in time, removes the consumer.",
        tag=TAG,
        request=NewConsumer,
        answers={201: RegisteredConsumer},
    ),
    Route(
        "GET", "/consumers", list_consumers, "All consumers", tag=TAG, query=WebhooksQuery, answers={200: ConsumerList}
    ),
    Route(
        "GET",
        # All but the path that registers: it takes no GET, and says so.
        "/consumers/{webhook:(?!register$)[^/]+}",
        get_consumer,
        "A consumer, and how far it is",
        tag=TAG,
        parameters=PATH,
        answers={200: ShownConsumer},
    ),
    Route(
        "DELETE",
        "/consumers/{webhook:(?!register$)[^/]+}",
        delete_consumer,
        "Remove a consumer",
        tag=TAG,
        parameters=PATH,
        answers={200: DeletedWebhook},
    ),
)
