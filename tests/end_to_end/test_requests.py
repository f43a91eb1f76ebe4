"""Single requests on a bare socket: what each is answered, when, and in which order."""

import time
import uuid
from collections.abc import Iterator

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest

from tests.support.clients import Topics, read_values, unique_name
from tests.support.clients_raw import (
    EARLIEST,
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC,
    LATEST,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    RawConnection,
    batch,
    encode,
    fetch_request,
    fetched,
    list_offsets_request,
    metadata_request,
    produce_request,
    produced,
)
from tests.support.server import Broker, wait_until

# Far longer than any answer takes: a request that waits so long was not woken.
LONG_WAIT_MS = 60_000
SOON_S = 40.0
# How long a wait that must not end early is observed.
WATCH_S = 0.3


@pytest.fixture
def connection(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as opened:
        yield opened


@pytest.fixture
def other(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as opened:
        yield opened


def test_api_versions_lists_every_api_once(connection: RawConnection) -> None:
    for version in range(5):
        answer = connection.call(
            ApiVersionsRequest(client_software_name="raw", client_software_version="1"),
            min(version, ApiVersionsRequest.max_version),
        )
        assert answer.error_code == NONE
        ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        assert len(ranges) == len(answer.api_keys)
        assert ranges[0][0] == 0
        assert ranges[1][0] == 4
        assert ranges[18][0] == 0
        assert all(low <= high for low, high in ranges.values())


@pytest.mark.parametrize("version", [1, 4, 8, 9, 12, 13])
def test_metadata_answers_at_every_age_of_the_protocol(
    broker: Broker, topics: Topics, connection: RawConnection, version: int
) -> None:
    topic = topics.create(f"raw-metadata-{version}", partitions=2)
    answer = connection.call(metadata_request(topic), version)
    assert [(node.host, node.port) for node in answer.brokers] == [broker.address]
    (found,) = answer.topics
    assert (found.error_code, found.name, found.is_internal) == (NONE, topic, False)
    assert sorted(partition.partition_index for partition in found.partitions) == [0, 1]
    assert {partition.leader_id for partition in found.partitions} == {answer.brokers[0].node_id}


def test_metadata_creates_a_topic_only_when_allowed(connection: RawConnection) -> None:
    topic = unique_name("raw-auto")

    def error_of(allow: bool) -> int:
        return int(connection.call(metadata_request(topic, allow_auto_create=allow), 12).topics[0].error_code)

    assert error_of(False) == UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(False) == UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: error_of(True) == NONE, "the topic was created")
    assert len(connection.call(metadata_request(topic), 12).topics[0].partitions) == 1
    assert (
        connection.call(metadata_request("no/slash", allow_auto_create=True), 12).topics[0].error_code == INVALID_TOPIC
    )


@pytest.mark.parametrize("version", [3, 7, 8, 9, 11])
def test_produce_and_fetch_answer_at_every_age_of_the_protocol(
    topics: Topics, connection: RawConnection, version: int
) -> None:
    topic = topics.create(f"raw-produce-{version}")
    for expected in (0, 2):
        answer = produced(connection.call(produce_request(topic, batch(b"a", b"b")), version))
        assert (answer.error_code, answer.base_offset) == (NONE, expected)
    for fetch_version in (4, 7, 10, 11, 12):
        found = fetched(connection.call(fetch_request(topic, 0), fetch_version))
        assert (found.error_code, found.high_watermark) == (NONE, 4)
        assert len(bytes(found.records)) == 2 * len(batch(b"a", b"b"))


def test_acks_zero_is_not_answered_and_stored(broker: Broker, topics: Topics, connection: RawConnection) -> None:
    topic = topics.create("raw-acks")
    connection.send(produce_request(topic, batch(b"silent"), acks=0), 9)
    expected = connection.send(metadata_request(topic), 9)
    received, _ = connection.receive()
    assert received == expected
    for acks, offset in ((1, 1), (-1, 2)):
        answer = produced(connection.call(produce_request(topic, batch(str(acks).encode()), acks=acks), 9))
        assert (answer.error_code, answer.base_offset) == (NONE, offset)
    assert read_values(broker.bootstrap, topic) == [b"silent", b"1", b"-1"]
    assert (
        produced(connection.call(produce_request(topic, batch(b"no"), acks=2), 9)).error_code == INVALID_REQUIRED_ACKS
    )


def test_an_error_that_cannot_be_told_closes_the_connection(topics: Topics, connection: RawConnection) -> None:
    """With acks=0 there is no response to carry an error; the end of the connection makes the producer look again."""
    topic = topics.create("raw-acks-error")
    connection.send(produce_request(topic, batch(b"lost"), acks=0, partition=9), 9)
    assert connection.is_closed(SOON_S)


def test_errors_name_what_is_missing(topics: Topics, connection: RawConnection) -> None:
    topic = topics.create("raw-errors")
    assert (
        produced(connection.call(produce_request(topic, batch(b"x"), partition=9), 9)).error_code
        == UNKNOWN_TOPIC_OR_PARTITION
    )
    assert (
        produced(connection.call(produce_request("raw-missing", batch(b"x")), 9)).error_code
        == UNKNOWN_TOPIC_OR_PARTITION
    )
    assert fetched(connection.call(fetch_request("raw-missing", 0), 12)).error_code == UNKNOWN_TOPIC_OR_PARTITION
    for offset in (1, 10**12, -5):
        assert fetched(connection.call(fetch_request(topic, offset), 12)).error_code == OFFSET_OUT_OF_RANGE
    request = fetch_request(topic, 0)
    request.topics = [FetchRequest.FetchTopic(topic_id=uuid.uuid4(), partitions=request.topics[0].partitions)]
    assert fetched(connection.call(request, 13)).error_code == UNKNOWN_TOPIC_ID


def test_fetch_by_topic_id_finds_the_topic(topics: Topics, connection: RawConnection) -> None:
    topic = topics.create("raw-topic-id")
    connection.call(produce_request(topic, batch(b"x")), 9)
    topic_id = connection.call(metadata_request(topic), 12).topics[0].topic_id
    request = fetch_request(topic, 0)
    request.topics = [FetchRequest.FetchTopic(topic_id=topic_id, partitions=request.topics[0].partitions)]
    for version in range(13, min(FetchRequest.max_version, 17) + 1):
        answer = connection.call(request, version)
        assert answer.responses[0].topic_id == topic_id
        assert (fetched(answer).error_code, fetched(answer).high_watermark) == (NONE, 1)


def test_list_offsets_tells_both_ends(topics: Topics, connection: RawConnection) -> None:
    topic = topics.create("raw-offsets")
    connection.call(produce_request(topic, batch(b"a", b"b", b"c")), 9)
    for version in (1, 4, 6, 9):
        ends = [
            connection.call(list_offsets_request(topic, timestamp), version).topics[0].partitions[0].offset
            for timestamp in (EARLIEST, LATEST)
        ]
        assert ends == [0, 3]


def test_a_fetch_at_the_end_waits_as_long_as_it_was_told(topics: Topics, connection: RawConnection) -> None:
    topic = topics.create("raw-wait")
    connection.call(produce_request(topic, batch(b"x")), 9)
    started = time.monotonic()
    answer = connection.call(fetch_request(topic, 1, max_wait_ms=700), 12)
    assert time.monotonic() - started >= 0.65
    assert (fetched(answer).error_code, bytes(fetched(answer).records or b"")) == (NONE, b"")
    assert not fetched(connection.call(fetch_request(topic, 1, max_wait_ms=0), 12)).records
    # With data at hand nothing waits, and neither does a fetch that asks for nothing.
    started = time.monotonic()
    assert fetched(connection.call(fetch_request(topic, 0, max_wait_ms=LONG_WAIT_MS), 12)).records
    connection.call(fetch_request(topic, 1, max_wait_ms=LONG_WAIT_MS, min_bytes=0), 12)
    assert (
        fetched(connection.call(fetch_request(topic, 99, max_wait_ms=LONG_WAIT_MS), 12)).error_code
        == OFFSET_OUT_OF_RANGE
    )
    assert time.monotonic() - started < SOON_S


def test_a_waiting_fetch_is_woken_by_the_next_record(
    topics: Topics, connection: RawConnection, other: RawConnection
) -> None:
    topic = topics.create("raw-woken")
    connection.send(fetch_request(topic, 0, max_wait_ms=LONG_WAIT_MS), 12)
    assert not connection.has_data(WATCH_S)
    sent = batch(b"wake")
    other.call(produce_request(topic, sent), 9)
    _, answer = connection.receive(SOON_S)
    assert bytes(fetched(answer).records)[61:] == bytes(sent)[61:]
    assert fetched(answer).high_watermark == 1


def test_a_waiting_fetch_waits_for_its_least_bytes(
    topics: Topics, connection: RawConnection, other: RawConnection
) -> None:
    topic = topics.create("raw-min-bytes")
    connection.send(fetch_request(topic, 0, max_wait_ms=LONG_WAIT_MS, min_bytes=3_000), 12)
    other.call(produce_request(topic, batch(b"x" * 1_000)), 9)
    assert not connection.has_data(WATCH_S)
    other.call(produce_request(topic, batch(b"y" * 2_500)), 9)
    _, answer = connection.receive(SOON_S)
    assert len(bytes(fetched(answer).records)) >= 3_500


def test_a_fetch_gives_at_least_one_whole_batch_and_keeps_its_limits(topics: Topics, connection: RawConnection) -> None:
    topic = topics.create("raw-max-bytes")
    sent = batch(b"x" * 10_000)
    for _ in range(20):
        connection.call(produce_request(topic, sent), 9)
    for limits in ({"partition_max_bytes": 100}, {"max_bytes": 100}):
        records = bytes(fetched(connection.call(fetch_request(topic, 5, **limits), 12)).records)
        assert records[61 : len(sent)] == bytes(sent)[61:]
        assert int.from_bytes(records[:8]) == 5
        assert len(records) == len(sent)
    for limits in ({"partition_max_bytes": 35_000}, {"max_bytes": 35_000}):
        records = bytes(fetched(connection.call(fetch_request(topic, 0, **limits), 12)).records)
        assert 3 * len(sent) <= len(records) <= 35_000


def test_a_fetch_inside_a_batch_gives_the_whole_batch(topics: Topics, connection: RawConnection) -> None:
    topic = topics.create("raw-mid-batch")
    sent = batch(*(str(number).encode() for number in range(10)))
    connection.call(produce_request(topic, sent), 9)
    connection.call(produce_request(topic, sent), 9)
    records = bytes(fetched(connection.call(fetch_request(topic, 14, partition_max_bytes=1), 12)).records)
    assert int.from_bytes(records[:8]) == 10
    assert records[61:] == bytes(sent)[61:]


def test_pipelined_requests_are_answered_in_order_behind_a_waiting_fetch(
    topics: Topics, connection: RawConnection, other: RawConnection
) -> None:
    topic = topics.create("raw-pipeline")
    sent = [connection.send(fetch_request(topic, 0, max_wait_ms=LONG_WAIT_MS), 12)]
    sent += [connection.send(metadata_request(topic), version) for version in (1, 9, 12)]
    sent.append(connection.send(list_offsets_request(topic, LATEST), 4))
    assert not connection.has_data(WATCH_S)
    other.call(produce_request(topic, batch(b"wake")), 9)
    assert [connection.receive(SOON_S)[0] for _ in sent] == sent


def test_many_pipelined_produce_requests_keep_their_order(
    broker: Broker, topics: Topics, connection: RawConnection
) -> None:
    topic = topics.create("raw-pipelined-produce")
    values = [str(number).encode() for number in range(200)]
    sent = [connection.send(produce_request(topic, batch(value)), 9) for value in values]
    for number, correlation_id in enumerate(sent):
        received, answer = connection.receive()
        assert received == correlation_id
        assert (produced(answer).error_code, produced(answer).base_offset) == (NONE, number)
    assert read_values(broker.bootstrap, topic) == values


def test_a_request_may_arrive_byte_by_byte(connection: RawConnection) -> None:
    for byte in encode(metadata_request("nothing"), 1, correlation_id=77):
        connection.send_bytes(bytes([byte]))
    assert connection.receive_frame()[:4] == (77).to_bytes(4)
