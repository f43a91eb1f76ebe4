"""Produce: batches go in as they came, or each partition says why not."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import DropConnection
from kwire.wire.apis import PRODUCE
from kwire.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kwire.wire.types import ZERO_UUID, Buffer
from storage.batch.format import ATTRIBUTES_POSITION, CRC_POSITION, GZIP, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch
from tests.support.batches import headers, make_batch
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

SERVED = [version for version in PRODUCE.versions if version >= 3]
BY_NAME = [version for version in SERVED if version < 13]
ENDS = [3, 13]
ALL, ONE, NO_ACKS = -1, 1, 0


def request(
    topic: Topic | None, *batches: Buffer | None, acks: int = ALL, first: int = 0, name: str = ""
) -> ProduceRequest:
    """One batch for each partition from `first` on; every version takes what it needs, the name or the id."""
    data = TopicProduceData(
        name=topic.name if topic else name,
        topic_id=topic.topic_id if topic else b"\x01" * 16,
        partition_data=[PartitionProduceData(index=first + n, records=batch) for n, batch in enumerate(batches)],
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def batch(count: int = 1, **more: Any) -> memoryview:
    return make_batch(count, timestamp_ms=0, **more)


async def produce(node: QuietNode, asked: ProduceRequest, version: int) -> list[PartitionProduceResponse]:
    """The answers for the partitions of the one topic."""
    answer = await node.ask(asked, version)
    (topic,) = answer.responses
    (data,) = asked.topic_data
    assert topic.name == (data.name if version < 13 else "")
    assert topic.topic_id == (data.topic_id if version >= 13 else ZERO_UUID)
    assert [one.index for one in topic.partition_responses] == [one.index for one in data.partition_data]
    responses: list[PartitionProduceResponse] = topic.partition_responses
    return responses


async def refusal(node: QuietNode, asked: ProduceRequest, version: int) -> ErrorCode:
    """The code of the one partition; a message comes with it where the version carries one."""
    (one,) = await produce(node, asked, version)
    assert one.base_offset == -1
    assert one.log_append_time_ms == one.log_start_offset == -1
    assert one.error_message is None or version >= 8
    return ErrorCode(one.error_code)


@in_loop
async def test_batches_are_stored_as_they_came(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    for number, version in enumerate(SERVED):
        sent = [batch(3), batch(1)]
        first, second = await produce(node, request(topic, *sent, acks=ALL if number % 2 else ONE), version)
        assert (first.error_code, first.base_offset) == (ErrorCode.NONE, 3 * number)
        assert (second.error_code, second.base_offset) == (ErrorCode.NONE, number)
        assert first.log_append_time_ms == -1
        assert first.log_start_offset == (0 if version >= 5 else -1)
        assert first.error_message is None
        assert first.record_errors == []
        stored = topic.partitions[0].read(3 * number, 1000).view
        # Everything but offset and epoch is the producer's.
        assert stored[16:] == sent[0][16:]
        assert [header.base_offset for header in headers(stored)] == [3 * number]
    assert [one.high_watermark for one in topic.partitions] == [3 * len(SERVED), len(SERVED)]


@in_loop
async def test_versions_below_3_are_refused_partition_by_partition(node: QuietNode) -> None:
    topic = await node.create("t", 2)
    for version in (0, 1, 2):
        answers = await produce(node, request(topic, batch(), batch(), acks=ONE), version)
        assert [one.error_code for one in answers] == [ErrorCode.UNSUPPORTED_VERSION] * 2
        with pytest.raises(DropConnection):
            await node.ask(request(topic, batch(), acks=NO_ACKS), version)
    assert topic.partitions[0].log_end_offset == 0


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_acks_0_is_stored_and_not_answered(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    assert await node.ask(request(topic, batch(), acks=NO_ACKS), version) is None
    assert topic.partitions[0].high_watermark == 1


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_failure_with_acks_0_drops_the_connection(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    with pytest.raises(DropConnection):
        await node.ask(request(topic, batch(), b"", acks=NO_ACKS), version)
    # The partition before it keeps its batch: nobody was told otherwise.
    assert topic.partitions[0].high_watermark == 1
    with pytest.raises(DropConnection):
        await node.ask(request(None, batch(), acks=NO_ACKS, name="missing"), version)


@in_loop
async def test_other_acks_do_not_exist(node: QuietNode) -> None:
    topic = await node.create("t")
    for version in SERVED:
        for acks in (2, -2, 32767):
            assert await refusal(node, request(topic, batch(), acks=acks), version) is ErrorCode.INVALID_REQUIRED_ACKS
    assert topic.partitions[0].log_end_offset == 0


@in_loop
async def test_unknown_topics_and_partitions_are_told_apart(node: QuietNode) -> None:
    topic = await node.create("t")
    for version in SERVED:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID
        assert await refusal(node, request(None, batch(), name="missing"), version) is unknown
        for index in (1, -1, 2**31 - 1):
            asked = request(topic, batch(), first=index)
            assert await refusal(node, asked, version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_one_bad_partition_spoils_no_other(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 3)
    answers = await produce(node, request(topic, batch(), b"rubbish", batch()), version)
    assert [one.error_code for one in answers] == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    assert [one.high_watermark for one in topic.partitions] == [1, 0, 1]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_several_topics_are_answered_each(node: QuietNode, version: int) -> None:
    asked = request(await node.create("t"), batch())
    asked.topic_data += request(None, batch(), name="missing").topic_data
    asked.topic_data += request(await node.create("u"), batch(2)).topic_data
    answer = await node.ask(asked, version)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert [bool(code) for code in codes] == [False, True, False]


def bad_crc(data: bytearray) -> bytearray:
    data[CRC_POSITION] ^= 1
    return data


def attributes(bits: int) -> Callable[[bytearray], bytearray]:
    """A batch with these attribute bits and the right CRC."""

    def change(data: bytearray) -> bytearray:
        data[ATTRIBUTES_POSITION : ATTRIBUTES_POSITION + 2] = bits.to_bytes(2, "big")
        data[CRC_POSITION : CRC_POSITION + 4] = crc32c(data[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
        return data

    return change


def magic(number: int) -> Callable[[bytearray], bytearray]:
    def change(data: bytearray) -> bytearray:
        data[16] = number
        return data

    return change


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda data: bytearray(), ErrorCode.INVALID_RECORD),
        (lambda data: None, ErrorCode.INVALID_RECORD),
        (lambda data: data[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data[:20], ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data + data, ErrorCode.CORRUPT_MESSAGE),
        (bad_crc, ErrorCode.CORRUPT_MESSAGE),
        (magic(0), ErrorCode.INVALID_RECORD),
        (magic(1), ErrorCode.INVALID_RECORD),
        (magic(3), ErrorCode.INVALID_RECORD),
        (attributes(0x05), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (attributes(0x08), ErrorCode.INVALID_TIMESTAMP),
        (attributes(0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (attributes(0x20), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        *("empty", "null", "cut short", "cut in the header", "two batches", "wrong CRC"),
        *("format 0", "format 1", "format 3", "unknown codec", "append time", "transactional", "control"),
    ],
)
@in_loop
async def test_what_is_not_a_batch_is_refused(
    node: QuietNode, spoil: Callable[[bytearray], bytearray | None], code: ErrorCode
) -> None:
    topic = await node.create("t")
    for version in SERVED:
        assert await refusal(node, request(topic, spoil(bytearray(batch()))), version) is code
    assert topic.partitions[0].log_end_offset == 0


@pytest.mark.parametrize("compression", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@in_loop
async def test_codecs_are_taken_from_the_version_on_that_knows_them(node: QuietNode, compression: int) -> None:
    topic = await node.create("t")
    for version in SERVED:
        sent = batch(5, compression=compression)
        if compression == ZSTD and version < 7:
            assert await refusal(node, request(topic, sent), version) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        else:
            (one,) = await produce(node, request(topic, sent), version)
            assert one.error_code == ErrorCode.NONE
            assert topic.partitions[0].read(one.base_offset, 1).view[16:] == sent[16:]


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_repeated_batch_is_answered_with_its_first_offset(node: QuietNode, version: int) -> None:
    topic = await node.create("t")

    def numbered(sequence: int, epoch: int = 0) -> ProduceRequest:
        return request(topic, batch(2, producer_id=9, producer_epoch=epoch, base_sequence=sequence))

    for sequence in (0, 2, 4):
        (one,) = await produce(node, numbered(sequence), version)
        assert (one.error_code, one.base_offset) == (ErrorCode.NONE, sequence)
    (again,) = await produce(node, numbered(2), version)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 2)
    assert topic.partitions[0].high_watermark == 6
    assert await refusal(node, numbered(8), version) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    (newer,) = await produce(node, numbered(0, epoch=1), version)
    assert newer.base_offset == 6
    assert await refusal(node, numbered(6), version) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_log_append_time_is_told(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    await node.topics.configure(topic, {"message.timestamp.type": "LogAppendTime"})
    (one,) = await produce(node, request(topic, batch()), version)
    assert one.log_append_time_ms == node.clock.now_ms()


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_log_start_offset_is_where_the_log_begins(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    await produce(node, request(topic, batch(3)), version)
    log_of(topic.partitions[0]).advance_log_start_offset(2)
    (one,) = await produce(node, request(topic, batch()), version)
    assert (one.base_offset, one.log_start_offset) == (3, 2 if version >= 5 else -1)


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_bounds_of_the_topic_hold(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 1, max_message_bytes="100")
    large = make_batch(timestamp_ms=0, value=b"x" * 100)
    assert await refusal(node, request(topic, large), version) is ErrorCode.MESSAGE_TOO_LARGE
    future = make_batch(timestamp_ms=node.clock.now_ms() + 10**8)
    assert await refusal(node, request(topic, future), version) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_clients_cannot_write_to_internal_topics(node: QuietNode, version: int) -> None:
    topic = await node.topics.offsets_topic()
    assert await refusal(node, request(topic, batch()), version) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert topic.partitions[0].log_end_offset == 0


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_full_disk_is_an_error_that_may_be_tried_again(tmp_path: Path, version: int) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        topic = await node.create("t")
        files.break_down("pwrite", errno.ENOSPC)
        assert await refusal(node, request(topic, batch()), version) is ErrorCode.KAFKA_STORAGE_ERROR
        files.repair()
        (one,) = await produce(node, request(topic, batch()), version)
        assert (one.error_code, one.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_a_write_that_fails_is_tried_a_second_time(tmp_path: Path, version: int) -> None:
    """The first may have ended its segment in part: the log goes on in the next one, which may have room."""
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        topic = await node.create("t")
        await produce(node, request(topic, batch()), version)
        files.fail_next("pwrite", errno.ENOSPC)
        (one,) = await produce(node, request(topic, batch()), version)
        assert (one.error_code, one.base_offset) == (ErrorCode.NONE, 1)
        assert topic.partitions[0].high_watermark == 2


@pytest.mark.parametrize("version", BY_NAME[-1:])
@in_loop
async def test_error_comes_with_words(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    (one,) = await produce(node, request(topic, b"rubbish"), version)
    assert one.error_message


@pytest.mark.parametrize("version", ENDS)
@in_loop
async def test_keys_headers_and_nulls_go_through_untouched(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    sent = build_batch([Record(b"k", None, 0, [("h", None), ("i", b"\x00")]), Record(None, b"", 0)])
    check_batch(memoryview(sent))
    await produce(node, request(topic, sent), version)
    assert topic.partitions[0].read(0, 1000).view[16:] == sent[16:]
