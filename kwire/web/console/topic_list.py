"""GET /overview/topics: all topics that the client may describe, with their kind, size and retention.

The answer is made from the catalogue and from sizes that are known already. No log is opened, so a list of ten thousand
topics costs milliseconds, in chunks.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from aiohttp import web

from kwire.access.acl import Operation
from kwire.broker.topics.catalogue import TopicFacts
from kwire.config.resources import topic as topic_config
from kwire.config.resources.topic import TopicSettings
from kwire.web.needs import DESCRIBE_TOPICS
from kwire.web.requests.access import access_of
from kwire.web.requests.bodies import json_answer, query_of
from kwire.web.route import Route
from kwire.web.services import OverviewServices

TOPICS_MAX = 10_000
# A topic takes about ten microseconds, its rights included.
TOPICS_PER_CHUNK = 200

Kind = Literal["topic", "room", "events", "internal"]


class TopicListQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    after: Annotated[str, msgspec.Meta(description="Only topics whose names sort after this one.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=TOPICS_MAX, description="The maximum number of topics.")] = 1000


class ListedTopic(msgspec.Struct, kw_only=True):
    """A topic. `size_bytes` is null if its files have not been measured since the start of the server, and on a bridge.

    A `cleanup_policy` that a cluster does not show is empty.
    """

    name: str
    kind: Kind
    partitions: int
    size_bytes: int | None
    cleanup_policy: str
    retention_ms: Annotated[int | None, msgspec.Meta(description="-1 is unlimited; null if records are not deleted.")]
    created_ms: Annotated[int | None, msgspec.Meta(description="In milliseconds since 1970; null if not known.")]


class TopicList(msgspec.Struct, kw_only=True):
    topics: list[ListedTopic]
    next: Annotated[str | None, msgspec.Meta(description="The value of `after` for the next page; null at the end.")]


async def list_topics(services: OverviewServices, request: web.Request) -> web.Response:
    query = query_of(request, TopicListQuery)
    access, storage = access_of(request), services.monitoring.storage
    await storage.stored_sizes.measure()
    catalogue = storage.topics.catalogue
    opened: dict[str, int] = {}
    for one in storage.topics.open_partitions:
        opened[f"{one.topic_name}-{one.index}"] = one.size_bytes
    settings = _SettingsCache(services)
    start = access.full_name(query.after) + "\0" if query.after else access.full_name("")
    found: list[ListedTopic] = []
    while True:
        names = catalogue.names_from(start, TOPICS_PER_CHUNK)
        for name in names:
            facts = catalogue.find(name)
            shown = access.shown(name)
            if facts is None or not shown or not access.allows_topic(Operation.DESCRIBE, name):
                continue
            if len(found) == query.limit:
                return json_answer(TopicList(topics=found, next=found[-1].name))
            found.append(_listed(shown, facts, settings.of(facts), opened, storage.topics.stored_bytes))
        if len(names) < TOPICS_PER_CHUNK or (access.scope is not None and not access.shown(names[-1])):
            return json_answer(TopicList(topics=found, next=None))
        start = names[-1] + "\0"
        await asyncio.sleep(0)


def _listed(
    shown: str, facts: TopicFacts, settings: TopicSettings, opened: Mapping[str, int], stored: Mapping[str, int]
) -> ListedTopic:
    folders = [f"{facts.name}-{index}" for index in range(facts.partition_count)]
    sizes = [opened.get(one, stored.get(one)) for one in folders]
    known = [one for one in sizes if one is not None]
    policies = [
        name for name, is_set in (("compact", settings.is_compacted), ("delete", settings.has_delete_policy)) if is_set
    ]
    return ListedTopic(
        name=shown,
        kind=_kind(facts, settings),
        partitions=facts.partition_count,
        size_bytes=sum(known) if known else None,
        cleanup_policy=",".join(policies),
        retention_ms=settings.retention_ms if settings.has_delete_policy else None,
        created_ms=facts.created_ms if facts.created_ms >= 0 else None,
    )


def _kind(facts: TopicFacts, settings: TopicSettings) -> Kind:
    if settings.is_event_topic:
        return "events"
    if settings.is_room:
        return "room"
    return "internal" if facts.is_internal else "topic"


class _SettingsCache:
    """The parsed settings of topics. Most topics of a list have the same settings."""

    def __init__(self, services: OverviewServices) -> None:
        self._config = services.monitoring.port.config
        self._known: dict[frozenset[tuple[str, str]], TopicSettings] = {}

    def of(self, facts: TopicFacts) -> TopicSettings:
        key = frozenset(facts.configs.items())
        settings = self._known.get(key)
        if settings is None:
            settings = self._known[key] = topic_config.settings_for(facts.configs, self._config)
        return settings


ROUTES: tuple[Route[OverviewServices], ...] = (
    Route(
        "GET",
        "/overview/topics",
        list_topics,
        summary="All topics with their kind, size and retention",
        description="Includes rooms, topics of the event store and internal topics. The sizes are those of the files; "
        "no log is opened.",
        tag="topics",
        query=TopicListQuery,
        answers={200: TopicList},
        needs=(DESCRIBE_TOPICS,),
    ),
)
