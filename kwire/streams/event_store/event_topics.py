"""The topics of a server's event store: they are created with schemas, and later changes can only add to these.

The entry with the schemas of a topic is created and deleted in the same commit as the topic itself (`catalogue.py`).
"""

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kwire.access.audit.entries import NO_AUDIT, Audit
from kwire.broker.topics.catalogue import AUDIT_TOPIC, EVENTS_CONFIG, ROOM_CONFIG
from kwire.broker.topics.topics import NewTopic, Topic, Topics
from kwire.errors import ErrorCode, KafkaError, NotAnEventTopic, TopicNotFound
from kwire.metastore import MetaStore
from kwire.streams.event_store.schema_store import SchemaStore
from kwire.streams.event_store.schemas.worker import Run

if TYPE_CHECKING:
    from kwire.streams.event_store.schemas.topic_schemas import TopicSchemas

# The configuration of a new event topic, unless the request sets other values. Events are retained forever, even if the
# node's defaults for topics are different.
RETAIN_FOREVER: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "kwire.retention.messages": "-1",
}


class EventTopics(SchemaStore):
    """The event topics of a server. Use it only in the event loop's thread. `run` calls a worker process."""

    def __init__(self, topics: Topics, metastore: MetaStore, run: Run, audit: Audit = NO_AUDIT) -> None:
        super().__init__(metastore, run, topics.catalogue.name_of, audit)
        self._topics = topics

    def find(self, name: str) -> Topic:
        """Return an event topic by name; raises TopicNotFound or NotAnEventTopic."""
        topic = self._topics.get(name)
        if topic is None or topic.is_internal:
            raise TopicNotFound(name)
        if not topic.settings.is_event_topic:
            raise NotAnEventTopic(name)
        return topic

    async def create(self, name: str, raw: object, configs: Mapping[str, str] | None = None) -> Topic:
        """Create an event topic. Raises InvalidSchema, or KafkaError if the name or configuration is invalid."""
        requested = dict(configs or {})
        for reserved in (EVENTS_CONFIG, ROOM_CONFIG):
            if reserved in requested:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{reserved} cannot be set here.")
        settings = {**RETAIN_FOREVER, **requested, EVENTS_CONFIG: "true"}
        if name == AUDIT_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is reserved for the server's audit log."
            )
        self._topics.check_new_name(name)
        self._topics.check_event_configs(settings)
        topic_id = uuid.uuid4().bytes
        entry = await self.new_entry(topic_id, raw)
        (topic,) = await self._topics.create([NewTopic(name, 1, settings, topic_id)], extra_changes=[entry])
        self.created(topic_id)
        return topic


def config_value(name: str, sequence: int, schemas: "TopicSchemas") -> dict[str, Any]:
    """Return the description of a topic: the same fields as in its configuration file (`files/layout.py`)."""
    return {"name": name, "sequence": sequence, "schemas": schemas.as_json()}
