"""Topics of the event store over HTTP. POST /topics creates a topic with its schemas. GET, PUT and PATCH
/topics/{topic}/schemas read and extend the schemas. GET and DELETE /topics/{topic} are the same routes as for other
topics. The answer to GET also has `schemas` and `sequence`.

Event types and optional properties can be added to the schemas of a topic. Nothing can be removed or changed. A PUT
request has all schemas, a PATCH request only the new and extended ones.
"""

from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire.access.quotas.kinds import QuotaKind
from kwire.streams.event_store.event_topics import config_value
from kwire.streams.event_store.schemas.document import SCHEMAS_MAX
from kwire.streams.topic_directory import StreamTopic
from kwire.web.answers.errors import BadRequest
from kwire.web.needs import ALTER_TOPIC, CREATE_TOPICS, DESCRIBE_TOPIC
from kwire.web.requests.access import RequestAccess, access_of
from kwire.web.requests.bodies import body_of, json_answer
from kwire.web.requests.origin_policy import INTERNAL_PREFIX
from kwire.web.requests.quotas import charge_partitions
from kwire.web.route import Route
from kwire.web.services import EventStoreServices
from kwire.web.topics.lookup import TOPIC, TOPIC_PATTERN

Schemas = Annotated[
    list[dict[str, Any]],
    msgspec.Meta(
        description="JSON Schemas (2020-12), one per event type. `eventType` is the name of the event type. Without "
        "`eventType`, the value of `type` is the name, and `type` is not used as a JSON Schema keyword. References "
        "must be inside the schema.",
        # These limits are only for the documentation. The event store checks them, with better error messages.
        extra_json_schema={"minItems": 1, "maxItems": SCHEMAS_MAX},
    ),
]


class CreateEventTopic(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event store topic to create. Without retention settings in `configs`, events are kept forever."""

    name: Annotated[
        str,
        msgspec.Meta(
            description="A valid Kafka topic name that does not start with `__`.",
            extra_json_schema={"pattern": TOPIC_PATTERN},
        ),
    ]
    schemas: Schemas
    configs: Annotated[dict[str, str], msgspec.Meta(description="Any of Kafka's topic settings, by name.")] = {}


class ChangeSchemas(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    schemas: Schemas


class EventTopic(msgspec.Struct, kw_only=True):
    """An event store topic. `sequence` is the number of the last event, 0 before the first event."""

    name: str
    sequence: int
    schemas: Schemas


async def create(services: EventStoreServices, request: web.Request) -> web.Response:
    asked = await body_of(request, CreateEventTopic)
    if asked.name.startswith(INTERNAL_PREFIX):
        raise BadRequest(
            f"topic names that start with {INTERNAL_PREFIX} are reserved for internal topics", code="InvalidName"
        )
    access = access_of(request)
    name = access.full_name(asked.name)
    access.authorize_creation(name)
    charge_partitions(services.port.quotas, access, 1)
    await services.topic_commands.create_event_topic(name, asked.schemas, asked.configs)
    return json_answer(await _description(services, access, services.event_topics.find(name)), status=201)


async def show_schemas(services: EventStoreServices, request: web.Request) -> web.Response:
    topic = services.event_topics.find(request.match_info["topic"])
    return json_answer(await _description(services, access_of(request), topic))


async def replace_schemas(services: EventStoreServices, request: web.Request) -> web.Response:
    return await _change_schemas(services, request, is_whole=True)


async def add_schemas(services: EventStoreServices, request: web.Request) -> web.Response:
    return await _change_schemas(services, request, is_whole=False)


async def _change_schemas(services: EventStoreServices, request: web.Request, *, is_whole: bool) -> web.Response:
    asked = await body_of(request, ChangeSchemas)
    name = request.match_info["topic"]
    await services.topic_commands.change_schemas(name, asked.schemas, is_whole=is_whole)
    return json_answer(await _description(services, access_of(request), services.event_topics.find(name)))


async def _description(services: EventStoreServices, access: RequestAccess, topic: StreamTopic) -> dict[str, Any]:
    name, log = access.shown(topic.name), topic.stream()
    await log.ready()
    return config_value(name, log.bounds().committed_end, services.event_topics.schemas(topic))


ROUTES: tuple[Route[EventStoreServices], ...] = (
    Route(
        "POST",
        "/topics",
        create,
        summary="Create a topic of the event store, with its schemas",
        description="The topic always has one partition, and accepts only events that match one of its schemas.",
        tag="events",
        request=CreateEventTopic,
        answers={201: EventTopic},
        needs=(CREATE_TOPICS,),
        charges=QuotaKind.MUTATION,
    ),
    Route(
        "GET",
        "/topics/{topic}/schemas",
        show_schemas,
        summary="The schemas of a topic",
        tag="events",
        parameters={"topic": TOPIC},
        answers={200: EventTopic},
        needs=(DESCRIBE_TOPIC,),
    ),
    Route(
        "PUT",
        "/topics/{topic}/schemas",
        replace_schemas,
        summary="Replace the schemas of a topic with compatible ones",
        description="Event types and optional properties can be added. Other changes are refused with 409.",
        tag="events",
        parameters={"topic": TOPIC},
        request=ChangeSchemas,
        answers={200: EventTopic},
        needs=(ALTER_TOPIC,),
    ),
    Route(
        "PATCH",
        "/topics/{topic}/schemas",
        add_schemas,
        summary="Add schemas to a topic",
        description="A schema of an existing event type replaces the old one, if it is compatible with it.",
        tag="events",
        parameters={"topic": TOPIC},
        request=ChangeSchemas,
        answers={200: EventTopic},
        needs=(ALTER_TOPIC,),
    ),
)
