"""The template for repeated Produce requests: the same answers and the same log as the general way, or no answer."""

import errno
import struct
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.errors import ErrorCode
from kwire.handlers import produce
from kwire.handlers.produce.template import FIRST_VERSION, PACKINGS_MAX, ProduceTemplateCache
from kwire.handlers.shared.context import Context
from kwire.wire.apis import APIS, PRODUCE
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.connection import ServerConnection
from kwire.wire.frame import ReceiveMemory
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from storage.batch.format import GZIP, NONE, ZSTD
from storage.batch.record_batch import Record, build_batch
from tests.support.effort import examples
from tests.support.faulty_files import FaultyFiles
from tests.support.node import FakePeer, QuietNode, in_loop

VERSIONS = [version for version in PRODUCE.versions if version >= FIRST_VERSION]


class Producer:
    """One connection: requests that fit the template use it, as in the server."""

    def __init__(self, node: QuietNode, version: int, *, has_shortcut: bool = True) -> None:
        self.template_cache = ProduceTemplateCache()
        self.taken = 0
        self._uses_template = has_shortcut
        self._numbers = count()
        self._machine = ServerConnection(APIS, ReceiveMemory(1 << 30), 1 << 30)
        self._context = Context(node.services, FakePeer(), version, "test", node.views)

    def frame(self, request: ProduceRequest) -> memoryview:
        version = self._context.api_version
        head = struct.pack(">hhih4s", PRODUCE.key, version, next(self._numbers), 4, b"test")
        tags = bytes(version >= PRODUCE.first_flexible)
        return memoryview(bytearray(head + tags + encode_message(request, version)))

    def send(self, request: ProduceRequest) -> bytes | None:
        """The answer as it leaves, framed."""
        frame = self.frame(request)
        answer = self.template_cache.answer(frame) if self._uses_template else None
        if answer is not None:
            self.taken += 1
            assert isinstance(answer, bytes)  # syncs are over at once here
            return answer
        opened = self._machine.open(frame)
        assert opened.body is not None
        asked = decode_message(ProduceRequest, opened.version, opened.body)
        general = produce.handle(self._context, asked)
        if general is None:
            return None
        assert isinstance(general, ProduceResponse)
        self.template_cache.update(self._context, frame, asked, general)
        return b"".join(self._machine.answer_now(opened, [encode_message(general, opened.version)]))


def request(name: str, topic_id: bytes, index: int, batch: memoryview, acks: int = -1) -> ProduceRequest:
    return request_of(name, topic_id, [(index, batch)], acks)


def request_of(name: str, topic_id: bytes, parts: Sequence[tuple[int, memoryview]], acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index, batch in parts]
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=5, topic_data=[topic])


def batch(records: int = 1, **more: Any) -> memoryview:
    return memoryview(build_batch([Record(b"key", b"value", 0)] * records, **more))


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_the_third_request_of_a_kind_takes_the_shortcut(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 2)
        producer = Producer(node, version)
        for _ in range(5):
            producer.send(request("t", topic.topic_id, 1, batch(3)))
        assert producer.taken == 3
        assert topic.partitions[1].high_watermark == 15


@in_loop
async def test_many_partitions_at_once_are_answered_and_little_is_remembered_of_it(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", PACKINGS_MAX + 4)
        producer, twin = Producer(node, 12), Producer(node, 12, has_shortcut=False)
        for size in (1, 1, *range(1, PACKINGS_MAX + 5)):
            parts = [(index, batch()) for index in range(size)]
            answered = producer.send(request_of("t", topic.topic_id, parts))
            expected = twin.send(request_of("t", topic.topic_id, [(index, batch()) for index in range(size)]))
            assert answered is not None
            assert expected is not None
            assert len(answered) == len(expected)
        assert producer.taken == PACKINGS_MAX + 4
        template = producer.template_cache._template
        assert template is not None
        assert len(template._packings) == PACKINGS_MAX
        assert [one.high_watermark for one in topic.partitions][-1] == 2


PART = st.tuples(
    st.sampled_from([0, 0, 1, 2, 3]),  # partition; the last one does not exist
    st.integers(1, 200),  # records, so that the length of the batch takes one byte or more
    st.sampled_from([NONE, NONE, GZIP, ZSTD]),
    st.sampled_from(["sound", "sound", "sound", "sound", "bad crc", "transactional", "out of order", "too large"]),
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(25))
@given(
    st.lists(
        st.tuples(st.lists(PART, min_size=1, max_size=4), st.sampled_from([-1, -1, -1, 1, 0])), min_size=3, max_size=20
    )
)
@in_loop
async def test_shortcut_and_general_way_cannot_be_told_apart(
    tmp_path_factory: pytest.TempPathFactory,
    version: int,
    sends: list[tuple[list[tuple[int, int, int, str]], int]],
) -> None:
    with QuietNode(tmp_path_factory.mktemp("node")) as node:
        # The names are equally long, so the answers differ in nothing but the name or the id.
        quick, plain = await node.create("quick", 3), await node.create("plain", 3)
        producer, twin = Producer(node, version), Producer(node, version, has_shortcut=False)
        for asked, acks in sends:
            parts = [(index, made(records, codec, fault)) for index, records, codec, fault in asked]
            if any(index == 3 or fault != "sound" for index, _, _, fault in asked):
                acks = acks or 1  # with acks=0 an error drops the connection, which is not this test's matter
            copies = [(index, memoryview(bytearray(batch))) for index, batch in parts]
            answered = producer.send(request_of("quick", quick.topic_id, parts, acks))
            expected = twin.send(request_of("plain", plain.topic_id, copies, acks))
            if expected is not None:
                expected = expected.replace(b"plain", b"quick").replace(plain.topic_id, quick.topic_id)
            assert answered == expected
        for one, other in zip(quick.partitions, plain.partitions, strict=True):
            assert one.high_watermark == other.high_watermark
            assert one.read(0, 10**9).view == other.read(0, 10**9).view


def made(records: int, codec: int, fault: str) -> memoryview:
    more: dict[str, Any] = {"is_transactional": True} if fault == "transactional" else {}
    if fault == "out of order":
        more = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 77}
        # The first batch of a producer may have any number; the same one with another length does not follow it.
        records = 1 + records % 2
    value = bytes(2_000_000) if fault == "too large" else b"value"
    batch = memoryview(build_batch([Record(b"key", value, 0)] * (1 if fault == "too large" else records), **more))
    if fault == "bad crc":
        batch[-1] ^= 1
    return batch


@in_loop
async def test_batch_that_fails_behind_one_that_is_stored_is_answered_with_its_own_error(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 2)
        producer = Producer(node, 13)
        for _ in range(2):
            producer.send(request_of("t", topic.topic_id, [(0, batch()), (1, batch())]))
        large = memoryview(build_batch([Record(b"key", bytes(2_000_000), 0)]))
        answer = producer.send(request_of("t", topic.topic_id, [(0, batch()), (1, large)]))
        assert producer.taken == 1
        assert answer is not None
        one, other = decode_message(ProduceResponse, 13, answer[9:]).responses[0].partition_responses
        assert (one.error_code, one.base_offset) == (ErrorCode.NONE, 2)
        assert (other.error_code, other.base_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
        assert other.error_message is not None
        assert [partition.high_watermark for partition in topic.partitions] == [3, 2]


@in_loop
async def test_a_deleted_topic_closes_the_shortcut(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        producer = Producer(node, 9)
        for _ in range(3):
            producer.send(request("t", topic.topic_id, 0, batch()))
        assert producer.taken == 1
        await node.topics.delete(topic)
        again = await node.create("t")
        producer.send(request("t", topic.topic_id, 0, batch()))
        assert producer.taken == 1
        assert again.partitions[0].high_watermark == 1


@in_loop
async def test_a_template_is_dropped_when_what_it_assumed_has_changed(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        producer = Producer(node, 9)
        for _ in range(3):
            producer.send(request("t", topic.topic_id, 0, batch()))
        await node.topics.configure(topic, {"message.timestamp.type": "LogAppendTime"})
        assert producer.template_cache.answer(producer.frame(request("t", topic.topic_id, 0, batch()))) is None
        assert producer.template_cache._template is None
        for _ in range(3):
            producer.send(request("t", topic.topic_id, 0, batch()))
        # The first of these was decoded, and made the next template.
        assert producer.taken == 3
        answer = producer.send(request("t", topic.topic_id, 0, batch()))
        assert answer is not None
        (one,) = decode_message(ProduceResponse, 9, answer[9:]).responses[0].partition_responses
        assert (one.base_offset, one.log_append_time_ms) == (6, node.clock.now_ms())


@in_loop
async def test_a_connection_that_writes_here_and_there_is_not_learned(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topics = [await node.create("t"), await node.create("u")]
        producer = Producer(node, 9)
        for number in range(6):
            topic = topics[number % 2]
            producer.send(request(topic.name, topic.topic_id, 0, batch()))
        assert producer.taken == 0


@in_loop
async def test_other_partitions_of_the_topic_take_the_shortcut_too(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 5)
        producer = Producer(node, 9)
        for number in range(6):
            parts = [(index, batch()) for index in range(number % 5 + 1)]
            producer.send(request_of("t", topic.topic_id, parts))
        assert producer.taken == 4
        assert [one.high_watermark for one in topic.partitions] == [6, 4, 3, 2, 1]


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
@in_loop
async def test_bytes_that_lie_about_the_batch_are_left_to_the_general_way(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        producer = Producer(node, version)
        for _ in range(3):
            producer.send(request("t", topic.topic_id, 0, batch()))
        sound = bytes(producer.frame(request("t", topic.topic_id, 0, batch())))
        for cut in range(len(sound)):
            assert producer.template_cache.answer(memoryview(bytearray(sound[:cut]))) is None
        for place in range(len(sound)):
            for wrong in (0x00, 0x7F, 0xFF):
                spoiled = bytearray(sound)
                if spoiled[place] != wrong:
                    spoiled[place] = wrong
                    before = topic.partitions[0].high_watermark
                    if producer.template_cache.answer(memoryview(spoiled)) is None:
                        assert topic.partitions[0].high_watermark == before


@pytest.mark.parametrize("settings_of_topic", [{}, {"message.timestamp.type": "LogAppendTime"}])
@in_loop
async def test_full_disk_is_the_same_error_as_on_the_general_way(
    tmp_path: Path, settings_of_topic: dict[str, str]
) -> None:
    """Whatever a failed attempt did to the batch must not make the next look at it a different error."""
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        topic = await node.create("t")
        await node.topics.configure(topic, settings_of_topic)
        producer = Producer(node, 9)
        for _ in range(3):
            producer.send(request("t", topic.topic_id, 0, batch()))
        files.break_down("pwrite", errno.ENOSPC)
        answer = producer.send(request("t", topic.topic_id, 0, batch()))
        assert answer is not None
        body = answer[4 + 4 + 1 :]  # behind size, correlation id and tags
        (one,) = decode_message(ProduceResponse, 9, body).responses[0].partition_responses
        assert one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        files.repair()
        producer.send(request("t", topic.topic_id, 0, batch()))
        assert topic.partitions[0].high_watermark == 4


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_a_batch_of_many_bytes_takes_the_shortcut(tmp_path: Path, version: int) -> None:
    """The length of one beyond 2 MiB takes four bytes in flexible versions."""
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", max_message_bytes=str(4 * 1024 * 1024))
        producer = Producer(node, version)
        for size in (10, 10, 3 * 1024 * 1024, 300, 20_000):
            large = memoryview(build_batch([Record(None, bytes(size), 0)]))
            producer.send(request("t", topic.topic_id, 0, large))
        assert producer.taken == 3
        assert topic.partitions[0].high_watermark == 5


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_a_partition_below_zero_does_not_count_from_the_end(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 2)
        producer = Producer(node, version)
        for _ in range(2):
            producer.send(request("t", topic.topic_id, 1, batch()))
        for index in (-1, -(2**31), 2):
            assert producer.template_cache.answer(producer.frame(request("t", topic.topic_id, index, batch()))) is None
        assert topic.partitions[1].high_watermark == 2


@pytest.mark.parametrize("version", [version for version in VERSIONS if version < PRODUCE.first_flexible])
@in_loop
async def test_a_length_that_does_not_fit_is_refused(tmp_path: Path, version: int) -> None:
    """Also where the bytes that are there make a whole batch."""
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        producer = Producer(node, version)
        for _ in range(2):
            producer.send(request("t", topic.topic_id, 0, batch()))
        size = len(batch())
        for length in (-size, -1, 0, size - 1, size + 1, 2**31 - 1):
            frame = producer.frame(request("t", topic.topic_id, 0, batch()))
            struct.pack_into(">i", frame, len(frame) - size - 4, length)
            assert producer.template_cache.answer(frame) is None
        assert topic.partitions[0].high_watermark == 2
