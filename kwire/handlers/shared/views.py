"""Views of topics, groups, transactions and the cluster that are bound to one client.

Handlers reach these only through the views. A lookup names the operation that the client wants. If the client may not
do it, KafkaError with Kafka's code of the resource type is raised, whether the resource exists or not.

A connection has one `Views` object for as long as it has the same principal. Without an authorizer a lookup costs one
attribute check more than a direct call.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kwire.access.access import Access
from kwire.access.acl import Operation
from kwire.access.audit.entries import KAFKA
from kwire.access.scope import ScopedNames
from kwire.broker.partition import UNKNOWN_EPOCH, Partition
from kwire.broker.topics.catalogue import TopicFacts
from kwire.broker.topics.topics import METADATA_TOPIC, OFFSETS_TOPIC, NewTopic, Topic, Topics
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.transaction.admission import TransactionAdmission
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.errors import KafkaError
from kwire.handlers.shared.rights import ClusterRights, GroupRights, TopicRights, TransactionRights

if TYPE_CHECKING:
    from kwire.handlers.shared.context import Services


# Names of topics that are read from the catalogue at once, for clients with a scope.
NAMES_PER_PAGE = 250


class TopicsView(TopicRights):
    """The topics, as far as the client may use them.

    `readable`, `readable_by_id`, `writable` and `writable_by_id` are `get` and `get_by_id` with the operation READ or
    WRITE, for Fetch and Produce. Without an authorizer they are the methods of `Topics` itself, and cost nothing.
    """

    __slots__ = ("_prefix", "_services", "readable", "readable_by_id", "writable", "writable_by_id")

    def __init__(self, services: "Services", access: Access, port: str) -> None:
        super().__init__(services.audit, access, port)
        self._services = services
        # The beginning of the names that the client can see; empty without a scope.
        self._prefix = "" if access.scope is None else access.scope.prefix
        self.readable: Callable[[str], Topic | None]
        self.readable_by_id: Callable[[bytes], Topic | None]
        self.writable: Callable[[str], Topic | None]
        self.writable_by_id: Callable[[bytes], Topic | None]
        if self._is_restricted:
            self.readable = partial(self.get, Operation.READ)
            self.readable_by_id = partial(self.get_by_id, Operation.READ)
            self.writable = partial(self.get, Operation.WRITE)
            self.writable_by_id = partial(self.get_by_id, Operation.WRITE)
        else:
            self.readable = self.writable = services.topics.get
            self.readable_by_id = self.writable_by_id = services.topics.get_by_id

    def get(self, operation: Operation, name: str) -> Topic | None:
        """Return the topic, or None if it does not exist."""
        if self._is_restricted:
            self.authorize(operation, name)
        return self._services.topics.get(name)

    def get_by_id(self, operation: Operation, topic_id: bytes) -> Topic | None:
        """Return the topic, or None if it does not exist.

        The response may reveal that an id exists, because in Kafka topic ids are not confidential. It must not reveal
        the name. For a client with a scope, the topics of other scopes do not exist.
        """
        topic = self._services.topics.get_by_id(topic_id)
        if self._is_restricted and topic is not None:
            if not topic.name.startswith(self._prefix):
                return None
            self.authorize(operation, topic.name)
        return topic

    def get_as_broker(self, name: str) -> Topic | None:
        """Return the topic without a check, for requests that were authorized by CLUSTER_ACTION."""
        return self._services.topics.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, to check the client's rights. The response must not reveal it without them.

        For a client with a scope, the topics of other scopes do not exist.
        """
        name = self._services.topics.catalogue.name_of(topic_id)
        return name if name is None or name.startswith(self._prefix) else None

    def leader_of(self, operation: Operation, name: str, index: int, client_epoch: int = UNKNOWN_EPOCH) -> Partition:
        """Return a partition that this node leads. Raises KafkaError as `Topics.leader_of` does."""
        if self._is_restricted:
            self.authorize(operation, name)
        return self._services.topics.leader_of(name, index, client_epoch)

    def allowed_partition(self, operation: Operation, name: str, index: int) -> Partition | None:
        """Return the partition, or None if it does not exist or the client may not do the operation."""
        return self._services.topics.find_partition(name, index) if self.allows(operation, name) else None

    def find(self, operation: Operation, name: str) -> TopicFacts | None:
        """Return the catalogue's entry of the topic, without loading the topic."""
        if self._is_restricted:
            self.authorize(operation, name)
        return self._services.topics.catalogue.find(name)

    def all(self, operation: Operation = Operation.DESCRIBE) -> Iterator[TopicFacts | None]:
        """Yield the catalogue's entries of all topics on which the client may do the operation.

        None is yielded for every other topic, so that the caller can yield to the event loop in time.
        """
        if self._prefix:
            return self._in_scope(operation)
        facts = self._services.topics.catalogue.facts()
        if not self._is_restricted:
            return facts
        return (one if self.allows(operation, one.name) else None for one in facts)

    def names_from(self, first: str, count: int) -> list[str]:
        """Return up to `count` names of topics from `first` on, in order, whether the client may see them or not.

        The caller checks the client's rights on each name. A client with a scope gets the names of its scope.
        """
        if not self._prefix:
            return self._services.topics.catalogue.names_from(first, count)
        some = self._services.topics.catalogue.names_from(max(first, self._prefix), count)
        return [name for name in some if name.startswith(self._prefix)]

    def _in_scope(self, operation: Operation) -> Iterator[TopicFacts | None]:
        """Yield the entries of the client's scope. They are read in pages, because topics may change in between."""
        first = ""
        while names := self.names_from(first, NAMES_PER_PAGE):
            for name in names:
                yield self._services.topics.catalogue.find(name) if self.allows(operation, name) else None
            first = names[-1] + "\0"

    # --- creation: it needs CREATE on the cluster or on the topic

    def check_new_name(self, name: str) -> None:
        """Raise KafkaError if the client may not create a topic of this name."""
        if name != METADATA_TOPIC:  # nobody may create it, and Kafka has another error for it
            self._authorize_creation(name)
        self._services.topics.check_new_name(name)

    async def create(self, new: Sequence[NewTopic]) -> list[Topic]:
        """Create topics as `Topics.create` does."""
        for one in new:
            self._authorize_creation(one.name)
        return await self._services.topics.create(new)

    async def create_missing(self, name: str) -> None:
        """Create a topic with the default settings, unless it exists by now."""
        self._authorize_creation(name)
        await self._services.topics.get_or_create(name)

    def _authorize_creation(self, name: str) -> None:
        if not self.may_create(name):
            raise KafkaError(self.refusal)


class GroupsView(GroupRights):
    """The consumer groups, as far as the client may use them."""

    __slots__ = ("_services",)

    def __init__(self, services: "Services", access: Access, port: str) -> None:
        super().__init__(services.audit, access, port)
        self._services = services

    def coordinator(self, operation: Operation, group_id: str) -> GroupCoordinator:
        """Return the coordinator, for a command about this group."""
        if self._is_restricted:
            self.authorize(operation, group_id)
        return self._services.groups

    def coordinator_of_all(self) -> GroupCoordinator:
        """Return the coordinator, for commands that list groups. The caller removes the groups that it must hide."""
        return self._services.groups

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` if it does not exist. Raises KafkaError."""
        await self._services.topics.offsets_topic()

    @property
    def has_topic(self) -> bool:
        """Whether `__consumer_offsets` exists."""
        return self._services.topics.get(OFFSETS_TOPIC) is not None


class TransactionsView(TransactionRights):
    """The transactional ids, as far as the client may use them."""

    __slots__ = ("_services",)

    def __init__(self, services: "Services", access: Access, port: str) -> None:
        super().__init__(services.audit, access, port)
        self._services = services

    def coordinator(self, operation: Operation, transactional_id: str) -> TransactionCoordinator:
        """Return the coordinator, for a command about this transactional id."""
        if self._is_restricted:
            self.authorize(operation, transactional_id)
        return self._services.transactions

    def coordinator_of_all(self) -> TransactionCoordinator:
        """Return the coordinator, for commands that list transactional ids. The caller removes those it must hide."""
        return self._services.transactions

    def admission(self, operation: Operation, transactional_id: str) -> TransactionAdmission:
        """Return the admission, for a request of this transactional id."""
        if self._is_restricted:
            self.authorize(operation, transactional_id)
        return self._services.transaction_admission

    async def ensure_topic(self) -> None:
        """Create `__transaction_state` if it does not exist. Raises KafkaError."""
        await self._services.topics.transactions_topic()


class ClusterView(ClusterRights):
    """The cluster as a resource: operations that concern no single topic, group or transactional id."""

    __slots__ = ("_services",)

    def __init__(self, services: "Services", access: Access, port: str) -> None:
        super().__init__(services.audit, access, port)
        self._services = services

    def topics(self, operation: Operation) -> Topics:
        """Return all topics, for an operation on them that needs a right on the cluster instead of the topics."""
        self.authorize(operation)
        return self._services.topics


class Views:
    """The views of one client. `port` is the port that it uses, for the audit log.

    Views do not change, so connections of the same principal, host and port may share them.
    """

    __slots__ = ("__weakref__", "access", "cluster", "groups", "names", "port", "prefix", "topics", "transactions")

    def __init__(self, services: "Services", access: Access, port: str = KAFKA) -> None:
        self.access = access
        self.port = port
        # The translation of names in requests and responses; None for a client that uses full names.
        self.names = None if access.scope is None else ScopedNames(access.scope)
        # The beginning of the names that the client can see; empty without a scope.
        self.prefix = "" if access.scope is None else access.scope.prefix
        self.topics = TopicsView(services, access, port)
        self.groups = GroupsView(services, access, port)
        self.transactions = TransactionsView(services, access, port)
        self.cluster = ClusterView(services, access, port)

    @property
    def topic_filter(self) -> Callable[[str], bool] | None:
        """A function that returns whether the client may describe a topic; None if it may describe all topics."""
        return None if self.access.is_unrestricted else self._may_describe

    def _may_describe(self, name: str) -> bool:
        return self.topics.allows(Operation.DESCRIBE, name)
