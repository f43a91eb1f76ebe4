"""/webhooks/{webhook}/…: list delivery attempts and dead letters, send events again, and send a test delivery."""

from weakref import WeakKeyDictionary

from aiohttp import web

from kwire.streams.commands import WebhookCommands
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.events.event import time_text
from kwire.streams.subscriptions.start import FROM_OLDEST, Start
from kwire.streams.webhooks.consumer import Attempt, DeadLetter
from kwire.web.answers.errors import BadRequest, Refusal
from kwire.web.answers.event_id import EVENT_ID
from kwire.web.needs import ALTER_CLUSTER_FOR_OTHERS, READ_TOPICS
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import body_of, check_is_json, decoded, json_answer, query_of, raw_body_of
from kwire.web.requests.origin_policy import check_name
from kwire.web.route import Route
from kwire.web.services import WebhookServices
from kwire.web.webhooks.lookup import (
    PATH,
    TAG,
    authorize_topics,
    authorize_webhook,
    event_id_of,
    shown_or_none,
    webhooks_of,
)
from kwire.web.webhooks.shapes import (
    AttemptList,
    AttemptsQuery,
    DeadLetterList,
    DeadQuery,
    DeletedWebhook,
    Replay,
    Replayed,
    Resend,
    ResendDead,
    Resent,
    ShownAttempt,
    ShownDeadLetter,
    Tested,
)

# The maximum number of concurrent test deliveries. It is limited because a receiver may answer slowly.
TESTS_MAX = 8

_tests: WeakKeyDictionary[WebhookCommands, int] = WeakKeyDictionary()


async def attempts(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    access = access_of(request)
    await authorize_webhook(access, webhooks, webhook_id)
    query = query_of(request, AttemptsQuery)
    # Request one attempt more than `limit`: if it exists, there is a next page.
    page = await webhooks.attempts(webhook_id, query.before, query.limit + 1, is_failed_only=query.failed)
    listed = [_shown_attempt(access, one) for one in page[: query.limit]]
    return json_answer(AttemptList(attempts=listed, next=listed[-1].number if len(page) > query.limit else None))


async def dead_letters(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    access = access_of(request)
    await authorize_webhook(access, webhooks, webhook_id)
    query = query_of(request, DeadQuery)
    after = None if query.after is None else event_id_of(access, query.after)
    page = await webhooks.dead_letters(webhook_id, after, query.limit + 1)
    listed = [_shown_letter(access, event_id, letter) for event_id, letter in page[: query.limit]]
    following = listed[-1].eventId if len(page) > query.limit else None
    return json_answer(DeadLetterList(deadLetters=listed, next=following))


async def drop_dead_letter(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    access = access_of(request)
    await authorize_webhook(access, webhooks, webhook_id)
    # The middleware has already translated the name in the path.
    event_id = event_id_of(access, access.shown(request.match_info["event"]))
    if not await webhooks.drop_dead(webhook_id, [event_id]):
        raise Refusal(f"event {event_id} is not a dead letter of this webhook", code="EventNotFound", status=404)
    return json_answer(DeletedWebhook(success=True, id=access.shown(str(event_id))))


async def resend_dead(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    access = access_of(request)
    await authorize_webhook(access, webhooks, webhook_id, is_sending=True)
    check_is_json(request)
    raw = await raw_body_of(request)
    asked = decoded(raw, ResendDead) if raw else ResendDead()
    wanted = None if asked.eventIds is None else [event_id_of(access, one) for one in asked.eventIds]
    authorize_topics(access, (one.topic for one in wanted or ()))
    return json_answer(Resent(queued=await webhooks.resend_dead(webhook_id, wanted)))


async def resend(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    access = access_of(request)
    await authorize_webhook(access, webhooks, webhook_id, is_sending=True)
    asked = await body_of(request, Resend)
    wanted = [event_id_of(access, one) for one in asked.eventIds]
    authorize_topics(access, (one.topic for one in wanted))
    return json_answer(Resent(queued=await webhooks.resend(webhook_id, wanted)))


async def replay(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    access = access_of(request)
    await authorize_webhook(access, webhooks, webhook_id, is_sending=True)
    asked = await body_of(request, Replay)
    if asked.topic is not None:
        check_name(asked.topic)
        asked.topic = access.full_name(asked.topic)
    start, topic = _start_of(access, asked)
    replayed = await webhooks.replay(webhook_id, start, topic)
    shown = {access.shown(name): shown_or_none(access, last) for name, last in replayed.items()}
    return json_answer(Replayed(topics=shown))


async def test(services: WebhookServices, request: web.Request) -> web.Response:
    webhooks, webhook_id = webhooks_of(services), request.match_info["webhook"]
    access = access_of(request)
    await authorize_webhook(access, webhooks, webhook_id)
    if _tests.get(webhooks, 0) >= TESTS_MAX:
        raise Refusal(
            f"{TESTS_MAX} test deliveries are running: try again later",
            code="TooManyTests",
            status=429,
            limit=TESTS_MAX,
        )
    _tests[webhooks] = _tests.get(webhooks, 0) + 1
    try:
        response = await webhooks.test(webhook_id)
    finally:
        _tests[webhooks] -= 1
    return json_answer(
        Tested(
            success=response.is_success,
            status=response.status,
            problem=None if response.problem is None else access.shown_text(response.problem),
            answer=response.excerpt,
            durationMs=response.duration_ms,
        )
    )


def _start_of(access: RequestAccess, asked: Replay) -> tuple[Start, str | None]:
    """Return the start of the replay, and its topic. The topic is None if all topics are replayed."""
    if (asked.sinceEventId is not None) + (asked.sinceTime is not None) + asked.fromBeginning != 1:
        raise BadRequest("exactly one of sinceEventId, sinceTime and fromBeginning must be set")
    if asked.sinceEventId is not None:
        event_id = event_id_of(access, asked.sinceEventId)
        if asked.topic not in (None, event_id.topic):
            raise BadRequest(f"event {event_id} does not belong to topic {asked.topic!r}")
        return Start.at(event_id.offset + 1), event_id.topic
    if asked.sinceTime is not None:
        return Start.parse(from_time=asked.sinceTime), asked.topic
    return FROM_OLDEST, asked.topic


def _shown_attempt(access: RequestAccess, one: Attempt) -> ShownAttempt:
    return ShownAttempt(
        number=one.number,
        eventId=access.shown(str(EventId(one.topic, one.offset))),
        type=one.event_type,
        attempt=one.attempt,
        at=time_text(one.started_ms),
        durationMs=one.duration_ms,
        status=one.status,
        problem=None if one.problem is None else access.shown_text(one.problem),
        answer=one.excerpt,
        outcome=one.outcome,
        nextAt=None if one.next_ms is None else time_text(one.next_ms),
    )


def _shown_letter(access: RequestAccess, event_id: EventId, letter: DeadLetter) -> ShownDeadLetter:
    return ShownDeadLetter(
        eventId=access.shown(str(event_id)),
        type=letter.event_type,
        attempts=letter.attempts,
        at=time_text(letter.died_ms),
        status=letter.status,
        problem=None if letter.problem is None else access.shown_text(letter.problem),
    )


ROUTES: tuple[Route[WebhookServices], ...] = (
    Route(
        "GET",
        "/webhooks/{webhook}/deliveries",
        attempts,
        "List the latest delivery attempts, newest first",
        tag=TAG,
        parameters=PATH,
        query=AttemptsQuery,
        answers={200: AttemptList},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
    Route(
        "GET",
        "/webhooks/{webhook}/dead-letters",
        dead_letters,
        "List the dead letters: events that could not be delivered",
        tag=TAG,
        parameters=PATH,
        query=DeadQuery,
        answers={200: DeadLetterList},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/dead-letters/resend",
        resend_dead,
        "Send dead letters again, some or all",
        "They remain dead letters until they are delivered.",
        tag=TAG,
        parameters=PATH,
        request=ResendDead,
        answers={200: Resent},
        needs=(READ_TOPICS, ALTER_CLUSTER_FOR_OTHERS),
    ),
    Route(
        "DELETE",
        # The pattern excludes `resend`, so that a DELETE of /dead-letters/resend is answered with 405.
        "/webhooks/{webhook}/dead-letters/{event:(?!resend$)[^/]+}",
        drop_dead_letter,
        "Delete a dead letter",
        tag=TAG,
        parameters={**PATH, "event": EVENT_ID},
        answers={200: DeletedWebhook},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/resend",
        resend,
        "Send selected events again, independent of the webhook's position",
        tag=TAG,
        parameters=PATH,
        request=Resend,
        answers={200: Resent},
        needs=(READ_TOPICS, ALTER_CLUSTER_FOR_OTHERS),
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/replay",
        replay,
        "Send all events again from a position on",
        tag=TAG,
        parameters=PATH,
        request=Replay,
        answers={200: Replayed},
        needs=(READ_TOPICS, ALTER_CLUSTER_FOR_OTHERS),
    ),
    Route(
        "POST",
        "/webhooks/{webhook}/test",
        test,
        "Send a test delivery now",
        "The status is 200 whatever the receiver answers; the body contains its answer.",
        tag=TAG,
        parameters=PATH,
        answers={200: Tested},
        needs=(ALTER_CLUSTER_FOR_OTHERS,),
    ),
)
