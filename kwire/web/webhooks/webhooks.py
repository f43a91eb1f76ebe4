"""/webhooks: create, list, change, pause, resume and delete webhooks, and rotate their secrets.

A request is answered when its change is durable. Only the answer to the request that sets a secret contains the secret.
"""

import msgspec
from aiohttp import web

from kwire.streams.webhooks.definition import parse_webhook
from kwire.web.requests.bodies import body_of, check_is_json, decoded, json_answer, query_of, raw_body_of
from kwire.web.requests.origin_policy import check_name
from kwire.web.route import Route
from kwire.web.services import WebhookServices
from kwire.web.webhooks.lookup import PATH, TAG, facts_of, page_of, shown, webhooks_of
from kwire.web.webhooks.shapes import (
    ChangedWebhook,
    CreatedWebhook,
    DeletedWebhook,
    NewWebhook,
    RotatedSecret,
    RotateSecret,
    ShownWebhook,
    WebhookList,
    WebhooksQuery,
)

HOUR_MS = 3_600_000


async def create(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks = webhooks_of(services)
    asked = await body_of(request, NewWebhook)
    _check_topics(asked.topics)
    webhook = await webhooks.register(parse_webhook(msgspec.to_builtins(asked)))
    created = msgspec.convert({**facts_of(webhook), "secret": webhook.definition.secrets.current}, CreatedWebhook)
    return json_answer(created, 201)


async def list_webhooks(services: WebhookServices, request: web.Request) -> web.Response:
    listed, after = await page_of(webhooks_of(services), query_of(request, WebhooksQuery), shown)
    return json_answer(WebhookList(webhooks=listed, next=after))


async def get(services: WebhookServices, request: web.Request) -> web.Response:
    return json_answer(shown(await webhooks_of(services).get(request.match_info["webhook"])))


async def change(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    check_is_json(request)
    raw = await raw_body_of(request)
    asked = decoded(raw, ChangedWebhook)
    if isinstance(asked.topics, dict):
        _check_topics(asked.topics)
    changed = await webhooks.change(webhook_id, parse_webhook(msgspec.to_builtins(asked), is_new=False))
    return json_answer(shown(changed))


async def delete(services: WebhookServices, request: web.Request) -> web.Response:
    webhook_id = request.match_info["webhook"]
    await webhooks_of(services).remove(webhook_id)
    return json_answer(DeletedWebhook(success=True, id=webhook_id))


async def pause(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks = webhooks_of(services)
    return json_answer(shown(await webhooks.pause(request.match_info["webhook"], "on request")))


async def resume(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks = webhooks_of(services)
    return json_answer(shown(await webhooks.resume(request.match_info["webhook"])))


async def rotate_secret(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks = webhooks_of(services)
    check_is_json(request)
    raw = await raw_body_of(request)
    asked = decoded(raw, RotateSecret) if raw else RotateSecret()
    overlap_ms = None if asked.overlapHours is None else round(asked.overlapHours * HOUR_MS)
    definition = (await webhooks.rotate_secret(request.match_info["webhook"], asked.secret, overlap_ms)).definition
    secrets = definition.secrets.at(services.clock.now_ms())
    previous = len(secrets.secrets) - 1
    answer = RotatedSecret(
        id=definition.webhook_id, secret=secrets.current, previousSecretCount=previous, oldSigns=previous
    )
    return json_answer(answer)


def _check_topics(topics: dict[str, str | None]) -> None:
    for name in topics:
        check_name(name)


ROUTES: tuple[Route[WebhookServices], ...] = (
    Route(
        "POST",
        "/webhooks",
        create,
        "Create a webhook: send the events of topics to a URL",
        "Only this answer contains the secret with which deliveries are signed.",
        tag=TAG,
        request=NewWebhook,
        answers={201: CreatedWebhook},
    ),
    Route(
        "GET", "/webhooks", list_webhooks, "List the webhooks", tag=TAG, query=WebhooksQuery, answers={200: WebhookList}
    ),
    Route(
        "GET",
        "/webhooks/{webhook}",
        get,
        "Describe a webhook and its progress",
        tag=TAG,
        parameters=PATH,
        answers={200: ShownWebhook},
    ),
    Route(
        "PATCH",
        "/webhooks/{webhook}",
        change,
        "Change a webhook",
        "Absent fields are not changed. A topic that the webhook already has keeps its position.",
        tag=TAG,
        parameters=PATH,
        request=ChangedWebhook,
        answers={200: ShownWebhook},
    ),
    Route(
        "DELETE",
        "/webhooks/{webhook}",
        delete,
        "Delete a webhook, its dead letters and its delivery log",
        tag=TAG,
        parameters=PATH,
        answers={200: DeletedWebhook},
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/pause",
        pause,
        "Pause a webhook",
        "Nothing is sent until it is resumed.",
        tag=TAG,
        parameters=PATH,
        answers={200: ShownWebhook},
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/resume",
        resume,
        "Resume a paused or disabled webhook",
        tag=TAG,
        parameters=PATH,
        answers={200: ShownWebhook},
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/rotate-secret",
        rotate_secret,
        "Replace the secret",
        "For the next `overlapHours` hours, deliveries are also signed with the old secret.",
        tag=TAG,
        parameters=PATH,
        request=RotateSecret,
        answers={200: RotatedSecret},
    ),
)
