"""Common functions of the webhook routes: access to webhooks, event ids in requests, pages, and webhooks as JSON."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from kwire.access.acl import Operation
from kwire.errors import InvalidEvent, StreamError, WebhookNotFound
from kwire.streams.commands import WebhookCommands, WebhookView
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.webhooks.definition import LATEST, WebhookRequest, parse_webhook
from kwire.web.answers.errors import BadRequest, Refusal
from kwire.web.requests.access import RequestAccess
from kwire.web.requests.origin_policy import check_name
from kwire.web.services import WebhookServices
from kwire.web.webhooks.shapes import ShownPlace, ShownWebhook, WebhooksQuery

TAG = "webhooks"
WEBHOOK_ID_LENGTH_MAX = 100
WEBHOOKS_PER_CHUNK = 100
PATH = {"webhook": Annotated[str, msgspec.Meta(min_length=1, max_length=WEBHOOK_ID_LENGTH_MAX)]}

Shown = TypeVar("Shown")


def webhooks_of(services: WebhookServices) -> WebhookCommands:
    commands = services.commands()
    if commands is None:
        raise Refusal("webhooks are disabled: set kwire.webhooks.enable to true", code="WebhooksDisabled", status=403)
    return commands


def authorize_topics(access: RequestAccess, topics: Iterable[str]) -> None:
    """Check that the client may read the topics whose events a webhook sends. The names are full names."""
    for name in topics:
        check_name(name)
        access.authorize_topic(Operation.READ, name)


def authorize_places(access: RequestAccess, places: Mapping[str, str | None]) -> dict[str, str | None]:
    """Check that the client may read the topics of a new or changed webhook. Return the topics and the event ids with
    full names."""
    for name in places:
        check_name(name)
    full = {
        access.full_name(name): last if last is None or last == LATEST else access.full_name(last)
        for name, last in places.items()
    }
    authorize_topics(access, full)
    return full


def webhook_request(access: RequestAccess, raw: object, *, is_new: bool = True) -> WebhookRequest:
    """Return the validated request of a client, in which names are full names."""
    request = parse_webhook(raw, is_new=is_new)
    return request if access.scope is None else request._replace(scope_prefix=access.scope.prefix)


async def authorize_webhook(
    access: RequestAccess, webhooks: WebhookCommands, webhook_id: str, *, is_sending: bool = False
) -> None:
    """Check that the webhook is the client's own, or that the client may ALTER the cluster. If `is_sending`, the client
    must also be allowed to read the topics of the webhook. For clients without rights, the refusal is the same whether
    the webhook exists or not. A webhook outside of the client's scope does not exist for the client."""
    if not access.is_restricted:
        return
    if access.scope is not None:
        if not is_own(access, await webhooks.get(webhook_id)):
            raise WebhookNotFound(webhook_id)
    elif not access.allows_cluster(Operation.ALTER):
        try:
            webhook = await webhooks.get(webhook_id)
        except StreamError:
            access.authorize_cluster(Operation.ALTER)
            raise
        if not is_own(access, webhook):
            access.authorize_cluster(Operation.ALTER)
    if is_sending:
        authorize_topics(access, (await webhooks.get(webhook_id)).definition.topics)


def is_own(access: RequestAccess, webhook: WebhookView) -> bool:
    """Return whether the client has created the webhook, or another client of the same scope."""
    if access.scope is not None:
        return webhook.definition.scope_prefix == access.scope.prefix
    # Definitions of webhooks that were created without authentication have no creator.
    creator = getattr(webhook.definition, "creator", None)
    return creator is not None and str(creator) == str(access.principal)


async def page_of(
    access: RequestAccess,
    webhooks: WebhookCommands,
    query: WebhooksQuery,
    show: Callable[[RequestAccess, WebhookView], Shown],
) -> tuple[list[Shown], str | None]:
    """Return the webhooks of a page, and the `after` of the next page (None on the last page)."""
    # Request one webhook more than `limit`: if it exists, there is a next page.
    if access.allows_cluster(Operation.ALTER):
        page = await webhooks.page(query.after, query.limit + 1, query.topic)
    else:
        page = await _own_page(access, webhooks, query)
    listed: list[Shown] = []
    for one in page[: query.limit]:
        listed.append(show(access, one))
        # Yield to the event loop after each webhook, because a webhook may have a hundred topics.
        await asyncio.sleep(0)
    return listed, page[query.limit - 1].definition.webhook_id if len(page) > query.limit else None


async def _own_page(access: RequestAccess, webhooks: WebhookCommands, query: WebhooksQuery) -> list[WebhookView]:
    found: list[WebhookView] = []
    after = query.after
    topic = None if query.topic is None else access.full_name(query.topic)
    while page := await webhooks.page(after, WEBHOOKS_PER_CHUNK, topic):
        found += [one for one in page if is_own(access, one)]
        if len(found) > query.limit:
            break
        after = page[-1].definition.webhook_id
    return found[: query.limit + 1]


def event_id_of(access: RequestAccess, text: str) -> EventId:
    """Return the id of an event that the client has named, with the full name of its topic."""
    try:
        event_id = EventId.parse(text)
    except InvalidEvent as error:
        raise BadRequest(error.message) from None
    check_name(event_id.topic)
    return event_id._replace(topic=access.full_name(event_id.topic))


def shown_or_none(access: RequestAccess, event_id: str | None) -> str | None:
    return None if event_id is None else access.shown(event_id)


def shown(access: RequestAccess, webhook: WebhookView) -> ShownWebhook:
    return msgspec.convert(facts_of(access, webhook), ShownWebhook)


def facts_of(access: RequestAccess, webhook: WebhookView) -> dict[str, Any]:
    """Return the values of all fields of a ShownWebhook."""
    return {
        **webhook.definition.shown(),
        "reason": access.shown_text(webhook.definition.reason),
        "topics": {
            access.shown(name): ShownPlace(
                lastEventId=shown_or_none(access, place.last_event_id), pending=place.pending, retrying=place.retrying
            )
            for name, place in webhook.places.items()
        },
        "delivered": webhook.delivered_count,
        "failed": webhook.failed_count,
        "deadLetters": webhook.dead_count,
    }
