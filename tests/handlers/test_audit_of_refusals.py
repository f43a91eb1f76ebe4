"""Refusals by the views are in the audit log, at one place for all handlers. An unrestricted client causes none."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kwire.access.access import Unrestricted
from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType
from kwire.access.audit.queue import AuditQueue
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import Principal
from kwire.config.access import AuditConfig
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.views import Views
from kwire.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.node import QuietNode, in_loop

ALICE = Principal("User", "alice")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("use", "code", "expected"),
    [
        (
            lambda views: views.topics.get(Operation.WRITE, "orders"),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ("TOPIC", "orders", "WRITE"),
        ),
        (
            lambda views: views.groups.coordinator(Operation.READ, "readers"),
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ("GROUP", "readers", "READ"),
        ),
        (
            lambda views: views.transactions.coordinator(Operation.WRITE, "tx"),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ("TRANSACTIONAL_ID", "tx", "WRITE"),
        ),
        (
            lambda views: views.cluster.authorize(Operation.ALTER),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ("CLUSTER", "kafka-cluster", "ALTER"),
        ),
    ],
)
@in_loop
async def test_a_refusal_of_a_view_is_recorded(
    node: QuietNode, use: Callable[[Views], object], code: ErrorCode, expected: tuple[str, str, str]
) -> None:
    audit = AuditQueue(AuditConfig(True, True, True, -1), node.clock)
    services = msgspec.structs.replace(node.services, audit=audit)
    for access in (Unrestricted(ALICE, "h"), AclAuthorizer(node.metastore, [ALICE]).access(ALICE, "h")):
        use(Views(services, access))
    assert len(audit) == 0
    views = Views(services, AclAuthorizer(node.metastore).access(ALICE, "10.0.0.1"))
    for _ in range(100):
        with pytest.raises(KafkaError) as refused:
            use(views)
        assert refused.value.code is code
    (entry,) = audit.take(100, 2**20)
    fields = msgspec.json.decode(entry.data)
    assert (fields["resource"]["type"], fields["resource"]["name"], fields["operation"]) == expected
    assert (fields["principal"], fields["host"], fields["port"]) == ("User:alice", "10.0.0.1", "kafka")
    audit.close()
    assert [msgspec.json.decode(one.data)["count"] for one in audit.take(100, 2**20)] == [99]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda views: views.topics.permits(Operation.DESCRIBE, "orders"), ("TOPIC", "orders", "DESCRIBE")),
        (lambda views: views.groups.permits(Operation.DESCRIBE, "readers"), ("GROUP", "readers", "DESCRIBE")),
        (lambda views: views.cluster.permits(Operation.ALTER), ("CLUSTER", "kafka-cluster", "ALTER")),
    ],
)
@in_loop
async def test_a_refusal_that_a_handler_answers_itself_is_recorded(
    node: QuietNode, use: Callable[[Views], bool], expected: tuple[str, str, str]
) -> None:
    audit = AuditQueue(AuditConfig(True, True, True, -1), node.clock)
    services = msgspec.structs.replace(node.services, audit=audit)
    assert use(Views(services, AclAuthorizer(node.metastore, [ALICE]).access(ALICE, "h")))
    assert len(audit) == 0
    views = Views(services, AclAuthorizer(node.metastore).access(ALICE, "h"))
    # Filters of lists record nothing.
    assert not views.topics.allows(Operation.DESCRIBE, "orders")
    assert not views.cluster.allows(Operation.ALTER)
    assert len(audit) == 0
    assert not use(views)
    (entry,) = audit.take(100, 2**20)
    fields = msgspec.json.decode(entry.data)
    assert (fields["resource"]["type"], fields["resource"]["name"], fields["operation"]) == expected
    audit.close()


@in_loop
async def test_refusals_of_topics_by_the_consumer_protocol_and_of_settings_by_create_topics_are_recorded(
    node: QuietNode,
) -> None:
    await node.topics.offsets_topic()
    await node.create("orders")
    audit = AuditQueue(AuditConfig(True, True, True, -1), node.clock)
    assert (await node.ask(_join("a"), 1)).error_code == ErrorCode.NONE
    node.restrict()
    node.services = msgspec.structs.replace(node.services, audit=audit)
    node.become(ALICE)
    await node.allow(Operation.READ, ResourceType.GROUP, "*")
    await node.allow(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)

    def refusals() -> list[tuple[str, str]]:
        entries = [msgspec.json.decode(one.data) for one in audit.take(100, 2**20)]
        return [(one["operation"], one["resource"]["name"]) for one in entries]

    refused = await node.ask(_join("b"), 1)
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert refusals() == [("DESCRIBE", "orders")]
    audit.close()

    for request, version, expected in (
        (ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), 1, ("DESCRIBE", "orders")),
        (
            CreateTopicsRequest(
                topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])],
                timeout_ms=1000,
            ),
            7,
            ("DESCRIBE_CONFIGS", "new"),
        ),
    ):
        audit = AuditQueue(AuditConfig(True, True, True, -1), node.clock)
        node.services = msgspec.structs.replace(node.services, audit=audit)
        node.become(ALICE)
        await node.ask(request, version)
        assert refusals() == [expected]
        audit.close()


def _join(member_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
