"""The topics of the event store: made with their schemas, which only grow, and found again after a restart.

The schemas of a topic are an entry of the metadata store under the topic's id. It comes and goes in the same commit as
the topic itself (`catalogue.py`), so a topic that is deleted and made again has schemas of its own.
"""

import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kwire.broker.catalogue import AUDIT_TOPIC, EVENTS_CONFIG, ROOM_CONFIG, SCHEMAS_PREFIX
from kwire.broker.store.schema_worker import Run, TookTooLong
from kwire.broker.topics import NewTopic, Topic, Topics
from kwire.errors import (
    ErrorCode,
    InvalidSchema,
    KafkaError,
    NotAnEventTopic,
    TopicNotFound,
)
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT, Entry
from storage.errors import StorageError

if TYPE_CHECKING:
    # Loading what compiles schemas takes longer than loading the broker; a node without event topics never does.
    from kwire.broker.store.schemas import TopicSchemas

log = logging.getLogger("kwire.broker")

# Topics whose schemas are kept compiled, and what these are as JSON: compiled they take up to 200 times that. Those
# that nobody used for longest go first.
COMPILED_MAX = 500
COMPILED_JSON_BYTES_MAX = 4 * 1024 * 1024
# Requests that wait for their schemas to be judged.
JUDGING_MAX = 50
# Whoever changes schemas while somebody else does begins anew.
TRIES_MAX = 5

# Events are kept until somebody says otherwise, whatever is usual for topics on this node.
KEPT: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "kwire.retention.messages": "-1",
}


class EventTopics:
    """Called from the event loop. `run` has work done that takes long."""

    def __init__(self, topics: Topics, metastore: MetaStore, run: Run) -> None:
        self._topics = topics
        self._metastore = metastore
        self._run = run
        self._judging = 0
        # Told the id of each topic whose schemas have grown.
        self.on_evolved: Callable[[bytes], None] | None = None
        # By topic id; with the revision of the entry they came from.
        self._compiled: OrderedDict[bytes, tuple[TopicSchemas, int]] = OrderedDict()
        self._compiled_bytes = 0
        self._ids = {
            bytes.fromhex(key.removeprefix(SCHEMAS_PREFIX)): None for key, _ in metastore.entries(SCHEMAS_PREFIX)
        }
        if self._ids:
            import kwire.broker.store.schemas  # noqa: F401  before clients come

    # --- what there is

    def find(self, name: str) -> Topic:
        """Raises TopicNotFound or NotAnEventTopic."""
        topic = self._topics.get(name)
        if topic is None or topic.is_internal:
            raise TopicNotFound(name)
        if not topic.settings.is_event_topic:
            raise NotAnEventTopic(name)
        return topic

    def names(self) -> list[str]:
        """Of all topics of the event store, in their order."""
        found: list[str] = []
        for topic_id in list(self._ids):
            name = self._topics.catalogue.name_of(topic_id)
            if name is None:
                self._forget(topic_id)
            else:
                found.append(name)
        return sorted(found)

    def schemas(self, topic: Topic) -> "TopicSchemas":
        """Raises NotAnEventTopic if it has none."""
        return self.schemas_and_revision(topic)[0]

    def schemas_and_revision(self, topic: Topic) -> "tuple[TopicSchemas, int]":
        topic_id = topic.topic_id
        found = self._compiled.get(topic_id)
        if found is None:
            from kwire.broker.store.schemas import TopicSchemas

            entry = self._entry(topic)
            found = TopicSchemas.stored(entry.value), entry.revision
            self._keep(topic_id, *found)
        else:
            self._compiled.move_to_end(topic_id)
        return found

    # --- changes: durable first, then in force

    async def create(self, name: str, raw: object, configs: Mapping[str, str] | None = None) -> Topic:
        """Raises InvalidSchema, or KafkaError for what is wrong with the topic itself."""
        asked = dict(configs or {})
        for taken in (EVENTS_CONFIG, ROOM_CONFIG):
            if taken in asked:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{taken} cannot be set here.")
        settings = {**KEPT, **asked, EVENTS_CONFIG: "true"}
        if name == AUDIT_TOPIC:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' takes notes of the server's own.")
        self._topics.check_new_name(name)
        self._topics.check_event_configs(settings)
        schemas = await self._judged(raw)
        topic_id = uuid.uuid4().bytes
        entry = Change(SCHEMAS_PREFIX + topic_id.hex(), schemas.value(), ABSENT)
        (topic,) = await self._topics.create([NewTopic(name, 1, settings, topic_id)], beside=[entry])
        self._ids[topic_id] = None
        return topic

    async def evolve(self, topic: Topic, raw: object, *, is_whole: bool) -> "TopicSchemas":
        """Let a topic have these schemas, or have them too; raises IncompatibleSchema if that is no mere addition."""
        for _ in range(TRIES_MAX):
            now, revision = self.schemas_and_revision(topic)
            wanted = raw if is_whole else now.with_added(raw)
            schemas = await self._judged(wanted, before=now)
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
            if self.on_evolved is not None:
                self.on_evolved(topic.topic_id)
            return schemas
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "others change these schemas all the time, try again")

    async def _judged(self, raw: object, before: "TopicSchemas | None" = None) -> "TopicSchemas":
        import msgspec

        from kwire.broker.store.schema_judging import Judged, judge
        from kwire.broker.store.schema_rules import typed_schemas
        from kwire.broker.store.schemas import TopicSchemas

        # What is seen at once needs no worker; nor is it sent more than the rules allow.
        typed_schemas(raw)
        if self._judging >= JUDGING_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many schemas wait to be checked, try again")
        encode = msgspec.json.encode
        self._judging += 1
        try:
            judged: Judged = await self._run(judge, encode(raw), None if before is None else encode(before.as_json()))
        except TookTooLong as error:
            raise InvalidSchema(str(error), "$") from error
        finally:
            self._judging -= 1
        if judged.refusal is not None:
            raise judged.refusal.error()
        return TopicSchemas.judged(raw, judged.costs)

    def _entry(self, topic: Topic) -> Entry:
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
    """A topic as its configuration file has it."""
    return {"name": name, "sequence": sequence, "schemas": schemas.as_json()}
