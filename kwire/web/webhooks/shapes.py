"""Webhooks as JSON: what requests may say, and what answers do. A secret is told once, when it is made."""

from typing import Annotated, Literal

import msgspec

from kwire.broker.webhooks.bodies import BodyForm
from kwire.broker.webhooks.definition import (
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
from kwire.web.event_id import EVENT_ID

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
        description="Each event is POSTed there.",
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
        description="Topic to the id of the last event that is known; null: everything, `latest`: what is new.",
    ),
]
Types = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1, max_length=256)]],
    msgspec.Meta(max_length=TYPES_MAX, description="Event types that are wanted; none: all."),
]
Filter = Annotated[
    str, msgspec.Meta(max_length=FILTER_LENGTH_MAX, description='For example `data.total > 100 and type == "paid"`.')
]
Mode = Annotated[
    Literal["ordered", "parallel"],
    msgspec.Meta(description="ordered: one event of a topic after the other; parallel: several at a time."),
]
Parallel = Annotated[int, msgspec.Meta(ge=1, le=PARALLEL_MAX, description="How many at a time, if parallel.")]
Rate = Annotated[float, msgspec.Meta(ge=RATE_MIN, le=RATE_MAX, description="Deliveries that may begin per second.")]
Headers = Annotated[
    dict[
        Annotated[str, msgspec.Meta(min_length=1, max_length=100)],
        Annotated[str, msgspec.Meta(min_length=1, max_length=HEADER_BYTES_MAX)],
    ],
    msgspec.Meta(max_length=HEADERS_MAX, description="Sent along with each delivery."),
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
        description="`whsec_` and 24 to 64 bytes in base64; none: one is made.",
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
    """What is left out stays as it is; null is none. A topic that stays keeps its place, whatever is said of it."""

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


class RotateSecret(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    secret: Secret | None = None
    overlapHours: (
        Annotated[
            float,
            msgspec.Meta(ge=0, le=OVERLAP_HOURS_MAX, description="How long the old one still signs; 0: not at all."),
        ]
        | None
    ) = None


class Resend(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    eventIds: Annotated[list[EVENT_ID], msgspec.Meta(min_length=1, max_length=EVENT_IDS_MAX)]


class ResendDead(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    eventIds: (
        Annotated[
            list[EVENT_ID],
            msgspec.Meta(max_length=EVENT_IDS_MAX, description="Left out: all, as many as may wait at a time."),
        ]
        | None
    ) = None


class Replay(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One of `sinceEventId`, `sinceTime` and `fromBeginning` says where to begin."""

    topic: TopicName | None = None
    sinceEventId: Annotated[EVENT_ID | None, msgspec.Meta(description="Of the events after this one.")] = None
    sinceTime: (
        Annotated[
            str, msgspec.Meta(min_length=1, max_length=TIME_LENGTH_MAX, description="ISO 8601; UTC if it has no zone.")
        ]
        | None
    ) = None
    fromBeginning: bool = False


class WebhooksQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[str, msgspec.Meta(description="The webhook behind which the page begins.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT
    topic: Annotated[str | None, msgspec.Meta(description="Only those that want events of this topic.")] = None


class AttemptsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    before: (
        Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="Only attempts with smaller numbers than this.")]
        | None
    ) = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT
    failed: Annotated[bool, msgspec.Meta(description="Only those that failed.")] = False


class DeadQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[EVENT_ID | None, msgspec.Meta(description="The event behind which the page begins.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT


# --- answers


class ShownPlace(msgspec.Struct, kw_only=True):
    """How far a webhook is. `pending` is how many events of the topic lie behind its place, wanted or not; `retrying`
    how many that have failed are waiting for their next attempt."""

    lastEventId: str | None
    pending: int
    retrying: int


class ShownWebhook(msgspec.Struct, kw_only=True):
    """`state` is active, paused, or disabled, and `reason` says why. Values of headers are not shown."""

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
    delivered: int
    failed: int
    deadLetters: int


class MadeWebhook(ShownWebhook, kw_only=True):
    """The secret is told this once."""

    secret: str


class WebhookList(msgspec.Struct, kw_only=True):
    """`next` is what to give as `after` for the page that follows."""

    webhooks: list[ShownWebhook]
    next: str | None


class DeletedWebhook(msgspec.Struct, kw_only=True):
    success: bool
    id: str


class RotatedSecret(msgspec.Struct, kw_only=True):
    """`oldSigns` are how many older secrets still sign."""

    id: str
    secret: str
    oldSigns: int


class ShownAttempt(msgspec.Struct, kw_only=True):
    """`status` is null if there was no answer, and `problem` says why. `outcome` is delivered, retry, dead, remove,
    disable, or gap: no attempt, but events that were no longer stored when it was their turn. `nextAt` is when it is
    tried again."""

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
    """The newest first; `next` is what to give as `before`."""

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
    """How many events are on their way again."""

    queued: int


class Replayed(msgspec.Struct, kw_only=True):
    """The last event of each topic that is not sent again; null: all are."""

    topics: dict[str, str | None]


class Tested(msgspec.Struct, kw_only=True):
    """What came of a test delivery."""

    success: bool
    status: int | None
    problem: str | None
    answer: str
    durationMs: int
