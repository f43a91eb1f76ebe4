"""Produce to topics of the event store: the same journal as everybody, records checked, refusals named."""

import asyncio
from collections.abc import Sequence

import pytest

from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.produce.template import ProduceTemplateCache
from kwire.handlers.shared.context import Context
from kwire.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from storage.batch.format import GZIP, ZSTD
from storage.batch.record_batch import BatchHeader, Record, build_batch, check_batch, read_records
from storage.errors import RecordProblem
from tests.support.batches import make_batch
from tests.support.event_store import all_events, draft, events_of, payloads_of
from tests.support.node import FakePeer, QuietNode, in_loop

ALL, ONE, NO_ACKS = -1, 1, 0
TOPIC = 2


def asked(*topics: tuple[Topic, memoryview], acks: int = ALL) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[PartitionProduceData(index=0, records=batch)],
            )
            for topic, batch in topics
        ],
    )


async def produce(
    node: QuietNode, *topics: tuple[Topic, memoryview], acks: int = ALL, version: int = 12
) -> list[PartitionProduceResponse]:
    answer = await node.ask(asked(*topics, acks=acks), version)
    return [one for topic in answer.responses for one in topic.partition_responses]


def batch(node: QuietNode, count: int = 1, **more: int) -> memoryview:
    return make_batch(count, value=b"1", timestamp_ms=node.clock.now_ms(), **more)


@pytest.mark.parametrize("version", [3, 8, 12, 13])
@pytest.mark.parametrize("acks", [ALL, ONE])
@in_loop
async def test_a_batch_goes_through_the_journal_and_is_answered_with_its_offset(
    node: QuietNode, version: int, acks: int
) -> None:
    orders, plain = await node.create_event_topic("orders"), await node.create("plain")
    answers = await produce(node, (orders, batch(node, 3)), (plain, batch(node)), acks=acks, version=version)
    assert [(one.error_code, one.base_offset) for one in answers] == [(0, 0), (0, 0)]
    assert answers[0].log_start_offset == (0 if version >= 5 else -1)
    (following,) = await produce(node, (orders, batch(node)), version=version)
    assert following.base_offset == 3
    assert payloads_of(orders) == [1, 1, 1, 1]
    assert [event.event_id for event in all_events(node.event_store, node.topics)] == [
        f"orders-{n}" for n in (1, 2, 3, 4)
    ]


@in_loop
async def test_acks_zero_is_stored_too(node: QuietNode) -> None:
    orders = await node.create_event_topic("orders")
    assert await node.ask(asked((orders, batch(node)), acks=NO_ACKS), 12) is None
    await node.event_store.publish([draft("orders", 2)])
    assert payloads_of(orders) == [1, 2]


@pytest.mark.parametrize("compression", [GZIP, ZSTD])
@in_loop
async def test_a_compressed_batch_stays_as_it_came(node: QuietNode, compression: int) -> None:
    orders = await node.create_event_topic("orders")
    sent = batch(node, 5, compression=compression)
    await produce(node, (orders, sent))
    stored = orders.partitions[0].read(0, 100_000).view
    assert bytes(stored[16:]) == bytes(sent[16:])  # all but base offset and epoch
    assert len(all_events(node.event_store, node.topics)) == 5


@in_loop
async def test_an_idempotent_producer_may_send_ahead_and_again(node: QuietNode) -> None:
    orders = await node.create_event_topic("orders")
    sent = [batch(node, 2, producer_id=5, producer_epoch=0, base_sequence=2 * n) for n in range(4)]
    waiting = [node.start(asked((orders, one)), 12) for one in (*sent, sent[1], sent[3])]
    offsets = [(await one).responses[0].partition_responses[0].base_offset for one in waiting]
    assert offsets == [0, 2, 4, 6, 2, 6]
    (gap,) = await produce(node, (orders, batch(node, producer_id=5, producer_epoch=0, base_sequence=20)))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    (old,) = await produce(node, (orders, batch(node, producer_id=5, producer_epoch=1, base_sequence=0)))
    assert (old.error_code, old.base_offset) == (0, 8)
    (fenced,) = await produce(node, (orders, batch(node, producer_id=5, producer_epoch=0, base_sequence=8)))
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(events_of(orders)) == 9


@pytest.mark.proves("S2-15", "S2-31")
@in_loop
async def test_records_that_schemas_refuse_are_named_and_nothing_is_stored(node: QuietNode) -> None:
    def check(topic: Topic, view: memoryview, header: BatchHeader) -> Sequence[RecordProblem]:
        found = enumerate(read_records(view, 100_000))
        return [RecordProblem(at, f"{topic.name} refuses it") for at, one in found if one.value == b"bad"]

    orders = await node.create_event_topic("orders")
    node.event_checks.check_batch = check
    records = [Record(None, value, node.clock.now_ms()) for value in (b"1", b"bad", b"2", b"bad")]
    (answer,) = await produce(node, (orders, memoryview(build_batch(records))))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    told = [(one.batch_index, one.batch_index_error_message) for one in answer.record_errors]
    assert told == [(1, "orders refuses it"), (3, "orders refuses it")]
    assert events_of(orders) == []
    (good,) = await produce(node, (orders, batch(node)))
    assert (good.error_code, good.base_offset) == (0, 0)


@in_loop
async def test_order_is_kept_while_a_batch_is_being_checked(node: QuietNode) -> None:
    orders, users = await node.create_event_topic("orders"), await node.create_event_topic("users")
    checking: list[asyncio.Future[Sequence[RecordProblem]]] = []

    def check(topic: Topic, view: memoryview, header: BatchHeader) -> "asyncio.Future[Sequence[RecordProblem]]":
        checking.append(asyncio.get_running_loop().create_future())
        return checking[-1]

    node.event_checks.check_batch = check
    slow = node.start(asked((orders, batch(node, 2))), 12)
    node.event_checks.check_batch = lambda topic, view, header: ()
    quick = node.start(asked((orders, batch(node))), 12)
    (other,) = await produce(node, (users, batch(node)))
    assert other.base_offset == 0
    assert events_of(orders) == []
    checking[0].set_result(())
    assert [(await one).responses[0].partition_responses[0].base_offset for one in (slow, quick)] == [0, 2]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "stopping"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (RuntimeError("the worker is gone"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
    ids=["stopping", "broken"],
)
@in_loop
async def test_records_that_nobody_could_check_may_be_sent_again(
    node: QuietNode, failure: Exception, code: ErrorCode
) -> None:
    """INVALID_RECORD would make a producer drop them."""
    orders = await node.create_event_topic("orders")
    checking: asyncio.Future[Sequence[RecordProblem]] = asyncio.get_running_loop().create_future()
    node.event_checks.check_batch = lambda topic, view, header: checking
    waiting = node.start(asked((orders, batch(node))), 12)
    checking.set_exception(failure)
    (answer,) = (await waiting).responses[0].partition_responses
    assert (answer.error_code, answer.record_errors) == (code, [])
    assert events_of(orders) == []


@in_loop
async def test_transactional_batches_are_refused(node: QuietNode) -> None:
    orders = await node.create_event_topic("orders")
    records = [Record(None, b"1", node.clock.now_ms())]
    sent = build_batch(records, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    (answer,) = await produce(node, (orders, memoryview(sent)))
    assert answer.error_code == ErrorCode.INVALID_RECORD


@in_loop
async def test_the_shortcut_does_not_open_for_a_topic_of_the_event_store(node: QuietNode) -> None:
    orders = await node.create_event_topic("orders")
    template_cache, context = ProduceTemplateCache(), Context(node.services, FakePeer(), 12, "test", node.views)
    for _ in range(3):
        template_cache.update(context, memoryview(bytearray(100)), asked((orders, batch(node))), None)
        assert template_cache.answer(memoryview(bytearray(100))) is None


@in_loop
async def test_no_other_door_appends_to_a_topic_of_the_event_store(node: QuietNode) -> None:
    orders, sent = await node.create_event_topic("orders"), batch(node)
    with pytest.raises(KafkaError) as caught:
        orders.partitions[0].append(sent, check_batch(sent))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


# --- what is the server's own


@pytest.mark.parametrize("version", [4, 12, 13, 17])
@in_loop
async def test_the_journal_cannot_be_fetched(node: QuietNode, version: int) -> None:
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", 1)])
    journal = await node.topics.events_topic()
    wanted = FetchPartition(partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1000)
    topic = FetchTopic(topic=journal.name, topic_id=journal.topic_id, partitions=[wanted])
    answer = await node.ask(
        FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, session_epoch=0, topics=[topic]), version
    )
    (one,) = answer.responses[0].partitions
    assert (one.error_code, bytes(one.records)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
    if version >= 7 and answer.session_id:
        again = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1000, session_id=answer.session_id, session_epoch=1, topics=[]
        )
        answer = await node.ask(again, version)
        (one,) = answer.responses[0].partitions
        assert one.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@in_loop
async def test_the_journal_cannot_be_written_to_deleted_or_configured(node: QuietNode) -> None:
    await node.create_event_topic("orders")
    await node.event_store.publish([draft("orders", 1)])
    journal = await node.topics.events_topic()
    (answer,) = await produce(node, (journal, batch(node)))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    deletion = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="__events")], topic_names=["__events"], timeout_ms=1000
    )
    assert (await node.ask(deletion, 6)).responses[0].error_code != 0
    records = DeleteRecordsTopic(name="__events", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    answer = await node.ask(DeleteRecordsRequest(topics=[records], timeout_ms=1000), 2)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await altered(node, "__events", "retention.ms", "1") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(all_events(node.event_store, node.topics)) == 1


async def altered(node: QuietNode, topic: str, name: str, value: str) -> int:
    edit = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[edit])
    answer = await node.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    code: int = answer.responses[0].error_code
    return code


@in_loop
async def test_a_topic_is_of_the_event_store_for_ever_or_never(node: QuietNode) -> None:
    orders = await node.create_event_topic("orders")
    await node.create("plain")
    assert await altered(node, "orders", "kwire.events", "false") == ErrorCode.INVALID_CONFIG
    assert await altered(node, "plain", "kwire.events", "true") == ErrorCode.INVALID_CONFIG
    assert await altered(node, "orders", "cleanup.policy", "compact") == ErrorCode.INVALID_CONFIG
    assert await altered(node, "orders", "retention.ms", "5000") == 0
    assert orders.settings.is_event_topic
    wider = CreatePartitionsTopic(name="orders", count=2, assignments=None)
    request = CreatePartitionsRequest(topics=[wider], timeout_ms=1000, validate_only=False)
    assert (await node.ask(request, 3)).results[0].error_code == ErrorCode.INVALID_PARTITIONS
    config = CreatableTopicConfig(name="kwire.events", value="true")
    new = CreatableTopic(name="mine", num_partitions=1, replication_factor=1, assignments=[], configs=[config])
    creation = CreateTopicsRequest(topics=[new], timeout_ms=1000, validate_only=False)
    assert (await node.ask(creation, 7)).topics[0].error_code == ErrorCode.INVALID_CONFIG
