"""SchemaStore: the schemas of event topics in the metadata store, and a cache of compiled ones.

The schemas of a topic are an entry under the topic's id, so a topic that is deleted and created again does not keep its
schemas. Later changes can only add to the schemas.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from kwire.access.audit.entries import NO_AUDIT, TOPIC, Audit
from kwire.broker.topics.catalogue import SCHEMAS_PREFIX
from kwire.errors import ErrorCode, InvalidSchema, KafkaError, NotAnEventTopic, TopicNotFound
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT, Entry
from kwire.streams.event_store.pending_commit import NameOf
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


class SchemaStore:
    """Use it only in the event loop's thread. `run` calls a worker process."""

    def __init__(self, metastore: MetaStore, run: Run, name_of: NameOf, audit: Audit = NO_AUDIT) -> None:
        self._audit = audit
        self._metastore = metastore
        self._run = run
        self._name_of = name_of
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

    def names(self) -> list[str]:
        """Return the names of all event topics, sorted."""
        found: list[str] = []
        for topic_id in list(self._ids):
            name = self._name_of(topic_id)
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

    async def new_entry(self, topic_id: bytes, raw: object) -> Change:
        """Return the change that stores the schemas of a new topic. Raises InvalidSchema."""
        schemas = await self._validated(raw)
        return Change(SCHEMAS_PREFIX + topic_id.hex(), schemas.value(), ABSENT)

    def created(self, topic_id: bytes) -> None:
        """The entry of a new topic is stored."""
        self._ids[topic_id] = None

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
            if self._name_of(topic.topic_id) is None:
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
