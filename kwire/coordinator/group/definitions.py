"""Definitions of groups that are created over HTTP: the group's topic, assignment strategy and session timeout.

A definition is configuration, like Kafka's group configs. It is stored in the metadata store until the group is
deleted, whether or not the group has members. The coordinator gets the strategy from `DefinedGroupSettings`.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from kwire.broker.topics.ordered_keys import OrderedKeys
from kwire.coordinator.assignment import STRATEGIES
from kwire.coordinator.group.settings import ConsumerSettings
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

KEY_PREFIX = "group-definitions/"
# Limits the memory that clients can use by creating groups.
DEFINITIONS_MAX = 100_000


class GroupDefinition(NamedTuple):
    group_id: str
    topic: str
    strategy: str
    session_timeout_ms: int


class GroupDefinitions:
    """All group definitions, stored in the metadata store."""

    def __init__(self, metastore: MetaStore) -> None:
        self._metastore = metastore
        # All group ids. They are read on first use, so that a start does not scan all keys of the metadata store.
        self._known: OrderedKeys | None = None
        # The number of groups per topic. It is read together with `_known`.
        self._topics: Counter[str] = Counter()

    def find(self, group_id: str) -> GroupDefinition | None:
        entry = self._metastore.get(KEY_PREFIX + group_id)
        return None if entry is None else _definition(group_id, entry.value)

    def page(self, after: str, count: int) -> list[GroupDefinition]:
        """Return up to `count` definitions whose group ids sort after `after`, in the order of the group ids."""
        # `after` plus a zero character is the first possible name after `after`.
        names = self._names().page(f"{after}\0" if after else "", count)
        return [found for name in names if (found := self.find(name)) is not None]

    @property
    def count(self) -> int:
        return len(self._names())

    def _names(self) -> OrderedKeys:
        if self._known is None:
            self._known = OrderedKeys()
            for key, entry in self._metastore.entries(KEY_PREFIX):
                self._known.add(key.removeprefix(KEY_PREFIX))
                self._topics[entry.value["topic"]] += 1
        return self._known

    def has_topic(self, topic: str) -> bool:
        """Return whether the definition of any group has this topic, even if the group has no members or offsets."""
        self._names()
        return topic in self._topics

    def check_room(self) -> None:
        """Raise KafkaError if DEFINITIONS_MAX groups are defined."""
        if len(self._names()) >= DEFINITIONS_MAX:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"the maximum of {DEFINITIONS_MAX} groups is reached; delete groups that are not used",
            )

    async def add(self, definition: GroupDefinition) -> None:
        """Store a definition. On return it is durable. Raises KafkaError, also if the group is already defined."""
        self.check_room()
        value = {
            "topic": definition.topic,
            "strategy": definition.strategy,
            "session_timeout_ms": definition.session_timeout_ms,
        }
        names = self._names()
        await self._commit(Change(KEY_PREFIX + definition.group_id, value, ABSENT))
        names.add(definition.group_id)
        self._topics[definition.topic] += 1

    async def remove(self, group_id: str) -> None:
        entry = self._metastore.get(KEY_PREFIX + group_id)
        if entry is None:
            return
        names = self._names()
        await self._commit(Change(KEY_PREFIX + group_id, None, entry.revision))
        names.remove(group_id)
        topic = entry.value["topic"]
        self._topics[topic] -= 1
        if not self._topics[topic]:
            del self._topics[topic]

    async def _commit(self, change: Change) -> None:
        try:
            await self._metastore.commit([change])
        except Conflict as conflict:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "another request changed the group at the same time; try again"
            ) from conflict
        except StorageError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the change of the group could not be stored") from error


class DefinedGroupSettings:
    """Returns the settings of a consumer group: the configured settings, changed by the group's definition.

    The strategy of the definition becomes the preferred assignor, and the group is retained when it is empty.
    """

    def __init__(
        self, definitions: GroupDefinitions, configured: Callable[[str], ConsumerSettings] | None = None
    ) -> None:
        self._definitions = definitions
        self._configured = configured or (lambda group_id: ConsumerSettings())
        # Settings by strategy, cached for the last configured settings (`_shared_base`) only.
        self._shared: dict[str, ConsumerSettings] = {}
        self._shared_base: ConsumerSettings | None = None

    def __call__(self, group_id: str) -> ConsumerSettings:
        configured = self._configured(group_id)
        definition = self._definitions.find(group_id)
        if definition is None:
            return configured
        if self._shared_base is not configured:
            self._shared_base, self._shared = configured, {}
        settings = self._shared.get(definition.strategy)
        if settings is None:
            others = tuple(one for one in configured.assignors if one != definition.strategy)
            settings = replace(configured, assignors=(definition.strategy, *others), is_retained_when_empty=True)
            self._shared[definition.strategy] = settings
        return settings


def _definition(group_id: str, value: Any) -> GroupDefinition:
    strategy = value["strategy"]
    assert strategy in STRATEGIES
    return GroupDefinition(group_id, value["topic"], strategy, value["session_timeout_ms"])
