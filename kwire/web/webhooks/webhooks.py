"""/webhooks: create, list, change, pause, resume and delete webhooks, and rotate their secrets.

A request is answered when its change is durable. Only the answer to the request that sets a secret contains the secret.
"""

import msgspec
from aiohttp import web

from kwire.streams.commands import WebhookCommands
from kwire.web.needs import ALTER_CLUSTER_FOR_OTHERS, READ_TOPICS
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import body_of, check_is_json, decoded, json_answer, query_of, raw_body_of
from kwire.web.route import Route
from kwire.web.services import WebhookServices
from kwire.web.webhooks.lookup import (
    PATH,
    TAG,
    authorize_places,
    authorize_webhook,
    facts_of,
    page_of,
    shown,
    webhook_request,
    webhooks_of,
)
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
    access = access_of(request)
    asked.topics = authorize_places(access, asked.topics)
    webhook = await webhooks.register(webhook_request(access, msgspec.to_builtins(asked)))
    created = msgspec.convert(
        {**facts_of(access, webhook), "secret": webhook.definition.secrets.current}, CreatedWebhook
    )
    return json_answer(created, 201)


async def list_webhooks(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, query = webhooks_of(services), query_of(request, WebhooksQuery)
    listed, after = await page_of(access_of(request), webhooks, query, shown)
    return json_answer(WebhookList(webhooks=listed, next=after))


async def get(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = await _authorized(services, request)
    return json_answer(shown(access_of(request), await webhooks.get(webhook_id)))


async def change(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = await _authorized(services, request, is_sending=True)
    check_is_json(request)
    raw = await raw_body_of(request)
    asked = decoded(raw, ChangedWebhook)
    access = access_of(request)
    if isinstance(asked.topics, dict):
        asked.topics = authorize_places(access, asked.topics)
    changed = await webhooks.change(webhook_id, webhook_request(access, msgspec.to_builtins(asked), is_new=False))
    return json_answer(shown(access, changed))


async def delete(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = await _authorized(services, request)
    await webhooks.remove(webhook_id)
    return json_answer(DeletedWebhook(success=True, id=webhook_id))


async def pause(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = await _authorized(services, request)
    return json_answer(shown(access_of(request), await webhooks.pause(webhook_id, "on request")))


async def resume(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = await _authorized(services, request, is_sending=True)
    return json_answer(shown(access_of(request), await webhooks.resume(webhook_id)))


async def rotate_secret(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = await _authorized(services, request)
    check_is_json(request)
    raw = await raw_body_of(request)
    asked = decoded(raw, RotateSecret) if raw else RotateSecret()
    overlap_ms = None if asked.overlapHours is None else round(asked.overlapHours * HOUR_MS)
    definition = (await webhooks.rotate_secret(webhook_id, asked.secret, overlap_ms)).definition
    secrets = definition.secrets.at(services.clock.now_ms())
    previous = len(secrets.secrets) - 1
    answer = RotatedSecret(
        id=definition.webhook_id, secret=secrets.current, previousSecretCount=previous, oldSigns=previous
    )
    return json_answer(answer)


async def _authorized(
    services: WebhookServices, request: web.Request, *, is_sending: bool = False
) -> tuple[WebhookCommands, str]:
    """Check the client's right to the webhook in the path. Return the commands and the id of the webhook."""
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    await authorize_webhook(access_of(request), webhooks, webhook_id, is_sending=is_sending)
    return webhooks, webhook_id


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
        needs=(READ_TOPICS,),
    ),
    Route(
        "GET",
        "/webhooks",
        list_webhooks,
        "List the webhooks",
        tag=TAG,
        query=WebhooksQuery,
        answers={200: WebhookList},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
    Route(
        "GET",
        "/webhooks/{webhook}",
        get,
        "Describe a webhook and its progress",
        tag=TAG,
        parameters=PATH,
        answers={200: ShownWebhook},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
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
        needs=(READ_TOPICS, ALTER_CLUSTER_FOR_OTHERS),
    ),
    Route(
        "DELETE",
        "/webhooks/{webhook}",
        delete,
        "Delete a webhook, its dead letters and its delivery log",
        tag=TAG,
        parameters=PATH,
        answers={200: DeletedWebhook},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
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
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/resume",
        resume,
        "Resume a paused or disabled webhook",
        tag=TAG,
        parameters=PATH,
        answers={200: ShownWebhook},
        needs=(READ_TOPICS, ALTER_CLUSTER_FOR_OTHERS),
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
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
)
