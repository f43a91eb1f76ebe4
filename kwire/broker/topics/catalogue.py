"""What the metadata store knows of topics, and the two indexes over it: by topic id, and by the look of a name.

A node may have a hundred thousand topics of which a hundred are used. All of them are here, at some four hundred bytes
each, and none of them is more than that until somebody uses it: then `topics.py` makes the live object. Whoever only
wants to know what a topic is (Metadata, metrics) asks here and makes nothing.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kwire.broker.deletion_notes import DeletionNotes
from kwire.broker.ordered_keys import OrderedKeys
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

log = logging.getLogger("kwire.broker")

KEY_PREFIX = "topics/"
# The schemas of topics of the event store, by topic id: they go with their topic.
SCHEMAS_PREFIX = "event-topics/"
# Up to which offset records of its partitions may be acknowledged, by topic id: `offset_marks.py`.
MARKS_PREFIX = "offset-marks/"
OFFSETS_TOPIC = "__consumer_offsets"
# Where transactions stand: `kwire/coordinator/transaction`.
TRANSACTIONS_TOPIC = "__transaction_state"
# The journal of the event store: `store/journal.py`.
EVENTS_TOPIC = "__events"
# Where webhooks stand: `webhooks/state_log.py`.
WEBHOOKS_TOPIC = "__webhooks"
# Notes about webhooks, for people: `webhooks/audit.py`.
AUDIT_TOPIC = "kwire-audit"
ROOM_CONFIG = "kwire.room"
EVENTS_CONFIG = "kwire.events"
# Of topics that are older than the note of it.
UNKNOWN_TIME_MS = -1
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state", EVENTS_TOPIC, WEBHOOKS_TOPIC})
# Internal topics that clients cannot read or configure either.
HIDDEN_TOPICS = frozenset({EVENTS_TOPIC, WEBHOOKS_TOPIC})


class TopicFacts(NamedTuple):
    """A topic as the catalogue has it. `configs` holds only what was set on it.

    `revision` is that of the store's entry: a change of what it says is judged by it. `created_ms` is -1 if nobody
    knows.
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
    """All topics. A topic is found as soon as it is durable, and until its removal is.

    `check` is called once for each topic found at the start, with its name and configs; what it raises is raised.
    """

    def __init__(
        self,
        metastore: MetaStore,
        check: Callable[[str, Mapping[str, str]], object],
        notes: DeletionNotes | None = None,
    ) -> None:
        """`notes`: deletions of which folders may be left."""
        self._metastore = metastore
        self._notes = notes
        # The keys are the store's own objects, so an entry here costs its id and a place in the table.
        self._keys: dict[bytes, str] = {}
        # Only of names that look different from what they are.
        self._names_by_look: dict[str, str] = {}
        # Only of topics with more than one.
        self._partition_counts: dict[str, int] = {}
        self._ordered = OrderedKeys()
        # Only of topics that are rooms.
        self._rooms = OrderedKeys()
        self.partition_count = 0
        # Another number after every change of what topics there are, or how many partitions they have.
        self.revision = 0
        for key, entry in metastore.entries(KEY_PREFIX):
            value = entry.value
            if value["configs"]:
                check(key.removeprefix(KEY_PREFIX), value["configs"])
            self._enter(key, value)
        self._ordered.put_in_order()
        self._rooms.put_in_order()

    def __len__(self) -> int:
        return len(self._keys)

    def names(self) -> list[str]:
        """All names of this moment, oldest first."""
        return [key.removeprefix(KEY_PREFIX) for key in self._keys.values()]

    def partition_counts(self) -> Iterator[tuple[str, int]]:
        """All names and how many partitions each has; much quicker than all facts."""
        counts = self._partition_counts
        for key in tuple(self._keys.values()):
            name = key.removeprefix(KEY_PREFIX)
            yield name, counts.get(name, 1)

    def folder_ids(self) -> dict[str, bytes]:
        """The topic id of every folder that a partition has or may come to have."""
        counts = self._partition_counts
        found: dict[str, bytes] = {}
        for topic_id, key in self._keys.items():
            name = key.removeprefix(KEY_PREFIX)
            for index in range(counts.get(name, 1)):
                found[f"{name}-{index}"] = topic_id
        return found

    def names_from(self, first: str, count: int) -> list[str]:
        """The first `count` names that are not below `first`, in their order: a page for those who read all."""
        return [key.removeprefix(KEY_PREFIX) for key in self._ordered.page(KEY_PREFIX + first, count)]

    @property
    def room_count(self) -> int:
        return len(self._rooms)

    def rooms_from(self, first: str, count: int) -> list[str]:
        """The same of those topics that are rooms."""
        return [key.removeprefix(KEY_PREFIX) for key in self._rooms.page(KEY_PREFIX + first, count)]

    def find(self, name: str) -> TopicFacts | None:
        entry = self._metastore.get(KEY_PREFIX + name)
        if entry is None:
            return None
        value = entry.value
        topic_id = bytes.fromhex(value["id"])
        # The store knows a new topic a moment before it is entered here; it is there when everybody finds it.
        if topic_id not in self._keys:
            return None
        return TopicFacts(name, topic_id, value["partitions"], value["configs"], entry.revision, _created_ms(value))

    def name_of(self, topic_id: bytes) -> str | None:
        key = self._keys.get(topic_id)
        return key.removeprefix(KEY_PREFIX) if key is not None else None

    def facts(self) -> Iterator[TopicFacts]:
        """Of all topics of this moment, one after the other; those that go meanwhile are left out."""
        for key in tuple(self._keys.values()):
            facts = self.find(key.removeprefix(KEY_PREFIX))
            if facts is not None:
                yield facts

    def twin_of(self, name: str) -> str | None:
        """The topic that has this name, or one that looks the same."""
        shown = look(name)
        return self._names_by_look.get(shown) or (shown if self.find(shown) is not None else None)

    # --- changes: durable first, then found

    async def add(self, values: Mapping[str, dict[str, Any]], beside: Sequence[Change] = ()) -> None:
        """Enter new topics, all in one commit, and what else belongs to them."""
        changes = [Change(KEY_PREFIX + name, value, ABSENT) for name, value in values.items()]
        try:
            await self._commit([*changes, *beside, *self._finished_deletions()])
        except Conflict as conflict:
            name = conflict.key.removeprefix(KEY_PREFIX)
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from conflict
        for change in changes:
            self._enter(change.key, change.value)

    async def change(self, facts: TopicFacts, value: dict[str, Any]) -> TopicFacts:
        """Let a topic be as `value` says, if it is still what `facts` say."""
        revision = await self._change([(facts, value)])
        self._count(facts.name, value["partitions"] - facts.partition_count, value["partitions"])
        if is_room(value["configs"]) != facts.is_room:
            (self._rooms.remove if facts.is_room else self._rooms.add)(self._keys[facts.topic_id])
        return facts._replace(partition_count=value["partitions"], configs=value["configs"], revision=revision)

    async def remove(self, removed: Sequence[TopicFacts]) -> None:
        """Let topics go, all in one commit, if each is still what its facts say.

        The same commit notes the deletion: until the folders are gone durably, the note allows a start to remove them.
        """
        beside = [change for facts in removed for change in self._belongings(facts)]
        if self._notes is not None:
            beside += [self._notes.change(facts.topic_id, facts.name, facts.partition_count) for facts in removed]
        await self._change([(facts, None) for facts in removed], [*beside, *self._finished_deletions()])
        for facts in removed:
            key = self._keys.pop(facts.topic_id)
            self._ordered.remove(key)
            if facts.is_room:
                self._rooms.remove(key)
            if self._names_by_look.get(look(facts.name)) == facts.name:
                del self._names_by_look[look(facts.name)]
            self._partition_counts.pop(facts.name, None)
            self.partition_count -= facts.partition_count
        self.revision += 1

    def _belongings(self, facts: TopicFacts) -> list[Change]:
        """What else is kept about a topic by its id, and goes with it."""
        keys = (prefix + facts.topic_id.hex() for prefix in (SCHEMAS_PREFIX, MARKS_PREFIX))
        found = ((key, self._metastore.get(key)) for key in keys)
        return [Change(key, None, entry.revision) for key, entry in found if entry is not None]

    def _finished_deletions(self) -> list[Change]:
        return self._notes.finished_changes() if self._notes is not None else []

    async def _change(
        self, changed: Sequence[tuple[TopicFacts, dict[str, Any] | None]], beside: Sequence[Change] = ()
    ) -> int:
        try:
            return await self._commit(
                [*(Change(KEY_PREFIX + facts.name, value, facts.revision) for facts, value in changed), *beside]
            )
        except Conflict as conflict:
            name = conflict.key.removeprefix(KEY_PREFIX)
            facts = next((facts for facts, _ in changed if facts.name == name), None)
            now = self.find(name)
            if facts is not None and (now is None or now.topic_id != facts.topic_id):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from conflict
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "somebody else changed the topic, try again") from conflict

    async def _commit(self, changes: list[Change]) -> int:
        try:
            return await self._metastore.commit(changes)
        except StorageError as error:
            log.exception("the catalogue of topics could not be written")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change could not be stored.") from error

    def _enter(self, key: str, value: dict[str, Any]) -> None:
        name = key.removeprefix(KEY_PREFIX)
        self._keys[bytes.fromhex(value["id"])] = key
        self._ordered.add(key)
        if is_room(value["configs"]):
            self._rooms.add(key)
        if "." in name:
            self._names_by_look[look(name)] = name
        self._count(name, value["partitions"], value["partitions"])

    def _count(self, name: str, more: int, partition_count: int) -> None:
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
    """Whether a topic with these settings is a room, as the setting's own kind reads the text."""
    return configs.get(ROOM_CONFIG, "").strip().lower() == "true"


def _created_ms(value: Mapping[str, Any]) -> int:
    created_ms: int = value.get("created", UNKNOWN_TIME_MS)
    return created_ms


def look(name: str) -> str:
    """Names that differ only in '.' and '_' look the same in metric names, so Kafka lets only one of them exist."""
    return name.replace(".", "_")
