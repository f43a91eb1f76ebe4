"""The JSON types of the webhook routes: requests and answers. Only the answer to the request that sets a secret
contains the secret."""

from typing import Annotated, Literal

import msgspec

from kwire.streams.webhooks.definition import (
    DESCRIPTION_LENGTH_MAX,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    PARALLEL_MAX,
    RATE_MAX,
    RATE_MIN,
    TOPICS_MAX,
    TYPES_MAX,
    URL_LENGTH_MAX,
    Policy,
    State,
)
from kwire.streams.webhooks.delivery.bodies import BodyForm
from kwire.web.answers.event_id import EVENT_ID

PAGE_MAX = 1000
PAGE_DEFAULT = 100
SECRET_LENGTH_MAX = 200
FILTER_LENGTH_MAX = 2000
EVENT_ID_LENGTH_MAX = 300
EVENT_IDS_MAX = 1000
OVERLAP_HOURS_MAX = 8760
TIME_LENGTH_MAX = 40

Url = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=URL_LENGTH_MAX,
        description="The URL to which each event is sent by POST.",
        extra_json_schema={"format": "uri", "pattern": "^https?://[^/]"},
    ),
]
PlaceText = Annotated[str, msgspec.Meta(min_length=1, max_length=EVENT_ID_LENGTH_MAX)]
TopicName = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
Places = Annotated[
    dict[TopicName, PlaceText | None],
    msgspec.Meta(
        min_length=1,
        max_length=TOPICS_MAX,
        description="The topics, each with the id of the last event before the start; null: all events, `latest`: new "
        "events only.",
    ),
]
Types = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1, max_length=256)]],
    msgspec.Meta(max_length=TYPES_MAX, description="Only events of these types; empty: all types."),
]
Filter = Annotated[
    str, msgspec.Meta(max_length=FILTER_LENGTH_MAX, description='For example `data.total > 100 and type == "paid"`.')
]
Mode = Annotated[
    Literal["ordered", "parallel"],
    msgspec.Meta(description="ordered: the events of a topic one after the other; parallel: several at a time."),
]
Parallel = Annotated[int, msgspec.Meta(ge=1, le=PARALLEL_MAX, description="Concurrent deliveries in mode `parallel`.")]
Rate = Annotated[
    float, msgspec.Meta(ge=RATE_MIN, le=RATE_MAX, description="The maximum number of deliveries started per second.")
]
Headers = Annotated[
    dict[
        Annotated[str, msgspec.Meta(min_length=1, max_length=100)],
        Annotated[str, msgspec.Meta(min_length=1, max_length=HEADER_BYTES_MAX)],
    ],
    msgspec.Meta(max_length=HEADERS_MAX, description="Additional headers of each delivery."),
]
Body = Annotated[
    BodyForm,
    msgspec.Meta(description="The event as plain JSON, or as a CloudEvent in binary or structured mode."),
]
Description = Annotated[str, msgspec.Meta(max_length=DESCRIPTION_LENGTH_MAX)]
_FOUR = "(?:[A-Za-z0-9+/]{4})"
Secret = Annotated[
    str,
    msgspec.Meta(
        max_length=SECRET_LENGTH_MAX,
        description="`whsec_` and 24 to 64 bytes in base64; generated if absent.",
        extra_json_schema={
            "pattern": f"^whsec_(?:{_FOUR}{{8,21}}(?:[A-Za-z0-9+/]{{2}}==)?|{_FOUR}{{8,20}}[A-Za-z0-9+/]{{3}}=)$"
        },
    ),
]


# --- requests


class NewWebhook(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    url: Url
    topics: Places
    policy: Policy = "retry"
    types: Types | None = None
    filter: Filter | None = None
    mode: Mode | None = None
    parallel: Parallel | None = None
    ratePerSecond: Rate | None = None
    headers: Headers | None = None
    body: Body = "event"
    secret: Secret | None = None
    description: Description | None = None


class ChangedWebhook(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The changes of a webhook. Absent fields are not changed. null removes a value. If the webhook already has a
    topic, the topic keeps its position, and the event id in the request is ignored."""

    url: Url | msgspec.UnsetType = msgspec.UNSET
    topics: Places | msgspec.UnsetType = msgspec.UNSET
    policy: Policy | msgspec.UnsetType = msgspec.UNSET
    types: Types | msgspec.UnsetType | None = msgspec.UNSET
    filter: Filter | msgspec.UnsetType | None = msgspec.UNSET
    mode: Mode | msgspec.UnsetType = msgspec.UNSET
    parallel: Parallel | msgspec.UnsetType = msgspec.UNSET
    ratePerSecond: Rate | msgspec.UnsetType | None = msgspec.UNSET
    headers: Headers | msgspec.UnsetType | None = msgspec.UNSET
    body: Body | msgspec.UnsetType = msgspec.UNSET
    description: Description | msgspec.UnsetType | None = msgspec.UNSET
    takeOver: Annotated[
        bool, msgspec.Meta(description="true: the webhook gets the rights of this client instead of its creator's.")
    ] = False


class RotateSecret(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    secret: Secret | None = None
    overlapHours: (
        Annotated[
            float,
            msgspec.Meta(
                ge=0,
                le=OVERLAP_HOURS_MAX,
                description="How long deliveries are also signed with the old secret; 0: not at all.",
            ),
        ]
        | None
    ) = None


class Resend(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    eventIds: Annotated[list[EVENT_ID], msgspec.Meta(min_length=1, max_length=EVENT_IDS_MAX)]


class ResendDead(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    eventIds: (
        Annotated[
            list[EVENT_ID],
            msgspec.Meta(max_length=EVENT_IDS_MAX, description="Absent: all, up to the maximum that may be queued."),
        ]
        | None
    ) = None


class Replay(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The start of a replay. Exactly one of `sinceEventId`, `sinceTime` and `fromBeginning` must be set."""

    topic: TopicName | None = None
    sinceEventId: Annotated[EVENT_ID | None, msgspec.Meta(description="Only events after this one.")] = None
    sinceTime: (
        Annotated[
            str,
            msgspec.Meta(min_length=1, max_length=TIME_LENGTH_MAX, description="ISO 8601; UTC without a time zone."),
        ]
        | None
    ) = None
    fromBeginning: bool = False


class WebhooksQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[str, msgspec.Meta(description="Only webhooks that sort after this id.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT
    topic: Annotated[str | None, msgspec.Meta(description="Only webhooks of this topic.")] = None


class AttemptsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    before: (
        Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="Only attempts with a smaller number.")] | None
    ) = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT
    failed: Annotated[bool, msgspec.Meta(description="Only failed attempts.")] = False


class DeadQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[EVENT_ID | None, msgspec.Meta(description="Only dead letters after this event.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT


# --- answers


class ShownPlace(msgspec.Struct, kw_only=True):
    """The progress of a webhook in a topic. `pending` is the number of events after the webhook's position, including
    events that its filters exclude. `retrying` is the number of failed events that wait for their next attempt."""

    lastEventId: str | None
    pending: int
    retrying: int


class ShownWebhook(msgspec.Struct, kw_only=True):
    """A webhook. `state` is active, paused or disabled. `reason` says why the webhook is in this state. The values of
    headers are hidden."""

    id: str
    url: str
    topics: dict[str, ShownPlace]
    policy: Policy
    types: list[str]
    filter: str | None
    mode: Literal["ordered", "parallel"]
    parallel: int
    ratePerSecond: float | None
    headers: dict[str, str]
    body: BodyForm
    description: str
    state: State
    reason: str
    createdAt: str
    creator: Annotated[str, msgspec.Meta(description="The principal whose rights the webhook has, as `User:alice`.")]
    delivered: int
    failed: int
    deadLetters: int


class CreatedWebhook(ShownWebhook, kw_only=True):
    """A new webhook. Only this answer contains the secret."""

    secret: str


class WebhookList(msgspec.Struct, kw_only=True):
    """A page of webhooks. `next` is the `after` of the next page, null on the last page."""

    webhooks: list[ShownWebhook]
    next: str | None


class DeletedWebhook(msgspec.Struct, kw_only=True):
    success: bool
    id: str


class RotatedSecret(msgspec.Struct, kw_only=True):
    """The new secret of a webhook. `previousSecretCount` is the number of previous secrets with which deliveries are
    also signed. `oldSigns` is its former name, and will be removed."""

    id: str
    secret: str
    previousSecretCount: int
    oldSigns: int


class ShownAttempt(msgspec.Struct, kw_only=True):
    """A delivery attempt. `status` is null if the receiver did not answer. `problem` is the reason of a failure.
    `outcome` is delivered, retry, dead, remove, disable or gap. An entry with the outcome `gap` is not an attempt: it
    reports events that were deleted before they could be sent. `nextAt` is the time of the next attempt."""

    number: int
    eventId: str
    type: str
    attempt: int
    at: str
    durationMs: int
    status: int | None
    problem: str | None
    answer: str
    outcome: str
    nextAt: str | None


class AttemptList(msgspec.Struct, kw_only=True):
    """A page of attempts, newest first. `next` is the `before` of the next page, null on the last page."""

    attempts: list[ShownAttempt]
    next: int | None


class ShownDeadLetter(msgspec.Struct, kw_only=True):
    eventId: str
    type: str
    attempts: int
    at: str
    status: int | None
    problem: str | None


class DeadLetterList(msgspec.Struct, kw_only=True):
    deadLetters: list[ShownDeadLetter]
    next: str | None


class Resent(msgspec.Struct, kw_only=True):
    """The result of a resend request. `queued` is the number of events that will be sent again."""

    queued: int


class Replayed(msgspec.Struct, kw_only=True):
    """The result of a replay. `topics` has, for each topic, the id of the last event that is not sent again. It is null
    if all events are sent again."""

    topics: dict[str, str | None]


class Tested(msgspec.Struct, kw_only=True):
    """The result of a test delivery."""

    success: bool
    status: int | None
    problem: str | None
    answer: str
    durationMs: int
