"""Groups that are defined before anybody joins: the topic they read, how it is shared out, how long a session is.

A definition is configuration, like Kafka's settings of a group: it is in the metadata store, and stays until it is
taken back, whoever comes and goes. `DefinedGroups` lets the coordinator see it as settings of the group.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from kwire.broker.ordered_keys import OrderedKeys
from kwire.coordinator.assignment import STRATEGIES
from kwire.coordinator.group.settings import ConsumerSettings
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

KEY_PREFIX = "group-definitions/"
# Nobody can fill the memory by inventing names.
DEFINITIONS_MAX = 100_000


class GroupDefinition(NamedTuple):
    group_id: str
    topic: str
    strategy: str
    session_timeout_ms: int


class GroupDefinitions:
    """All of them, as the metadata store has them."""

    def __init__(self, metastore: MetaStore) -> None:
        self._metastore = metastore
        # All names, found when they are first needed: a start with many topics should not look at every key.
        self._known: OrderedKeys | None = None
        # How many groups read a topic, known with the names.
        self._topics: Counter[str] = Counter()

    def find(self, group_id: str) -> GroupDefinition | None:
        entry = self._metastore.get(KEY_PREFIX + group_id)
        return None if entry is None else _definition(group_id, entry.value)

    def page(self, after: str, count: int) -> list[GroupDefinition]:
        """The first so many behind `after`, in the order of their names."""
        # No name lies between a name and the same with a zero behind it.
        names = self._names().page(f"{after}\0" if after else "", count)
        return [found for name in names if (found := self.find(name)) is not None]

    def _names(self) -> OrderedKeys:
        if self._known is None:
            self._known = OrderedKeys()
            for key, entry in self._metastore.entries(KEY_PREFIX):
                self._known.add(key.removeprefix(KEY_PREFIX))
                self._topics[entry.value["topic"]] += 1
        return self._known

    def has_topic(self, topic: str) -> bool:
        """Whether a group was defined to read it, whether anybody has joined or committed or not."""
        self._names()
        return topic in self._topics

    def check_room(self) -> None:
        """Raises KafkaError if there are as many as there may be."""
        if len(self._names()) >= DEFINITIONS_MAX:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"there are {DEFINITIONS_MAX} groups already, and no more are allowed",
            )

    async def add(self, definition: GroupDefinition) -> None:
        """Returns once it is durable. Raises KafkaError, also if another of this name came first."""
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
                ErrorCode.DUPLICATE_RESOURCE, "somebody else changed the group at the same time"
            ) from conflict
        except StorageError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change could not be stored.") from error


class DefinedGroups:
    """The settings of consumer groups: what is configured, and the strategy of a group's definition before others."""

    def __init__(
        self, definitions: GroupDefinitions, configured: Callable[[str], ConsumerSettings] | None = None
    ) -> None:
        self._definitions = definitions
        self._configured = configured or (lambda group_id: ConsumerSettings())
        # By what is configured and by strategy; there are few of both, and what was configured before is forgotten.
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
            settings = replace(configured, assignors=(definition.strategy, *others), is_kept=True)
            self._shared[definition.strategy] = settings
        return settings


def _definition(group_id: str, value: Any) -> GroupDefinition:
    strategy = value["strategy"]
    assert strategy in STRATEGIES
    return GroupDefinition(group_id, value["topic"], strategy, value["session_timeout_ms"])
