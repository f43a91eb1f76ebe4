"""The shortcut for repeated Produce requests: the same answers and the same log as the general way, or no answer."""

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.errors import ErrorCode
from kwire.handlers import produce
from kwire.handlers.context import Context
from kwire.handlers.repeated_produce import FIRST_VERSION, RepeatedProduce
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages import PRODUCE
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from storage.batch import Record, build_batch
from storage.format import GZIP, NONE, ZSTD
from tests.support.faulty_files import FaultyFiles
from tests.support.node import FakePeer, QuietNode, in_loop

VERSIONS = [version for version in PRODUCE.versions if version >= FIRST_VERSION]


class Producer:
    """One connection: requests take the shortcut where it opens, as in the server."""

    def __init__(self, node: QuietNode, version: int) -> None:
        self.shortcut = RepeatedProduce()
        self.taken = 0
        self._context = Context(node.services, FakePeer(), version, "test")

    def send(self, request: ProduceRequest) -> bytes | None:
        version = self._context.api_version
        body = memoryview(bytearray(encode_message(request, version)))
        answer = self.shortcut.answer(version, body)
        if answer is not None:
            self.taken += 1
            return answer
        asked = decode_message(ProduceRequest, version, body)
        general = produce.handle(self._context, asked)
        if general is None:
            return None
        self.shortcut.learn(self._context, body, asked, general)
        return encode_message(general, version)


def request(name: str, topic_id: bytes, index: int, batch: memoryview, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=batch)
    return ProduceRequest(
        acks=acks, timeout_ms=5, topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])]
    )


def batch(count: int = 1, **more: Any) -> memoryview:
    return memoryview(build_batch([Record(b"key", b"value", 0)] * count, **more))


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


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 0, 0, 1]),  # partition
            st.integers(1, 200),  # records, so that the length of the batch takes one byte or more
            st.sampled_from([NONE, NONE, GZIP, ZSTD]),
            st.sampled_from([-1, -1, 1, 0]),  # acks
            st.sampled_from(["sound", "sound", "sound", "bad crc", "transactional"]),
        ),
        max_size=25,
    )
)
@in_loop
async def test_shortcut_and_general_way_cannot_be_told_apart(
    tmp_path_factory: pytest.TempPathFactory, version: int, sends: list[tuple[int, int, int, int, str]]
) -> None:
    with QuietNode(tmp_path_factory.mktemp("node")) as node:
        quick, slow = await node.create("quick", 2), await node.create("slow", 2)
        producer, plain = Producer(node, version), Context(node.services, FakePeer(), version, "test")
        for index, count, codec, acks, fault in sends:
            made = batch(count, compression=codec, is_transactional=fault == "transactional")
            if fault == "bad crc":
                made[-1] ^= 1
            if fault != "sound":
                acks = acks or 1  # with acks=0 an error drops the connection, which is not this test's matter
            twin = memoryview(bytearray(made))
            answered = producer.send(request("quick", quick.topic_id, index, made, acks))
            body = memoryview(bytearray(encode_message(request("slow", slow.topic_id, index, twin, acks), version)))
            expected = produce.handle(plain, decode_message(ProduceRequest, version, body))
            if expected is None:
                assert answered is None
                continue
            expected.responses[0].name, expected.responses[0].topic_id = "quick", quick.topic_id
            assert answered == encode_message(expected, version)
        for one, other in zip(quick.partitions, slow.partitions, strict=True):
            assert one.high_watermark == other.high_watermark
            assert one.read(0, 10**9).view == other.read(0, 10**9).view


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
async def test_a_connection_that_writes_here_and_there_is_not_learned(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t", 2)
        producer = Producer(node, 9)
        for number in range(6):
            producer.send(request("t", topic.topic_id, number % 2, batch()))
        assert producer.taken == 0


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
@in_loop
async def test_bytes_that_lie_about_the_batch_are_left_to_the_general_way(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path) as node:
        topic = await node.create("t")
        producer = Producer(node, version)
        for _ in range(3):
            producer.send(request("t", topic.topic_id, 0, batch()))
        sound = encode_message(request("t", topic.topic_id, 0, batch()), version)
        for cut in range(len(sound)):
            assert producer.shortcut.answer(version, memoryview(bytearray(sound[:cut]))) is None
        for place in range(len(sound)):
            for wrong in (0x00, 0x7F, 0xFF):
                spoiled = bytearray(sound)
                if spoiled[place] != wrong:
                    spoiled[place] = wrong
                    before = topic.partitions[0].high_watermark
                    if producer.shortcut.answer(version, memoryview(spoiled)) is None:
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
        (one,) = decode_message(ProduceResponse, 9, answer).responses[0].partition_responses
        assert one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        files.repair()
        producer.send(request("t", topic.topic_id, 0, batch()))
        assert topic.partitions[0].high_watermark == 4
