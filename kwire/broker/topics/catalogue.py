"""The catalogue of topics in the metadata store, with two indexes: by topic id, and by collision key of the name.

A node may have a hundred thousand topics, of which only a hundred are in use. The catalogue contains all of them and
needs about four hundred bytes per topic. `topics.py` creates a live object when a topic is used. Code that needs only
the catalogue entries of topics (Metadata, metrics) reads the catalogue and creates no live objects.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kwire.broker.topics.deletion_notes import DeletionNotes
from kwire.broker.topics.ordered_keys import OrderedKeys
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT, CHANGES_PER_COMMIT_MAX
from storage.errors import StorageError

log = logging.getLogger("kwire.broker")

KEY_PREFIX = "topics/"
# The maximum number of topics that one commit adds. The rest of the commit removes deletion notes.
ADDED_PER_COMMIT_MAX = 80
# The maximum number of topics that one commit removes: each has up to four entries (topic, schemas, marks, note).
REMOVED_PER_COMMIT_MAX = 25
# The schemas of topics of the event store, by topic id. The schemas of a topic are deleted with the topic.
SCHEMAS_PREFIX = "event-topics/"
# The offset marks of a topic's partitions, by topic id: `offset_marks.py`.
MARKS_PREFIX = "offset-marks/"
OFFSETS_TOPIC = "__consumer_offsets"
# The state of transactions: `kwire/coordinator/transaction`.
TRANSACTIONS_TOPIC = "__transaction_state"
# The event journal of the event store: `event_store/journal.py`.
EVENTS_TOPIC = "__events"
# The state of webhooks: `webhooks/state_log.py`.
WEBHOOKS_TOPIC = "__webhooks"
# The audit log of the server: `streams/audit`.
AUDIT_TOPIC = "kwire-audit"
ROOM_CONFIG = "kwire.room"
EVENTS_CONFIG = "kwire.events"
# The creation time of topics that were created by versions of kwire that did not store the time.
UNKNOWN_TIME_MS = -1
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state", EVENTS_TOPIC, WEBHOOKS_TOPIC})
# Topics that are not internal, but that only the server itself creates, writes, configures and deletes.
PROTECTED_TOPICS = frozenset({AUDIT_TOPIC})
# Internal topics that clients can neither read nor configure.
HIDDEN_TOPICS = frozenset({EVENTS_TOPIC, WEBHOOKS_TOPIC})


class TopicCounts(NamedTuple):
    """The numbers of topics and of their partitions, and apart from them the number of internal topics."""

    topics: int
    partitions: int
    internal_topics: int


class TopicFacts(NamedTuple):
    """The catalogue entry of a topic.

    `configs` contains only the settings that were set on the topic itself. `revision` is the revision of the entry in
    the metadata store. A change is refused if the entry now has another revision. `created_ms` is -1 if the time is not
    known.
    """

    name: str
    topic_id: bytes
    partition_count: int
    configs: Mapping[str, str]
    revision: int
    created_ms: int = UNKNOWN_TIME_MS

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def is_room(self) -> bool:
        return is_room(self.configs)


class Catalogue:
    """The catalogue of all topics. A topic is visible once its creation is durable, and until its removal is durable.

    The constructor calls `check` with the name and configs of each topic that has configs. `check` may raise.
    """

    def __init__(
        self,
        metastore: MetaStore,
        check: Callable[[str, Mapping[str, str]], object],
        notes: DeletionNotes | None = None,
    ) -> None:
        """`notes` are the notes of deleted topics whose folders may not have been removed yet."""
        self._metastore = metastore
        self._notes = notes
        # Keys in the metadata store, by topic id. The values are the string objects that the store itself uses, so an
        # entry needs memory only for the id and a slot of the hash table.
        self._keys: dict[bytes, str] = {}
        # Topic names by collision key, only for names that differ from their collision key.
        self._names_by_collision_key: dict[str, str] = {}
        # Partition counts by topic name, only for topics with more than one partition.
        self._partition_counts: dict[str, int] = {}
        self._ordered = OrderedKeys()
        # The keys of the topics that are rooms.
        self._rooms = OrderedKeys()
        self.partition_count = 0
        # Changes whenever a topic is added or removed, or its partition count changes.
        self.revision = 0
        for key, entry in metastore.entries(KEY_PREFIX):
            value = entry.value
            if value["configs"]:
                check(key.removeprefix(KEY_PREFIX), value["configs"])
            self._add_to_indexes(key, value)
        self._ordered.put_in_order()
        self._rooms.put_in_order()

    def __len__(self) -> int:
        return len(self._keys)

    def names(self) -> list[str]:
        """Return all topic names, oldest topic first."""
        return [key.removeprefix(KEY_PREFIX) for key in self._keys.values()]

    def partition_counts(self) -> Iterator[tuple[str, int]]:
        """Yield each topic name with its partition count. This is much faster than `facts`."""
        counts = self._partition_counts
        for key in tuple(self._keys.values()):
            name = key.removeprefix(KEY_PREFIX)
            yield name, counts.get(name, 1)

    def counts(self) -> "TopicCounts":
        """Count the topics as users see them: without the internal ones."""
        counts = self._partition_counts
        internal = [counts.get(name, 1) for name in INTERNAL_TOPICS if self.find(name) is not None]
        return TopicCounts(len(self._keys) - len(internal), self.partition_count - sum(internal), len(internal))

    def folder_ids(self) -> dict[str, bytes]:
        """Return the topic id of every partition, by folder name. The folder itself may not exist yet."""
        counts = self._partition_counts
        found: dict[str, bytes] = {}
        for topic_id, key in self._keys.items():
            name = key.removeprefix(KEY_PREFIX)
            for index in range(counts.get(name, 1)):
                found[f"{name}-{index}"] = topic_id
        return found

    def names_from(self, first: str, count: int) -> list[str]:
        """A page of names: up to `count` names from `first` on, in order."""
        return [key.removeprefix(KEY_PREFIX) for key in self._ordered.page(KEY_PREFIX + first, count)]

    @property
    def room_count(self) -> int:
        return len(self._rooms)

    def rooms_from(self, first: str, count: int) -> list[str]:
        """A page of names of rooms: up to `count` names from `first` on, in order."""
        return [key.removeprefix(KEY_PREFIX) for key in self._rooms.page(KEY_PREFIX + first, count)]

    def find(self, name: str) -> TopicFacts | None:
        entry = self._metastore.get(KEY_PREFIX + name)
        if entry is None:
            return None
        value = entry.value
        topic_id = bytes.fromhex(value["id"])
        # A new topic is in the metadata store shortly before it is in the indexes. It becomes visible with the indexes.
        if topic_id not in self._keys:
            return None
        return TopicFacts(name, topic_id, value["partitions"], value["configs"], entry.revision, _created_ms(value))

    def name_of(self, topic_id: bytes) -> str | None:
        key = self._keys.get(topic_id)
        return key.removeprefix(KEY_PREFIX) if key is not None else None

    def facts(self) -> Iterator[TopicFacts]:
        """Yield the entries of all topics. Topics that are deleted during the iteration are skipped."""
        for key in tuple(self._keys.values()):
            facts = self.find(key.removeprefix(KEY_PREFIX))
            if facts is not None:
                yield facts

    def find_colliding(self, name: str) -> str | None:
        """Return the name of the existing topic that is named `name` or collides with it, or None."""
        shown = collision_key(name)
        return self._names_by_collision_key.get(shown) or (shown if self.find(shown) is not None else None)

    # --- changes: first durable, then visible

    async def add(self, values: Mapping[str, dict[str, Any]], extra_changes: Sequence[Change] = ()) -> None:
        """Add up to ADDED_PER_COMMIT_MAX new topics and `extra_changes` in one commit.

        Raises CommitTooLarge if these have too many bytes.
        """
        changes = [Change(KEY_PREFIX + name, value, ABSENT) for name, value in values.items()]
        try:
            await self._commit([*changes, *extra_changes])
        except Conflict as conflict:
            name = conflict.key.removeprefix(KEY_PREFIX)
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from conflict
        for change in changes:
            self._add_to_indexes(change.key, change.value)

    async def change(self, facts: TopicFacts, value: dict[str, Any]) -> TopicFacts:
        """Replace the entry of a topic by `value`.

        Raises KafkaError if the entry has changed since `facts` was read.
        """
        revision = await self._change([(facts, value)])
        self._update_count(facts.name, value["partitions"] - facts.partition_count, value["partitions"])
        if is_room(value["configs"]) != facts.is_room:
            (self._rooms.remove if facts.is_room else self._rooms.add)(self._keys[facts.topic_id])
        return facts._replace(partition_count=value["partitions"], configs=value["configs"], revision=revision)

    async def remove(self, removed: Sequence[TopicFacts]) -> None:
        """Remove up to REMOVED_PER_COMMIT_MAX topics in one commit.

        Raises KafkaError if one has changed since its facts were read.

        The same commit writes the deletion notes. With them, the next start can remove leftover folders.
        """
        for facts in removed:
            now = self.find(facts.name)
            if now is None or now.topic_id != facts.topic_id:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        extra_changes = [change for facts in removed for change in self._dependent_entries(facts)]
        if self._notes is not None:
            extra_changes += [
                self._notes.change(facts.topic_id, facts.name, facts.partition_count) for facts in removed
            ]
        await self._change([(facts, None) for facts in removed], extra_changes)
        for facts in removed:
            key = self._keys.pop(facts.topic_id)
            self._ordered.remove(key)
            if facts.is_room:
                self._rooms.remove(key)
            if self._names_by_collision_key.get(collision_key(facts.name)) == facts.name:
                del self._names_by_collision_key[collision_key(facts.name)]
            self._partition_counts.pop(facts.name, None)
            self.partition_count -= facts.partition_count
        self.revision += 1

    def _dependent_entries(self, facts: TopicFacts) -> list[Change]:
        """Return the changes that remove a topic's schemas and offset marks from the metadata store."""
        keys = (prefix + facts.topic_id.hex() for prefix in (SCHEMAS_PREFIX, MARKS_PREFIX))
        found = ((key, self._metastore.get(key)) for key in keys)
        return [Change(key, None, entry.revision) for key, entry in found if entry is not None]

    async def _change(
        self, changed: Sequence[tuple[TopicFacts, dict[str, Any] | None]], extra_changes: Sequence[Change] = ()
    ) -> int:
        try:
            return await self._commit(
                [*(Change(KEY_PREFIX + facts.name, value, facts.revision) for facts, value in changed), *extra_changes]
            )
        except Conflict as conflict:
            name = conflict.key.removeprefix(KEY_PREFIX)
            facts = next((facts for facts, _ in changed if facts.name == name), None)
            now = self.find(name)
            if facts is not None and (now is None or now.topic_id != facts.topic_id):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from conflict
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the topic was changed by another request, try again"
            ) from conflict

    async def _commit(self, changes: list[Change]) -> int:
        """Commit changes, and with them the removal of as many deletion notes as the commit has room for."""
        if self._notes is not None:
            changes = [*changes, *self._notes.finished_changes(CHANGES_PER_COMMIT_MAX - len(changes))]
        try:
            return await self._metastore.commit(changes)
        except StorageError as error:
            log.exception("the catalogue of topics could not be written")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change could not be stored.") from error

    def _add_to_indexes(self, key: str, value: dict[str, Any]) -> None:
        name = key.removeprefix(KEY_PREFIX)
        self._keys[bytes.fromhex(value["id"])] = key
        self._ordered.add(key)
        if is_room(value["configs"]):
            self._rooms.add(key)
        if "." in name:
            self._names_by_collision_key[collision_key(name)] = name
        self._update_count(name, value["partitions"], value["partitions"])

    def _update_count(self, name: str, more: int, partition_count: int) -> None:
        self.partition_count += more
        if more:
            self.revision += 1
        if partition_count != 1:
            self._partition_counts[name] = partition_count


def entry_value(
    topic_id: bytes, partition_count: int, configs: Mapping[str, str], created_ms: int = UNKNOWN_TIME_MS
) -> dict[str, Any]:
    value = {"id": topic_id.hex(), "partitions": partition_count, "configs": dict(configs)}
    if created_ms != UNKNOWN_TIME_MS:
        value["created"] = created_ms
    return value


def is_room(configs: Mapping[str, str]) -> bool:
    """Whether a topic with these settings is a room. The text is parsed like a boolean setting."""
    return configs.get(ROOM_CONFIG, "").strip().lower() == "true"


def _created_ms(value: Mapping[str, Any]) -> int:
    created_ms: int = value.get("created", UNKNOWN_TIME_MS)
    return created_ms


def collision_key(name: str) -> str:
    """Return the name with '.' replaced by '_', as in Kafka's metric names.

    Kafka allows one topic per collision key.
    """
    return name.replace(".", "_")
