"""Topics of the event store whose schemas take any payload, for tests of everything but schemas."""

import uuid
from collections.abc import Mapping

from kwire.broker.topics.catalogue import SCHEMAS_PREFIX
from kwire.broker.topics.topics import NewTopic, Topic, Topics
from kwire.metastore import Change
from kwire.metastore.interface import ABSENT

# Event types that tests publish; `message` is that of records without a type.
TYPES = ("made", "message", "user.created", "user.verified", "order.placed")


async def create_open(
    topics: Topics, *names: str, configs: Mapping[str, str] | None = None, types: tuple[str, ...] = TYPES
) -> list[Topic]:
    """As `EventTopics.create` makes them, without a worker that judges the schemas."""
    stored = {"schemas": [{"eventType": one} for one in types], "costs": {one: [1, 1, 0] for one in types}}
    settings = {"kwire.events": "true", "retention.ms": "-1", **(configs or {})}
    new = [NewTopic(name, 1, settings, uuid.uuid4().bytes) for name in names]
    beside = [Change(SCHEMAS_PREFIX + (one.topic_id or b"").hex(), stored, ABSENT) for one in new]
    return await topics.create(new, beside)
