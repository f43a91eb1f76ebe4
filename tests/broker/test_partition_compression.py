"""What `compression.type` and the bound on decompressed records do to a batch on its way into a partition."""

import random

import pytest
from msgspec.structs import replace

from kwire.broker.partition import Partition, code_of
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage import errors
from storage.batch.format import CREATE_TIME, GZIP, HEADER_BYTES, LOG_APPEND_TIME, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch, is_intact, parse_header, read_records
from storage.log.log import Appended
from tests.support.batches import headers, make_batch
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

CODECS = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
BUDGET_BYTES = 1024 * 1024
HOUR_MS = 60 * 60 * 1000


def append(partition: Partition, batch: memoryview) -> Appended:
    return partition.append(batch, check_batch(batch))


def stored(partition: Partition, offset: int = 0) -> memoryview:
    """The one batch at an offset."""
    return partition.read(offset, 1).view


def refusal(partition: Partition, batch: memoryview) -> ErrorCode:
    as_sent = bytes(batch)
    with pytest.raises((KafkaError, errors.StorageError)) as caught:
        append(partition, batch)
    assert partition.log_end_offset == 0
    assert partition.appended_bytes == 0
    assert bytes(batch) == as_sent  # whoever tries once more finds what was sent
    error = caught.value
    if isinstance(error, KafkaError):
        return error.code
    assert isinstance(error, errors.StorageError)
    return code_of(error)


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("source", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("target", CODECS)
@in_loop
async def test_batches_are_stored_in_the_codec_of_their_topic(node: QuietNode, source: int, target: str) -> None:
    partition = await node.create_partition(compression_type=target)
    append(partition, make_batch(2, timestamp_ms=0))
    records = [Record(b"k%d" % n, b"value" * n, 1000 + n, [("h", b"x"), ("n", None)]) for n in range(40)]
    batch = memoryview(build_batch(records, compression=source, producer_id=5, producer_epoch=1, base_sequence=0))
    told = append(partition, batch)
    assert (told.base_offset, told.last_offset, told.log_append_time_ms) == (2, 41, -1)
    view = stored(partition, 2)
    header = parse_header(view)
    assert is_intact(view)
    assert header.compression == CODECS[target]
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (2, 39, 40)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 0)
    assert (header.base_timestamp, header.max_timestamp, header.timestamp_type) == (1000, 1039, CREATE_TIME)
    assert header.partition_leader_epoch == partition.leader_epoch
    found = list(read_records(view, BUDGET_BYTES))
    assert [(one.key, one.value, one.timestamp_ms, list(one.headers)) for one in found] == [
        (one.key, one.value, one.timestamp_ms, list(one.headers)) for one in records
    ]
    assert [one.offset for one in found] == list(range(2, 42))
    assert partition.appended_bytes == log_of(partition).size_bytes
    # Sent again, it is known, whatever it was stored as.
    again = memoryview(build_batch(records, compression=source, producer_id=5, producer_epoch=1, base_sequence=0))
    assert append(partition, again) == Appended(2, 41, -1, True)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("is_named", [False, True])
@in_loop
async def test_a_batch_that_has_its_topics_codec_stays_as_it_is(node: QuietNode, codec: int, is_named: bool) -> None:
    name = next(name for name, number in CODECS.items() if number == codec)
    partition = await node.create_partition(compression_type=name if is_named else "producer")
    batch = make_batch(20, timestamp_ms=0, compression=codec)
    payload = bytes(batch[HEADER_BYTES:])
    append(partition, batch)
    assert stored(partition) == batch
    assert bytes(batch[HEADER_BYTES:]) == payload


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [("gzip", "1", "9"), ("lz4", "9", "12"), ("zstd", "-50", "19")],
    ids=["gzip", "lz4", "zstd"],
)
@in_loop
async def test_the_level_is_that_of_the_topic(node: QuietNode, codec: str, low: str, high: str) -> None:
    value = b" ".join(b"%d" % (number * 7919 % 10_007) for number in range(3_000))
    sizes = []
    for level in (low, high):
        topic = await node.create(f"level-{level}")
        await node.topics.configure(topic, {"compression.type": codec, f"compression.{codec}.level": level})
        append(topic.partitions[0], make_batch(timestamp_ms=0, value=value))
        sizes.append(len(stored(topic.partitions[0])))
    assert sizes[0] > sizes[1]


@in_loop
async def test_a_change_of_codec_counts_from_the_next_batch_on(node: QuietNode) -> None:
    topic = await node.create("t")
    partition = topic.partitions[0]
    for codec in ("producer", "zstd", "gzip", "uncompressed", "producer"):
        await node.topics.configure(topic, {"compression.type": codec})
        append(partition, make_batch(2, timestamp_ms=0, value=b"x" * 100, compression=LZ4))
    view = partition.read(0, BUDGET_BYTES).view
    assert [header.compression for header in headers(view)] == [LZ4, ZSTD, GZIP, NONE, LZ4]
    expected = bytes(view)
    node.restart()
    again = node.topics.get("t")
    assert again is not None
    assert bytes(again.partitions[0].read(0, BUDGET_BYTES).view) == expected


@in_loop
async def test_the_brokers_codec_is_that_of_topics_without_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    with QuietNode(tmp_path_factory.mktemp("node"), "compression.type=snappy") as node:
        partition = await node.create_partition()
        append(partition, make_batch(5, timestamp_ms=0))
        assert parse_header(stored(partition)).compression == SNAPPY


@in_loop
async def test_size_counts_before_and_after(node: QuietNode) -> None:
    """As in Kafka: what comes over the wire must fit, and so must what is stored."""
    value = b"0123456789" * 100
    small = make_batch(10, timestamp_ms=0, value=value, compression=GZIP)
    large = make_batch(10, timestamp_ms=0, value=value)
    assert len(small) < 1000 < len(large)
    limit = str(len(large) - 1)
    assert refusal(await node.create_partition("unfolded", max_message_bytes=limit, compression_type="uncompressed"),
                   small) is ErrorCode.MESSAGE_TOO_LARGE  # fmt: skip
    assert refusal(await node.create_partition("folded", max_message_bytes=limit, compression_type="gzip"),
                   large) is ErrorCode.MESSAGE_TOO_LARGE  # fmt: skip
    fits = await node.create_partition("fits", max_message_bytes=str(len(large)), compression_type="uncompressed")
    append(fits, small)
    assert len(stored(fits)) == len(large)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@in_loop
async def test_noise_that_grows_in_its_codec_may_become_too_large(node: QuietNode, codec: str) -> None:
    batch = make_batch(timestamp_ms=0, value=noise(5000))
    exact = await node.create_partition("exact", max_message_bytes=str(len(batch)), compression_type=codec)
    assert refusal(exact, batch) is ErrorCode.MESSAGE_TOO_LARGE
    roomy = await node.create_partition("roomy", max_message_bytes=str(len(batch) + 100), compression_type=codec)
    append(roomy, batch)
    assert len(stored(roomy)) > len(batch)


@pytest.mark.parametrize("target", CODECS)
@in_loop
async def test_a_bomb_is_too_large(node: QuietNode, target: str) -> None:
    for source in (GZIP, SNAPPY, LZ4, ZSTD):
        if CODECS[target] != source:
            partition = await node.create_partition(
                f"from-{source}", max_message_bytes="500000", compression_type=target
            )
            bomb = make_batch(timestamp_ms=0, value=bytes(4_000_000), compression=source)
            assert len(bomb) < 500_000
            assert refusal(partition, bomb) is ErrorCode.MESSAGE_TOO_LARGE


@in_loop
async def test_what_is_not_compressed_as_it_says_is_refused(node: QuietNode) -> None:
    partition = await node.create_partition(compression_type="zstd")
    batch = make_batch(3, timestamp_ms=0, compression=GZIP)
    broken = bytearray(batch)
    broken[HEADER_BYTES + 12] ^= 0xFF
    header = parse_header(batch)
    with pytest.raises(errors.DecompressionFailed):
        partition.append(memoryview(broken), header)
    lying = replace(header, record_count=4, last_offset_delta=3)
    with pytest.raises(errors.InvalidBatch):
        partition.append(batch, lying)
    assert partition.log_end_offset == 0


@in_loop
async def test_compacted_topics_look_for_keys_in_any_codec(node: QuietNode) -> None:
    partition = await node.create_partition(compression_type="lz4", cleanup_policy="compact")
    keyless = memoryview(build_batch([Record(b"key", b"", 0), Record(None, b"", 0)], compression=GZIP))
    assert refusal(partition, keyless) is ErrorCode.INVALID_RECORD
    append(partition, memoryview(build_batch([Record(b"key", None, 0)], compression=GZIP)))
    assert parse_header(stored(partition)).compression == LZ4


@in_loop
async def test_times_are_judged_in_any_codec(node: QuietNode) -> None:
    topic = await node.create("t")
    await node.topics.configure(topic, {"compression.type": "zstd", "message.timestamp.before.max.ms": "1000"})
    partition = topic.partitions[0]
    now_ms = node.clock.now_ms()
    mixed = [Record(None, b"", now_ms), Record(None, b"", now_ms - 1001)]
    assert refusal(partition, memoryview(build_batch(mixed, compression=GZIP))) is ErrorCode.INVALID_TIMESTAMP
    ahead = make_batch(timestamp_ms=now_ms + HOUR_MS + 1, compression=GZIP)
    assert refusal(partition, ahead) is ErrorCode.INVALID_TIMESTAMP
    append(partition, make_batch(timestamp_ms=now_ms, compression=GZIP))


@in_loop
async def test_append_time_goes_with_any_codec(node: QuietNode) -> None:
    topic = await node.create("t")
    await node.topics.configure(topic, {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"})
    partition = topic.partitions[0]
    now_ms = node.clock.now_ms()
    assert append(partition, make_batch(3, timestamp_ms=7)).log_append_time_ms == now_ms
    view = stored(partition)
    assert is_intact(view)
    assert (parse_header(view).compression, parse_header(view).timestamp_type) == (GZIP, LOG_APPEND_TIME)
    assert {record.timestamp_ms for record in read_records(view, BUDGET_BYTES)} == {now_ms}


@in_loop
async def test_control_batches_keep_their_codec(node: QuietNode) -> None:
    partition = await node.create_partition(compression_type="zstd")
    marker = memoryview(
        build_batch([Record(b"\0\0\0\1", bytes(6), 0)], is_control=True, is_transactional=True, producer_id=3,
                    producer_epoch=0)
    )  # fmt: skip
    partition.append(marker, parse_header(marker))
    assert parse_header(stored(partition)).compression == NONE


@pytest.mark.parametrize("codec", ["producer", "gzip", "zstd", "uncompressed"])
@in_loop
async def test_the_bound_on_one_decompressed_record_holds(node: QuietNode, codec: str) -> None:
    """As in Kafka: judged where a batch comes compressed, whatever it is stored as."""
    partition = await node.create_partition(compression_type=codec, max_decompressed_message_bytes="500")

    def sent(size: int, compression: int) -> memoryview:
        return make_batch(3, timestamp_ms=0, value=bytes(size), compression=compression)

    assert refusal(partition, sent(600, GZIP)) is ErrorCode.INVALID_RECORD
    append(partition, sent(400, GZIP))
    append(partition, sent(600, NONE))
    assert partition.log_end_offset == 6


@pytest.mark.parametrize("replicas", ["1", "2", "100"])
@in_loop
async def test_no_more_copies_are_waited_for_than_there_are(node: QuietNode, replicas: str) -> None:
    """As in Kafka, where min.insync.replicas counts up to the number of replicas."""
    topic = await node.create("t", 1, min_insync_replicas=replicas)
    data = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=0, records=make_batch(timestamp_ms=0))]
    )
    answer = await node.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert topic.partitions[0].high_watermark == 1


@pytest.mark.parametrize("config", [{"cleanup_policy": "compact"}, {"compression_type": "lz4"}], ids=str)
@in_loop
async def test_a_small_batch_of_millions_of_records_is_refused_unopened(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch, config: dict[str, str]
) -> None:
    monkeypatch.setattr("kwire.broker.batch_validation.RECORDS_VALIDATED_MAX", 1000)
    partition = await node.create_partition(**config)
    many = memoryview(build_batch([Record(b"k", None, 0)] * 1001, compression=ZSTD))
    assert refusal(partition, many) is ErrorCode.MESSAGE_TOO_LARGE
    append(partition, memoryview(build_batch([Record(b"k", None, 0)] * 1000, compression=ZSTD)))
