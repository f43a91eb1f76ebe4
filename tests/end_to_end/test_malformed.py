"""Input no client should send: each piece gets a clear error or a closed connection.

The server goes on, no larger than before.
"""

import contextlib
import random
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator

import crc32c
import pytest

from tests.end_to_end.seeds import announced_seed
from tests.support.clients import Topics
from tests.support.clients_abuse import spoil, valid_frames
from tests.support.clients_raw import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    LATEST,
    NONE,
    UNSUPPORTED_VERSION,
    RawConnection,
    batch,
    encode,
    frame,
    list_offsets_request,
    metadata_request,
    produce_request,
    produced,
)
from tests.support.server import Broker, KwireProcess

GROWTH_BYTES_MAX = 64 << 20
REQUEST_BYTES_MAX = 100 << 20
SLOW_CONNECTIONS = 200
SPOILT_FRAMES = 1_000
# So many spoilt connections stay open behind the newest, so that the server meets what it was sent.
OPEN_CONNECTIONS_MAX = 20
CLOSE_TIMEOUT_S = 40.0


class Victim:
    """The server under abuse, with the size it had before."""

    def __init__(self, broker: Broker) -> None:
        self.address = broker.address
        self.process = broker.process
        self.expect_alive()
        self.size_bytes = self.process.anonymous_memory_bytes() if self.process else 0

    def expect_alive(self) -> None:
        with RawConnection(self.address) as connection:
            answer = connection.call(metadata_request("nothing-here"), 9)
            assert len(answer.brokers) == 1

    def expect_unharmed(self) -> None:
        self.expect_alive()
        if self.process is not None:
            assert self.process.is_running
            growth_bytes = self.process.anonymous_memory_bytes() - self.size_bytes
            assert growth_bytes <= GROWTH_BYTES_MAX, f"grew by {growth_bytes >> 20} MiB"

    def expect_closed(self, data: bytes) -> None:
        with RawConnection(self.address) as connection:
            # The server may close before it has read everything.
            with contextlib.suppress(ConnectionError):
                connection.send_bytes(data)
            assert connection.is_closed(CLOSE_TIMEOUT_S), f"still open after {data[:64]!r}"


@pytest.fixture
def victim(broker: Broker) -> Iterator[Victim]:
    abused = Victim(broker)
    yield abused
    abused.expect_unharmed()


@pytest.mark.parametrize("size", [-1, -0x80000000, 0, 4, REQUEST_BYTES_MAX + 1, 0x7FFFFFFF])
def test_a_frame_of_impossible_length_closes_the_connection(victim: Victim, size: int) -> None:
    victim.expect_closed(struct.pack(">i", size) + b"\0" * 64)


def test_an_oversized_frame_is_not_read(victim: Victim) -> None:
    part = b"x" * (1 << 20)
    with RawConnection(victim.address) as connection, contextlib.suppress(ConnectionError):
        connection.send_bytes(struct.pack(">i", REQUEST_BYTES_MAX * 2))
        for _ in range(32):
            connection.send_bytes(part)
            victim.expect_unharmed()
        assert connection.is_closed(CLOSE_TIMEOUT_S)


def test_random_bytes_harm_nobody(victim: Victim) -> None:
    chance = random.Random(announced_seed())
    for _ in range(50):
        # Bytes that make an impossible length are answered by a close, perhaps before the second half of this is done.
        with RawConnection(victim.address) as connection, contextlib.suppress(OSError):
            connection.send_bytes(chance.randbytes(chance.randint(1, 4096)))
            connection.socket.shutdown(socket.SHUT_WR)
            connection.is_closed(0.1)


def test_another_protocol_closes_the_connection(victim: Victim) -> None:
    # Each begins with bytes that make a length far beyond any request.
    victim.expect_closed(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    victim.expect_closed(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64)
    victim.expect_closed(b"SSH-2.0-client\r\n")


LYING_REQUESTS = {
    "array longer than the frame": frame(3, 1, struct.pack(">i", 0x7FFFFFFF)),
    "array a little longer than the frame": frame(3, 1, struct.pack(">ih", 1_000_000, 1) + b"a"),
    "string longer than the frame": frame(3, 1, struct.pack(">ih", 1, 0x7FFF) + b"abc"),
    "string of length -2": frame(3, 1, struct.pack(">ih", 1, -2)),
    "compact array longer than the frame": frame(3, 12, b"\0\xff\xff\xff\xff\x0f"),
    "varint without an end": frame(3, 12, b"\0" + b"\xff" * 12),
    "tags of the header without an end": frame(3, 12, b"\xff\xff\xff\xff\x0f"),
    "client id longer than the frame": struct.pack(">ihhih", 10, 3, 1, 1, 0x7000),
    "produce to two thousand million topics": frame(0, 3, struct.pack(">hhii", -1, -1, 1000, 0x7FFFFFFF)),
    "records longer than the frame": frame(
        0, 3, struct.pack(">hhiihc", -1, -1, 1000, 1, 1, b"a") + struct.pack(">iii", 1, 0, 0x7FFFFFFF)
    ),
    "fetch of two thousand million topics": frame(1, 4, struct.pack(">iiiibi", -1, 0, 1, 1000, 0, 0x7FFFFFFF)),
    "body missing": frame(1, 4),
}


@pytest.mark.parametrize("case", LYING_REQUESTS)
def test_a_count_that_lies_closes_the_connection(victim: Victim, case: str) -> None:
    victim.expect_closed(LYING_REQUESTS[case])


def test_a_truncated_frame_waits_and_harms_nobody(victim: Victim) -> None:
    whole = encode(metadata_request("nothing-here"), 9)
    for end in range(1, len(whole)):
        with RawConnection(victim.address) as connection:
            connection.send_bytes(whole[:end])


@pytest.mark.parametrize(
    ("api_key", "version"), [(999, 0), (-1, 0), (3, 99), (3, -1), (1, 3), (1, 99), (0, 99), (4, 0)]
)
def test_an_api_or_version_not_served_closes_the_connection(victim: Victim, api_key: int, version: int) -> None:
    victim.expect_closed(frame(api_key, version, b"\0" * 32))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_in_a_version_only_advertised_is_refused(victim: Victim, topics: Topics, version: int) -> None:
    topic = topics.create("old-produce")
    with RawConnection(victim.address) as connection:
        # Advertised for the sake of old clients' version arithmetic, but never meant: an error or a closed connection.
        try:
            answer = connection.call(produce_request(topic, batch(b"x")), version)
        except ConnectionError:
            pass
        else:
            assert produced(answer).error_code == UNSUPPORTED_VERSION
    with RawConnection(victim.address) as connection:
        assert connection.call(list_offsets_request(topic, LATEST), 4).topics[0].partitions[0].offset == 0


@pytest.mark.parametrize("version", [99, 0x7FFF])
def test_a_version_of_api_versions_not_served_is_answered_with_the_range(victim: Victim, version: int) -> None:
    with RawConnection(victim.address) as connection:
        connection.send_bytes(frame(18, version, b"\0\7future\4" + b"1.0\0", correlation_id=5))
        answer = connection.receive_frame()
        # Encoded as version 0 whatever was asked: error, then the ranges known, this API among them.
        correlation_id, error, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, error) == (5, UNSUPPORTED_VERSION)
        assert len(answer) == 10 + 6 * count
        ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10:])}
        assert ranges[18][0] == 0
        assert ranges[18][1] >= 3
        # The connection stays open, and the client asks again in a version it has now learned of.
        connection.send_bytes(frame(18, 0, correlation_id=6))
        assert struct.unpack_from(">ih", connection.receive_frame()) == (6, NONE)


def _with_crc(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return data


def _bad_crc(data: bytearray) -> bytearray:
    data[17] ^= 0xFF
    return data


def _spoilt_value(data: bytearray) -> bytearray:
    data[-2] ^= 0xFF
    return data


def _wrong_count(data: bytearray) -> bytearray:
    struct.pack_into(">i", data, 57, 5)
    return _with_crc(data)


def _wrong_last_delta(data: bytearray) -> bytearray:
    struct.pack_into(">i", data, 23, 7)
    return _with_crc(data)


def _control(data: bytearray) -> bytearray:
    data[22] |= 0x20
    return _with_crc(data)


def _length(size: int) -> Callable[[bytearray], bytearray]:
    def change(data: bytearray) -> bytearray:
        struct.pack_into(">i", data, 8, size)
        return data

    return change


def _magic(magic: int) -> Callable[[bytearray], bytearray]:
    def change(data: bytearray) -> bytearray:
        data[16] = magic
        return data

    return change


BAD_BATCHES: dict[str, tuple[Callable[[bytearray], bytearray], set[int]]] = {
    "wrong CRC": (_bad_crc, {CORRUPT_MESSAGE}),
    "value changed after the CRC": (_spoilt_value, {CORRUPT_MESSAGE}),
    "count differs from the last offset": (_wrong_count, {INVALID_RECORD}),
    "last offset differs from the count": (_wrong_last_delta, {INVALID_RECORD}),
    "control batch": (_control, {INVALID_RECORD}),
    "format 1": (_magic(1), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "format 9": (_magic(9), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "negative length": (_length(-1), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "length beyond the records": (_length(1 << 30), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "length short of the header": (_length(10), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "cut short": (lambda data: data[:-3], {CORRUPT_MESSAGE, INVALID_RECORD}),
    "two batches": (lambda data: data + data, {CORRUPT_MESSAGE, INVALID_RECORD}),
    "nothing": (lambda data: bytearray(), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "zeros": (lambda data: bytearray(200), {CORRUPT_MESSAGE, INVALID_RECORD}),
}


def test_a_bad_batch_is_refused_and_nothing_of_it_stored(victim: Victim, topics: Topics) -> None:
    topic = topics.create("bad-batches")
    with RawConnection(victim.address) as connection:
        for case, (change, errors) in BAD_BATCHES.items():
            answer = produced(connection.call(produce_request(topic, change(batch(b"first", b"second"))), 9))
            assert answer.error_code in errors, f"{case}: {answer}"
        end = connection.call(list_offsets_request(topic, LATEST), 4).topics[0].partitions[0].offset
        assert end == 0
        assert produced(connection.call(produce_request(topic, batch(b"good")), 9)).base_offset == 0


def test_slow_connections_that_announce_much_cost_little(kwire: KwireProcess, victim: Victim) -> None:
    # Asks for our own process: Apache Kafka 4.3 sets the memory of every announced request aside and stops answering.
    slow = [RawConnection(victim.address) for _ in range(SLOW_CONNECTIONS)]
    try:
        for connection in slow:
            connection.send_bytes(struct.pack(">ihhi", REQUEST_BYTES_MAX - 1, 0, 9, 1))
        for _ in range(5):
            for connection in slow:
                with contextlib.suppress(ConnectionError):
                    connection.send_bytes(b"\0")
            victim.expect_unharmed()
    finally:
        for connection in slow:
            connection.close()


def test_spoilt_copies_of_valid_requests_harm_nobody(victim: Victim, topics: Topics) -> None:
    chance = random.Random(announced_seed())
    originals = valid_frames(topics.create("spoilt"))
    waiting: deque[RawConnection] = deque()
    try:
        for number in range(SPOILT_FRAMES):
            connection = RawConnection(victim.address)
            waiting.append(connection)
            with contextlib.suppress(ConnectionError):
                connection.send_bytes(spoil(chance.choice(originals), chance))
            if len(waiting) > OPEN_CONNECTIONS_MAX:
                waiting.popleft().close()
            if number % 100 == 99:
                victim.expect_unharmed()
    finally:
        for connection in waiting:
            connection.close()


def test_every_unspoilt_request_is_answered(victim: Victim, topics: Topics) -> None:
    """The other half of the test above: the originals are valid, so what it refused was refused for being spoilt."""
    for original in valid_frames(topics.create("unspoilt")):
        with RawConnection(victim.address) as connection:
            connection.send_bytes(original)
            assert struct.unpack_from(">i", connection.receive_frame()) == (1,), original
