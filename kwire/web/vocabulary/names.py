"""What each HTTP API calls the same thing.

The APIs follow different models, so the data of an event is `data` in rooms, `payload` in the event store and `value`
in REST Proxy. A request with the name of another API gets an error with the name of this API (`unknown_fields.py`).
"""

from collections.abc import Mapping
from typing import NamedTuple

ROOMS = "rooms"
EVENT_STORE = "event store"
TOPICS = "topics"
GROUPS = "consumer groups"
PROXY = "REST Proxy v2"
DB_EVENTS = "events of keys"
WEBHOOKS = "webhooks"
KEYS = "keys"

# The API of a package or module of request types. The first prefix that matches counts.
API_BY_MODULE: Mapping[str, str] = {
    "kwire.web.rooms": ROOMS,
    "kwire.web.answers.event_json": ROOMS,
    "kwire.web.events": EVENT_STORE,
    "kwire.web.topics": TOPICS,
    "kwire.web.groups": GROUPS,
    "kwire.web.proxy": PROXY,
    "kwire.web.db_events": DB_EVENTS,
    "kwire.web.webhooks": WEBHOOKS,
    "kwire.web.access": KEYS,
}


class Concept(NamedTuple):
    """A thing that several APIs have. `names` has its names by API. `other_names` are names that no API uses, but that
    readers of other systems expect."""

    meaning: str
    names: Mapping[str, tuple[str, ...]]
    other_names: tuple[str, ...] = ()

    @property
    def all_names(self) -> frozenset[str]:
        return frozenset(self.other_names).union(*self.names.values())


CONCEPTS: tuple[Concept, ...] = (
    Concept(
        "the type of an event",
        {ROOMS: ("event_type",), EVENT_STORE: ("type",), TOPICS: ("event_type",)},
        ("event",),
    ),
    Concept(
        "the data of an event, the value of a record",
        {ROOMS: ("data",), EVENT_STORE: ("payload",), TOPICS: ("data",), PROXY: ("value",), DB_EVENTS: ("data",)},
        ("message", "content"),
    ),
    Concept(
        "the id of an event",
        {ROOMS: ("event_id",), EVENT_STORE: ("eventId",)},
        ("id",),
    ),
    Concept(
        "the metadata of an event, the headers of a record",
        {ROOMS: ("metadata",), EVENT_STORE: ("metadata",), TOPICS: ("metadata",), PROXY: ("headers",)},
    ),
    Concept(
        "the name of a topic or a room",
        {ROOMS: ("room",), EVENT_STORE: ("topic", "name"), GROUPS: ("topic",), DB_EVENTS: ("topic",)},
        ("channel", "stream", "topic_name"),
    ),
    Concept(
        "the number of a partition",
        {GROUPS: ("partition_id",), PROXY: ("partition",)},
    ),
    Concept(
        "the number of partitions of a topic",
        {TOPICS: ("num_partitions",), GROUPS: ("partition_count",)},
        ("partitions", "partitions_count"),
    ),
    Concept(
        "the offset or event at which reading starts",
        {ROOMS: ("from_offset",), TOPICS: ("from_offset",), EVENT_STORE: ("from", "sinceEventId")},
        ("offset", "since", "start"),
    ),
    Concept(
        "the time at which reading starts",
        {ROOMS: ("from_time",), EVENT_STORE: ("from_time",), WEBHOOKS: ("sinceTime",)},
    ),
    Concept(
        "the types of events that are wanted",
        {ROOMS: ("types",), EVENT_STORE: ("types",), WEBHOOKS: ("types",)},
        ("event_types", "eventTypes"),
    ),
    Concept(
        "the URL of a receiver",
        {WEBHOOKS: ("url", "callback")},
        ("endpoint", "target", "callback_url"),
    ),
    Concept(
        "the ids of several events",
        {WEBHOOKS: ("eventIds",)},
        ("event_ids", "events", "ids"),
    ),
    Concept(
        "the maximum number of events in an answer",
        {ROOMS: ("limit",), TOPICS: ("limit",), EVENT_STORE: ("limit",), GROUPS: ("limit",), WEBHOOKS: ("limit",)},
        ("count", "max", "page_size", "max_records"),
    ),
    Concept(
        "the number of a group's generation",
        {GROUPS: ("generation",)},
        ("generation_id",),
    ),
    Concept(
        "the lifetime of a key",
        {KEYS: ("expires_in_secs",)},
        ("expires_in", "ttl", "ttl_secs"),
    ),
)
