"""Views of topics, groups, transactions and the cluster that are bound to one client.

Handlers reach these only through the views. A lookup names the operation that the client wants. If the client may not
do it, KafkaError with Kafka's code of the resource type is raised, whether the resource exists or not.

A connection has one `Views` object for as long as it has the same principal. Without an authorizer a lookup costs one
attribute check more than a direct call.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kwire.access.access import Access
from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType
from kwire.access.audit import KAFKA
from kwire.broker.partition import UNKNOWN_EPOCH, Partition
from kwire.broker.topics.catalogue import TopicFacts
from kwire.broker.topics.topics import Topic
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kwire.handlers.shared.context import Services


class _View:
    """The part that all views share: whether the client may do an operation on a resource of one type."""

    __slots__ = ("_is_restricted", "_services", "access")

    resource_type: ResourceType
    refusal: ErrorCode

    def __init__(self, services: "Services", access: Access) -> None:
        self._services = services
        self._is_restricted = not access.is_unrestricted
        self.access = access

    def allows(self, operation: Operation, name: str) -> bool:
        return not self._is_restricted or self.access.allows(operation, self.resource_type, name)

    def authorize(self, operation: Operation, name: str) -> None:
        """Raise KafkaError if the client may not do the operation."""
        if self._is_restricted and not self.access.allows(operation, self.resource_type, name):
            raise self._refused(operation, name)

    def _refused(self, operation: Operation, name: str) -> KafkaError:
        """Record a refusal in the audit log, and return its error."""
        self._services.audit.refused(self.access, KAFKA, operation, self.resource_type, name)
        return KafkaError(self.refusal)

    def operations(self, name: str) -> int:
        """Return the allowed operations as the bit field of Kafka's `authorized_operations`."""
        return self.access.operations(self.resource_type, name)


class TopicsView(_View):
    """The topics, as far as the client may use them."""

    __slots__ = ()

    resource_type = ResourceType.TOPIC
    refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def get(self, operation: Operation, name: str) -> Topic | None:
        """Return the topic, or None if it does not exist."""
        if self._is_restricted:
            self.authorize(operation, name)
        return self._services.topics.get(name)

    def get_by_id(self, operation: Operation, topic_id: bytes) -> Topic | None:
        """Return the topic, or None if it does not exist or the client may not even describe it.

        So the response does not reveal whether an id exists. If the client may describe the topic but not do the
        operation, KafkaError is raised.
        """
        topic = self._services.topics.get_by_id(topic_id)
        if self._is_restricted and topic is not None and not self.allows(operation, topic.name):
            if not self.allows(Operation.DESCRIBE, topic.name):
                return None
            raise self._refused(operation, topic.name)
        return topic

    def leader_of(self, operation: Operation, name: str, index: int, client_epoch: int = UNKNOWN_EPOCH) -> Partition:
        """Return a partition that this node leads. Raises KafkaError as `Topics.leader_of` does."""
        if self._is_restricted:
            self.authorize(operation, name)
        return self._services.topics.leader_of(name, index, client_epoch)

    def find(self, operation: Operation, name: str) -> TopicFacts | None:
        """Return the catalogue's entry of the topic, without loading the topic."""
        if self._is_restricted:
            self.authorize(operation, name)
        return self._services.topics.catalogue.find(name)

    def all(self, operation: Operation = Operation.DESCRIBE) -> Iterator[TopicFacts]:
        """Yield the catalogue's entries of all topics on which the client may do the operation."""
        facts = self._services.topics.catalogue.facts()
        return (one for one in facts if self.allows(operation, one.name)) if self._is_restricted else facts


class GroupsView(_View):
    """The consumer groups, as far as the client may use them."""

    __slots__ = ()

    resource_type = ResourceType.GROUP
    refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def coordinator(self, operation: Operation, group_id: str) -> GroupCoordinator:
        """Return the coordinator, for a command about this group."""
        if self._is_restricted:
            self.authorize(operation, group_id)
        return self._services.groups


class TransactionsView(_View):
    """The transactional ids, as far as the client may use them."""

    __slots__ = ()

    resource_type = ResourceType.TRANSACTIONAL_ID
    refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def coordinator(self, operation: Operation, transactional_id: str) -> TransactionCoordinator:
        """Return the coordinator, for a command about this transactional id."""
        if self._is_restricted:
            self.authorize(operation, transactional_id)
        return self._services.transactions


class ClusterView:
    """The cluster as a resource: operations that concern no single topic, group or transactional id."""

    __slots__ = ("_is_restricted", "_services", "access")

    def __init__(self, services: "Services", access: Access) -> None:
        self._services = services
        self._is_restricted = not access.is_unrestricted
        self.access = access

    def allows(self, operation: Operation) -> bool:
        return not self._is_restricted or self.access.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def authorize(self, operation: Operation) -> None:
        """Raise KafkaError CLUSTER_AUTHORIZATION_FAILED if the client may not do the operation."""
        if not self.allows(operation):
            self._services.audit.refused(self.access, KAFKA, operation, ResourceType.CLUSTER, CLUSTER_NAME)
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    @property
    def operations(self) -> int:
        """The allowed operations as the bit field of Kafka's `authorized_operations`."""
        return self.access.operations(ResourceType.CLUSTER, CLUSTER_NAME)


class Views:
    """The views of one client."""

    __slots__ = ("access", "cluster", "groups", "topics", "transactions")

    def __init__(self, services: "Services", access: Access) -> None:
        self.access = access
        self.topics = TopicsView(services, access)
        self.groups = GroupsView(services, access)
        self.transactions = TransactionsView(services, access)
        self.cluster = ClusterView(services, access)

    @property
    def topic_filter(self) -> Callable[[str], bool] | None:
        """A function that returns whether the client may describe a topic; None if it may describe all topics."""
        return None if self.access.is_unrestricted else self._may_describe

    def _may_describe(self, name: str) -> bool:
        return self.topics.allows(Operation.DESCRIBE, name)
