"""Topics of the event store over HTTP: POST /topics makes one with its schemas, /topics/{topic}/schemas shows them and
lets them grow. GET and DELETE /topics/{topic} are those of every topic; GET adds the schemas and the last number.

Schemas only grow: event types and optional properties can be added, nothing can be taken away or changed. PUT gives all
of them, PATCH those that are new or have grown.
"""

from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire.broker.store.event_topics import config_value
from kwire.broker.store.schema_document import SCHEMAS_MAX
from kwire.broker.topics import Topic
from kwire.web.bodies import body_of, json_answer
from kwire.web.errors import BadRequest
from kwire.web.route import Route
from kwire.web.safety import INTERNAL_PREFIX
from kwire.web.services import WebServices
from kwire.web.topics.lookup import TOPIC, TOPIC_PATTERN

Schemas = Annotated[
    list[dict[str, Any]],
    msgspec.Meta(
        description="JSON Schemas (2020-12), one per event type. `eventType` names the type; without it `type` does, "
        "and is no keyword of JSON Schema then. References stay inside a schema.",
        # What is wrong with them is told by the rules, in better words.
        extra_json_schema={"minItems": 1, "maxItems": SCHEMAS_MAX},
    ),
]


class CreateEventTopic(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is left out of `configs` keeps events for ever."""

    name: Annotated[
        str,
        msgspec.Meta(
            description="A legal topic name of Kafka's that is not internal.",
            extra_json_schema={"pattern": TOPIC_PATTERN},
        ),
    ]
    schemas: Schemas
    configs: Annotated[dict[str, str], msgspec.Meta(description="Any of Kafka's topic settings, by name.")] = {}


class GiveSchemas(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    schemas: Schemas


class EventTopic(msgspec.Struct, kw_only=True):
    """`sequence` is the number of the last event, 0 before the first."""

    name: str
    sequence: int
    schemas: Schemas


async def create(services: WebServices, request: web.Request) -> web.Response:
    asked = await body_of(request, CreateEventTopic)
    if asked.name.startswith(INTERNAL_PREFIX):
        raise BadRequest(f"names that begin with {INTERNAL_PREFIX} are the server's own", code="InvalidName")
    await services.commands.topics.create_event_topic(asked.name, asked.schemas, asked.configs)
    return json_answer(_told(services, services.event_topics.find(asked.name)), status=201)


async def show(services: WebServices, request: web.Request) -> web.Response:
    return json_answer(_told(services, services.event_topics.find(request.match_info["topic"])))


async def give_all(services: WebServices, request: web.Request) -> web.Response:
    return await _evolve(services, request, is_whole=True)


async def add(services: WebServices, request: web.Request) -> web.Response:
    return await _evolve(services, request, is_whole=False)


async def _evolve(services: WebServices, request: web.Request, *, is_whole: bool) -> web.Response:
    asked = await body_of(request, GiveSchemas)
    name = request.match_info["topic"]
    await services.commands.topics.change_schemas(name, asked.schemas, is_whole=is_whole)
    return json_answer(_told(services, services.event_topics.find(name)))


def _told(services: WebServices, topic: Topic) -> dict[str, Any]:
    return config_value(topic.name, topic.stream().bounds().committed_end, services.event_topics.schemas(topic))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/topics",
        create,
        summary="Make a topic of the event store, with its schemas",
        description="It has one partition for ever, and takes only events that one of its schemas takes.",
        tag="events",
        request=CreateEventTopic,
        answers={201: EventTopic},
    ),
    Route(
        "GET",
        "/topics/{topic}/schemas",
        show,
        summary="The schemas of a topic",
        tag="events",
        parameters={"topic": TOPIC},
        answers={200: EventTopic},
    ),
    Route(
        "PUT",
        "/topics/{topic}/schemas",
        give_all,
        summary="Give a topic other schemas: those it has, and more",
        description="Event types and optional properties can be added. Everything else is answered with 409.",
        tag="events",
        parameters={"topic": TOPIC},
        request=GiveSchemas,
        answers={200: EventTopic},
    ),
    Route(
        "PATCH",
        "/topics/{topic}/schemas",
        add,
        summary="Add schemas to those that a topic has",
        description="A schema of an event type that is there already takes its place, if it only adds to it.",
        tag="events",
        parameters={"topic": TOPIC},
        request=GiveSchemas,
        answers={200: EventTopic},
    ),
)
