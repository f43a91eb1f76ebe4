"""The audit topic: no client can create, write, configure, extend or delete it, whatever its rights are."""

from typing import Any

import pytest

from kwire.access.audit.entries import TOPIC
from kwire.access.audit.queue import AuditQueue
from kwire.broker.topics.catalogue import AUDIT_TOPIC
from kwire.broker.topics.topics import Topic
from kwire.config.access import AuditConfig
from kwire.errors import ErrorCode
from kwire.streams.audit.writer import AuditWriter
from kwire.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.handlers.test_repeated_produce import Producer, batch, request
from tests.support.access import ADMIN
from tests.support.access_cases import CASES, AccessCase, Subject
from tests.support.node import QuietNode, in_loop
from tests.support.transactional_requests import ended, started

CHANGES = (
    "produce",
    "produce by id",
    "delete topics",
    "delete topics by id",
    "delete records",
    "create partitions",
    "alter configs of TOPIC",
    "incremental alter configs of TOPIC",
    "write markers with ALTER",
)
CHANGING = [case for case in CASES if case.name in CHANGES]
READING = [case for case in CASES if case.name in ("fetch", "fetch by id", "list offsets", "metadata 9")]


async def audit_topic(node: QuietNode) -> Topic:
    """Create the topic as the server does, with one entry."""
    audit = AuditQueue(AuditConfig(True, True, True, -1), node.clock)
    audit.changed("topic.created", TOPIC, "orders")
    writer = AuditWriter(audit, node.topics, node.clock, -1)
    writer.start()
    await writer.close()
    topic = node.topics.get(AUDIT_TOPIC)
    assert topic is not None
    assert (topic.partitions[0].log_end_offset, audit.dropped) == (1, 0)
    return topic


def test_all_changes_are_tried() -> None:
    assert len(CHANGING) == len(CHANGES)


@pytest.mark.parametrize("is_restricted", [False, True], ids=["no authorizer", "super user"])
@pytest.mark.parametrize("case", CHANGING, ids=[case.name for case in CHANGING])
@in_loop
async def test_no_client_changes_it(node: QuietNode, case: AccessCase, is_restricted: bool) -> None:
    topic = await audit_topic(node)
    if is_restricted:
        node.restrict()
        node.become(ADMIN)
    before = _state(node, topic)
    response = await node.ask(case.request(Subject(AUDIT_TOPIC, topic.topic_id)), case.version)
    assert case.code(response) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert _state(node, topic) == before


@pytest.mark.parametrize("case", READING, ids=[case.name for case in READING])
@in_loop
async def test_clients_with_the_right_read_it(node: QuietNode, case: AccessCase) -> None:
    topic = await audit_topic(node)
    response = await node.ask(case.request(Subject(AUDIT_TOPIC, topic.topic_id)), case.version)
    assert case.code(response) == 0


@in_loop
async def test_no_client_creates_it(node: QuietNode) -> None:
    (case,) = (case for case in CASES if case.name == "create topics, right on the cluster")
    response = await node.ask(case.request(Subject(AUDIT_TOPIC)), case.version)
    assert case.code(response) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # A consumer that subscribes before the first entry waits for it, as for any other topic.
    (topic,) = (await node.ask(MetadataRequest(topics=[MetadataRequestTopic(name=AUDIT_TOPIC)]), 9)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert node.topics.get(AUDIT_TOPIC) is None
    await audit_topic(node)


@in_loop
async def test_no_template_writes_to_it(node: QuietNode) -> None:
    topic = await audit_topic(node)
    end_offset = topic.partitions[0].log_end_offset
    producer = Producer(node, 11)
    for _ in range(4):
        producer.send(request(AUDIT_TOPIC, topic.topic_id, 0, batch()))
    assert producer.taken == 0
    assert topic.partitions[0].log_end_offset == end_offset


@pytest.mark.parametrize("version", [0, 3, 4, 5])
@in_loop
async def test_no_transaction_includes_it(node: QuietNode, version: int) -> None:
    """A transaction that includes it would write its marker to it."""
    topic = await audit_topic(node)
    await node.create("orders")
    producer = await started(node)
    before = _state(node, topic)
    named = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (AUDIT_TOPIC, "orders")]
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=named,
    )
    addition = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=named,
        transactions=[transaction],
    )
    response = await node.ask(addition, version)
    if version < 4:
        results = response.results_by_topic_v3_and_below
    else:
        (results,) = (one.topic_results for one in response.results_by_transaction)
    errors = {one.name: one.results_by_partition[0].partition_error_code for one in results}
    assert errors == {
        AUDIT_TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "orders": ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
    await ended(node, producer)
    assert _state(node, topic) == before


def _state(node: QuietNode, topic: Topic) -> tuple[Any, ...]:
    (partition,) = topic.partitions
    is_there = node.topics.get(AUDIT_TOPIC) is topic
    return is_there, dict(topic.configs), partition.log_start_offset, partition.log_end_offset
