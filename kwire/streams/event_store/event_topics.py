"""The topics of the event store. Each topic is created with schemas. Later changes can only add to these schemas.

The schemas of a topic are an entry of the metadata store under the topic's id. The entry is created and deleted in the
same commit as the topic itself (`catalogue.py`). A topic that is deleted and created again does not keep its schemas.
"""

import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kwire.access.audit.entries import NO_AUDIT, TOPIC, Audit
from kwire.broker.topics.catalogue import AUDIT_TOPIC, EVENTS_CONFIG, ROOM_CONFIG, SCHEMAS_PREFIX
from kwire.broker.topics.topics import NewTopic, Topic, Topics
from kwire.errors import (
    ErrorCode,
    InvalidSchema,
    KafkaError,
    NotAnEventTopic,
    TopicNotFound,
)
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT, Entry
from kwire.streams.event_store.schemas.worker import Run, WorkerTimeout
from kwire.streams.topic_directory import StreamTopic
from storage.errors import StorageError

if TYPE_CHECKING:
    # Importing the schema compiler takes longer than importing the broker. Nodes without event topics never import it.
    from kwire.streams.event_store.schemas.topic_schemas import TopicSchemas

log = logging.getLogger("kwire.broker")

# Limits of the cache of compiled schemas: the number of topics, and the total size of their schemas as JSON. Compiled
# schemas take up to 200 times the size of their JSON. The least recently used schemas are evicted first.
COMPILED_MAX = 500
COMPILED_JSON_BYTES_MAX = 4 * 1024 * 1024
# Requests whose schemas wait to be validated.
PENDING_VALIDATIONS_MAX = 50
# Attempts of a change. After a conflict with a concurrent change, the change is tried again with the new schemas.
ATTEMPTS_MAX = 5

# The configuration of a new event topic, unless the request sets other values. Events are retained forever, even if the
# node's defaults for topics are different.
RETAIN_FOREVER: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "kwire.retention.messages": "-1",
}


class EventTopics:
    """The event topics of a server. Use it only in the event loop's thread. `run` calls a worker process."""

    def __init__(self, topics: Topics, metastore: MetaStore, run: Run, audit: Audit = NO_AUDIT) -> None:
        self._topics = topics
        self._audit = audit
        self._metastore = metastore
        self._run = run
        self._pending_validations = 0
        # Called with the id of each topic whose schemas were extended.
        self.on_evolved: Callable[[bytes], None] | None = None
        # By topic id: the compiled schemas, and the revision of their entry in the metadata store.
        self._compiled: OrderedDict[bytes, tuple[TopicSchemas, int]] = OrderedDict()
        self._compiled_bytes = 0
        self._ids = {
            bytes.fromhex(key.removeprefix(SCHEMAS_PREFIX)): None for key, _ in metastore.entries(SCHEMAS_PREFIX)
        }
        if self._ids:
            import kwire.streams.event_store.schemas.topic_schemas  # noqa: F401  load it before clients connect

    # --- lookup

    def find(self, name: str) -> Topic:
        """Return an event topic by name; raises TopicNotFound or NotAnEventTopic."""
        topic = self._topics.get(name)
        if topic is None or topic.is_internal:
            raise TopicNotFound(name)
        if not topic.settings.is_event_topic:
            raise NotAnEventTopic(name)
        return topic

    def names(self) -> list[str]:
        """Return the names of all event topics, sorted."""
        found: list[str] = []
        for topic_id in list(self._ids):
            name = self._topics.catalogue.name_of(topic_id)
            if name is None:
                self._forget(topic_id)
            else:
                found.append(name)
        return sorted(found)

    def schemas(self, topic: StreamTopic) -> "TopicSchemas":
        """Return the schemas of a topic; raises NotAnEventTopic if it has none."""
        return self.schemas_and_revision(topic)[0]

    def schemas_and_revision(self, topic: StreamTopic) -> "tuple[TopicSchemas, int]":
        topic_id = topic.topic_id
        found = self._compiled.get(topic_id)
        if found is None:
            from kwire.streams.event_store.schemas.topic_schemas import TopicSchemas

            entry = self._entry(topic)
            found = TopicSchemas.stored(entry.value), entry.revision
            self._keep(topic_id, *found)
        else:
            self._compiled.move_to_end(topic_id)
        return found

    # --- changes: durable in the metadata store before they take effect

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
        schemas = await self._validated(raw)
        topic_id = uuid.uuid4().bytes
        entry = Change(SCHEMAS_PREFIX + topic_id.hex(), schemas.value(), ABSENT)
        (topic,) = await self._topics.create([NewTopic(name, 1, settings, topic_id)], extra_changes=[entry])
        self._ids[topic_id] = None
        return topic

    async def evolve(self, topic: StreamTopic, raw: object, *, is_whole: bool) -> "TopicSchemas":
        """Replace all schemas of a topic by `raw`. If `is_whole` is False, keep the schemas of other event types.

        Raises IncompatibleSchema if the change does more than add to the present schemas (`schemas/evolution.py`).
        """
        for _ in range(ATTEMPTS_MAX):
            now, revision = self.schemas_and_revision(topic)
            wanted = raw if is_whole else now.with_added(raw)
            schemas = await self._validated(wanted, before=now)
            change = Change(SCHEMAS_PREFIX + topic.topic_id.hex(), schemas.value(), revision)
            try:
                revision = await self._metastore.commit([change])
            except Conflict:
                self._drop_compiled(topic.topic_id)
                continue
            except StorageError as error:
                log.exception("the schemas of %s could not be written", topic.name)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change could not be stored.") from error
            self._keep(topic.topic_id, schemas, revision)
            self._audit.changed("schemas.changed", TOPIC, topic.name, {"isWhole": is_whole})
            if self.on_evolved is not None:
                self.on_evolved(topic.topic_id)
            return schemas
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "other requests keep changing these schemas, try again")

    async def _validated(self, raw: object, before: "TopicSchemas | None" = None) -> "TopicSchemas":
        import msgspec

        from kwire.streams.event_store.schemas.registration import ValidationResult, validate_schemas
        from kwire.streams.event_store.schemas.rules import typed_schemas
        from kwire.streams.event_store.schemas.topic_schemas import TopicSchemas

        # Find simple mistakes without the worker process, and limit the size of the data that is sent to it.
        typed_schemas(raw)
        if self._pending_validations >= PENDING_VALIDATIONS_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many schemas wait to be validated, try again")
        encode = msgspec.json.encode
        self._pending_validations += 1
        try:
            result: ValidationResult = await self._run(
                validate_schemas, encode(raw), None if before is None else encode(before.as_json())
            )
        except WorkerTimeout as error:
            raise InvalidSchema(str(error), "$") from error
        finally:
            self._pending_validations -= 1
        if result.refusal is not None:
            raise result.refusal.error()
        return TopicSchemas.validated(raw, result.costs)

    def _entry(self, topic: StreamTopic) -> Entry:
        entry = self._metastore.get(SCHEMAS_PREFIX + topic.topic_id.hex())
        if entry is None:
            self._forget(topic.topic_id)
            if self._topics.catalogue.name_of(topic.topic_id) is None:
                raise TopicNotFound(topic.name)
            raise NotAnEventTopic(topic.name)
        return entry

    def _keep(self, topic_id: bytes, schemas: "TopicSchemas", revision: int) -> None:
        known = self._compiled.get(topic_id)
        if known is not None and known[1] > revision:
            return
        self._drop_compiled(topic_id)
        self._compiled[topic_id] = schemas, revision
        self._compiled_bytes += schemas.size_bytes
        while len(self._compiled) > COMPILED_MAX or self._compiled_bytes > COMPILED_JSON_BYTES_MAX:
            self._drop_compiled(next(iter(self._compiled)))

    def _drop_compiled(self, topic_id: bytes) -> None:
        dropped = self._compiled.pop(topic_id, None)
        if dropped is not None:
            self._compiled_bytes -= dropped[0].size_bytes

    def _forget(self, topic_id: bytes) -> None:
        self._ids.pop(topic_id, None)
        self._drop_compiled(topic_id)


def config_value(name: str, sequence: int, schemas: "TopicSchemas") -> dict[str, Any]:
    """Return the description of a topic: the same fields as in its configuration file (`files/layout.py`)."""
    return {"name": name, "sequence": sequence, "schemas": schemas.as_json()}
