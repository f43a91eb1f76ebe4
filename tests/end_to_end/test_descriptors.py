"""A server with few file descriptors: connections leave some to the log, and running out is an error that passes."""

import http.client
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.clients import Topics
from tests.support.clients_raw import NONE, RawConnection, batch, fetch_request, fetched, produce_request, produced
from tests.support.server import KwireProcess, wait_until

LIMIT = 200
CONNECTIONS = 250
PARTITIONS = 6
PRODUCE_VERSION = 9
FETCH_VERSION = 11
KAFKA_STORAGE_ERROR = 56
# Less than any server has open: from then on nothing can be opened.
NOTHING_TO_BE_HAD = 4
# Far above what a server of a test needs.
PLENTY = 2000


class LimitedProcess(KwireProcess):
    """A server that may open `limit` files, soft and hard."""

    def __init__(self, directory: Path, limit: int) -> None:
        super().__init__(directory)
        self._limit = limit

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={self._limit}:{self._limit}", *super().command()]


@pytest.fixture
def few(tmp_path: Path) -> Iterator[LimitedProcess]:
    process = LimitedProcess(tmp_path / "kwire", LIMIT)
    process.start()
    try:
        process.ready()
        yield process
    finally:
        process.kill()


@pytest.fixture
def many(tmp_path: Path) -> Iterator[LimitedProcess]:
    process = LimitedProcess(tmp_path / "kwire", PLENTY)
    process.start()
    try:
        process.ready()
        yield process
    finally:
        process.kill()


def is_open(client: socket.socket) -> bool:
    """Whether the server has kept a connection on which nothing was sent."""
    client.settimeout(0.05)
    try:
        return client.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def send(connection: RawConnection, topic: str, partition: int = 0) -> int:
    request = produce_request(topic, batch(b"value"), partition=partition)
    return int(produced(connection.call(request, PRODUCE_VERSION)).error_code)


def metric(connection: http.client.HTTPConnection, name: str) -> float:
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name) and line[len(name)] in " {"]
    assert values, f"there is no metric {name}"
    return sum(values)


def test_connections_are_refused_before_the_log_has_no_descriptor(few: LimitedProcess) -> None:
    topics = Topics(few.bootstrap)
    topic = topics.create("crowded", partitions=PARTITIONS)
    topics.close()
    with ExitStack() as stack:
        known = stack.enter_context(RawConnection(few.kafka_address))
        assert send(known, topic) == NONE
        watch = http.client.HTTPConnection("127.0.0.1", few.http_port, timeout=20)
        stack.callback(watch.close)
        assert metric(watch, "process_max_fds") == LIMIT
        ports = [few.kafka_address, ("127.0.0.1", few.http_port)]
        clients = [
            stack.enter_context(socket.create_connection(ports[number % 2], 20)) for number in range(CONNECTIONS)
        ]
        kept = sum(map(is_open, clients))
        print(f"{kept} of {CONNECTIONS} connections were kept")
        assert 0 < kept < CONNECTIONS
        assert metric(watch, "process_open_fds") <= LIMIT - metric(watch, "kwire_process_reserved_fds") + 20
        assert metric(watch, "kwire_server_descriptor_refusals_total") == CONNECTIONS - kept
        # The first write of a partition opens most: its folder is made, and synced with its names.
        assert [send(known, topic, partition) for partition in range(PARTITIONS)] == [NONE] * PARTITIONS

    def is_served() -> bool:
        """The server may see the new connection before the ends of the others."""
        try:
            with RawConnection(few.kafka_address) as again:
                return [send(again, topic, partition) for partition in range(PARTITIONS)] == [NONE] * PARTITIONS
        except ConnectionError:
            return False

    wait_until(is_served, "a new connection is admitted after the others have closed")
    noted = few.stderr_path.read_text()
    assert f"{LIMIT} descriptors may be open" in noted
    assert "are reserved for the log" in noted
    assert "kwire.log.open.max=2000 does not fit" in noted
    assert noted.count("refused connections") < CONNECTIONS - kept


def test_the_table_of_descriptors_does_not_grow_while_the_server_runs(many: LimitedProcess) -> None:
    """A larger table would stall the event loop, because the kernel waits before it replaces the table."""
    status = Path(f"/proc/{many.pid}/status").read_text()
    (size,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("FDSize:")]
    assert size >= PLENTY


def delay_count(server: KwireProcess) -> int:
    return server.stderr_path.read_text().count("cannot be synced yet")


def test_no_descriptor_is_an_error_that_passes(many: LimitedProcess) -> None:
    topics = Topics(many.bootstrap)
    known, fresh = topics.create("known"), topics.create("fresh")
    topics.close()
    with ExitStack() as stack:
        waiting = stack.enter_context(RawConnection(many.kafka_address))
        refused = stack.enter_context(RawConnection(many.kafka_address))
        watch = http.client.HTTPConnection("127.0.0.1", many.http_port, timeout=20)
        stack.callback(watch.close)
        assert send(waiting, known) == NONE
        assert send(refused, known) == NONE
        assert metric(watch, "kwire_storage_sync_delays_total") == 0
        resource.prlimit(many.pid, resource.RLIMIT_NOFILE, (NOTHING_TO_BE_HAD, PLENTY))
        # The record is in the log, but its sync needs a descriptor: the answer waits for it.
        waiting.send(produce_request(known, batch(b"value")), PRODUCE_VERSION)
        wait_until(lambda: delay_count(many) == 1, "the sync was put off")
        assert {send(refused, fresh) for _ in range(3)} == {KAFKA_STORAGE_ERROR}
        assert not waiting.has_data(0)
        assert metric(watch, "process_open_fds") == PLENTY
        resource.prlimit(many.pid, resource.RLIMIT_NOFILE, (PLENTY, PLENTY))
        _, answer = waiting.receive()
        assert produced(answer).error_code == NONE
        assert send(refused, fresh) == NONE
        assert send(refused, known) == NONE
        for topic, count in ((known, 4), (fresh, 1)):
            part = fetched(refused.call(fetch_request(topic, 0), FETCH_VERSION))
            assert (part.error_code, part.high_watermark) == (NONE, count)
        assert metric(watch, "kwire_storage_sync_delays_total") == 1
        assert metric(watch, "kwire_storage_refusing_logs") == 0
    many.kill()
    many.restart()
    with RawConnection(many.kafka_address) as again:
        assert fetched(again.call(fetch_request(known, 0), FETCH_VERSION)).high_watermark == 4


def test_a_partition_whose_first_sync_finds_no_descriptor_lives_on(many: LimitedProcess) -> None:
    """The append, which makes the folder, has its descriptors, and the sync of that folder has not."""
    topics = Topics(many.bootstrap)
    topic = topics.create("first", partitions=PARTITIONS)
    topics.close()

    def is_answered_or_delayed() -> bool:
        return connection.has_data(0) or delay_count(many) > before

    used = len(list(Path(f"/proc/{many.pid}/fd").iterdir()))
    with RawConnection(many.kafka_address) as connection:
        for partition in range(PARTITIONS):
            # One more descriptor in each round: the segment, its duplicate, the folder, the data directory.
            resource.prlimit(many.pid, resource.RLIMIT_NOFILE, (used + 1 + partition, PLENTY))
            before = delay_count(many)
            connection.send(produce_request(topic, batch(b"value"), partition=partition), PRODUCE_VERSION)
            wait_until(is_answered_or_delayed, "an answer, or a sync put off")
            resource.prlimit(many.pid, resource.RLIMIT_NOFILE, (PLENTY, PLENTY))
            code = produced(connection.receive()[1]).error_code
            print(f"{used + 1 + partition} descriptors: answered with {code}")
            assert code in (NONE, KAFKA_STORAGE_ERROR)
        assert [send(connection, topic, partition) for partition in range(PARTITIONS)] == [NONE] * PARTITIONS
