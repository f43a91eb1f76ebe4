"""The table of rights on a server process: every served API, over every kind of connection.

Each entry of the table is sent over a plain connection, a TLS connection with a client certificate, and connections
with SASL with and without TLS, in the newest version. Each connection is open from the first request to the last, so
every right is given to and taken from an open connection. The states follow each other in an order in which a refused
request that had an effect would make the accepted one fail.
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kwire.access.acl import Acl, Operation, Permission, ResourceType
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.handlers.shared.context import Handler
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kwire.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.record_batch import Record, build_batch
from tests.support.access_cases import GROUP_REFUSED, TOPIC_REFUSED, TRANSACTIONAL_ID_REFUSED, Subject
from tests.support.acl_server import (
    KINDS,
    RECORD_COUNT,
    SECRET_VALUE,
    AclServer,
    Connection,
    running_acl_server,
)
from tests.support.acl_table import ENTRIES, Entry
from tests.support.clients import unique_name
from tests.support.group_access import (
    CLUSTER_ACTION,
    GROUP,
    OTHER_TOPIC,
    READ,
    TOPIC,
    WRITE,
    Right,
    World,
    codes,
    commit_request,
    find_request,
    group_right,
    prepare,
    topic_right,
    transaction_right,
)
from tests.support.group_access import (
    fetch_request as offsets_request,
)

# The states of a right in the order of the test. In the last one the right, which worked, is taken away.
STATES = ("no right", "right on another resource", "denied", "right", "right taken away")
ACCEPTED = "right"
# The time in which a fetch that waits is not answered. If the server is slower than that, the test still passes.
WAITING_S = 0.05

by_kind = pytest.mark.parametrize("kind", KINDS)
by_entry = pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name.replace(" ", "-") for entry in ENTRIES])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclServer]:
    with running_acl_server(tmp_path_factory.mktemp("acls")) as started:
        yield started


@pytest.fixture(scope="module")
def world(server: AclServer) -> World:
    """The groups and the transaction that requests name."""
    for key_type, name in ((0, GROUP), (1, "any")):
        assert codes(server.admin.call(find_request(key_type, name), 6)) == {ErrorCode.NONE}
    ids = {name: subject.topic_id for name, subject in server.create(TOPIC, OTHER_TOPIC).items()}

    async def ask(request: Any, version: int) -> Any:
        return server.admin.call(request, version)

    return asyncio.run(prepare(ids, ask))


# --- the table


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.api.name)
def test_every_right_of_every_api_has_an_entry(handler: Handler) -> None:
    entries = [entry for entry in ENTRIES if entry.key == handler.api.key]
    assert entries, "an API without an entry"
    if handler.needs:
        assert {entry.need for entry in entries} == set(handler.needs)
    else:
        assert all(entry.refusal is entry.accepted for entry in entries), "an API without needs refuses nothing"


def test_the_cases_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    count = len(ENTRIES) * len(STATES) * len(KINDS)
    with capsys.disabled():
        print(
            f"\nACL table: {count} cases: {len(HANDLERS)} APIs with {len(ENTRIES)} entries,"
            f" {len(STATES)} states of a right, {len(KINDS)} kinds of connections"
        )
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


class Subjects:
    """The topics of an entry. Each connection has topics of its own, and another one after a request used one up."""

    def __init__(self, server: AclServer, entry: Entry) -> None:
        self._entry = entry
        prefix = unique_name(re.sub("[^a-z0-9]+", "-", entry.name.lower())[:60])
        numbers = sorted({self._number(state) for state in STATES})
        self._names = {(kind, number): f"{prefix}-{kind}-{number}" for kind in KINDS for number in numbers}
        self._subjects = {name: Subject(name) for name in self._names.values()}
        if not entry.is_new:
            self._subjects = server.create(*self._names.values())

    def _number(self, state: str) -> int:
        """The number of the topic of a state."""
        at = STATES.index(state)
        if self._entry.is_always_done:
            return at
        return int(at > STATES.index(ACCEPTED) and not self._entry.is_repeatable)

    def of(self, kind: str, state: str) -> Subject:
        return self._subjects[self._names[kind, self._number(state)]]

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield each kind of connection with the name of each of its topics."""
        for (kind, _), name in self._names.items():
            yield kind, name


def acls_of(entry: Entry, state: str, subjects: Subjects) -> Iterator[Acl]:
    for kind, name in subjects.names():
        principal = KINDS[kind]
        for right in entry.given(name):
            yield right.acl(principal)
        if state == "right on another resource":
            yield entry.other_right(name).acl(principal)
        if state in ("right", "denied"):
            yield entry.right(name).acl(principal)
        if state == "denied":
            yield entry.right(name).acl(principal, permission=Permission.DENY)


@by_entry
def test_every_kind_of_connection_needs_the_right(server: AclServer, world: World, entry: Entry) -> None:
    """CVE-2026-58254 (NATS): connections of another kind skipped the check of permissions."""
    subjects = Subjects(server, entry)
    answers = 0
    for state in STATES:
        server.set_acls(acls_of(entry, state, subjects))
        for kind, connection in server.connections.items():
            request = entry.request(world, subjects.of(kind, state))
            answer = connection.answer(request, entry.version)
            code = ErrorCode(entry.code(answer.response))
            assert code is (entry.accepted if state == ACCEPTED else entry.refusal), (state, kind)
            assert state == ACCEPTED or SECRET_VALUE not in answer.body, (state, kind)
            answers += 1
    assert answers == len(STATES) * len(KINDS)


# --- rights that are taken away while something depends on them


class Session:
    """A fetch session: the first request names the topic, the later ones name none."""

    def __init__(self, connection: Connection, subject: Subject, version: int) -> None:
        self._connection = connection
        self._subject = subject
        self._version = version
        self._id = self._epoch = 0

    def request(self, max_wait_ms: int = 0) -> FetchRequest:
        one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        topic = FetchTopic(topic=self._subject.name, topic_id=self._subject.topic_id, partitions=[one])
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[] if self._epoch else [topic],
        )

    def fetch(self) -> tuple[int, bool]:
        """Return the error of the partition, and whether the response has records."""
        answer = self._connection.answer(self.request(), self._version)
        response = answer.response
        assert response.error_code == ErrorCode.NONE
        self._id, self._epoch = response.session_id, self._epoch + 1
        assert self._id, "no session"
        ((partition,),) = (topic.partitions for topic in response.responses)
        return partition.error_code, SECRET_VALUE in answer.body


@by_kind
@pytest.mark.parametrize("version", [12, HANDLERS[1].api.last_version])
def test_a_fetch_session_ends_with_the_right(server: AclServer, kind: str, version: int) -> None:
    (subject,) = server.create(unique_name("session")).values()
    right = topic_right(READ, subject.name)
    server.allow(right)
    session = Session(server.connections[kind], subject, version)
    for _ in range(3):
        assert session.fetch() == (ErrorCode.NONE, True)
    server.allow()
    for _ in range(2):
        assert session.fetch() == (TOPIC_REFUSED, False)
    server.allow(right)
    assert session.fetch() == (ErrorCode.NONE, True)
    server.allow(right, deny=[right])
    assert session.fetch() == (TOPIC_REFUSED, False)


@by_kind
def test_a_fetch_that_waits_returns_no_records_after_the_right_is_gone(server: AclServer, kind: str) -> None:
    (subject,) = server.create(unique_name("waiting")).values()
    server.allow(topic_right(READ, subject.name))
    one = FetchPartition(partition=0, fetch_offset=RECORD_COUNT, partition_max_bytes=1_000_000)
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(topic_id=subject.topic_id, partitions=[one])]
    )
    version = HANDLERS[1].api.last_version
    connection = server.connections[kind]
    connection.send(request, version)
    assert not connection.raw.has_data(WAITING_S), "the fetch must wait"
    server.allow()
    server.append(subject.name)
    answer = connection.receive(request, version)
    ((partition,),) = (topic.partitions for topic in answer.response.responses)
    assert (partition.error_code, SECRET_VALUE in answer.body) == (TOPIC_REFUSED, False)


def produce(subject: Subject, *batches: bytearray, transactional_id: str | None = None) -> ProduceRequest:
    parts = [PartitionProduceData(index=at, records=memoryview(batch)) for at, batch in enumerate(batches)]
    topic = TopicProduceData(name=subject.name, topic_id=subject.topic_id, partition_data=parts)
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[topic])


def end_offset(server: AclServer, name: str) -> int:
    one = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[one])])
    (topic,) = server.admin.call(request, 7).topics
    offset: int = topic.partitions[0].offset
    return offset


@by_kind
@pytest.mark.parametrize("version", [8, 11, HANDLERS[0].api.last_version])
def test_repeated_produce_requests_need_the_right(server: AclServer, kind: str, version: int) -> None:
    """The third request and those after it use the template, which looks no right up while nothing changes."""
    (subject,) = server.create(unique_name("repeated")).values()
    right = topic_right(WRITE, subject.name)
    connection = server.connections[kind]
    request = produce(subject, build_batch([Record(b"key", b"value", 0)]))

    def send(count: int) -> list[int]:
        responses = (connection.call(request, version) for _ in range(count))
        return [one.responses[0].partition_responses[0].error_code for one in responses]

    server.allow(right)
    assert send(4) == [ErrorCode.NONE] * 4
    server.allow()
    assert send(3) == [TOPIC_REFUSED] * 3
    assert end_offset(server, subject.name) == RECORD_COUNT + 4
    server.allow(right)
    assert send(4) == [ErrorCode.NONE] * 4
    server.allow(right, deny=[right])
    assert send(3) == [TOPIC_REFUSED] * 3
    assert end_offset(server, subject.name) == RECORD_COUNT + 8


@by_kind
@pytest.mark.parametrize("version", [8, HANDLERS[8].api.last_version])
def test_repeated_offset_commits_need_both_rights(server: AclServer, world: World, kind: str, version: int) -> None:
    """The third request and those after it use the template, which looks no right up while nothing changes."""
    group, topic = group_right(READ), topic_right(READ)
    connection = server.connections[kind]

    def commit(offset: int, count: int) -> list[set[ErrorCode]]:
        request = commit_request(world, version, TOPIC)
        request.topics[0].partitions[0].committed_offset = offset
        return [codes(connection.call(request, version)) for _ in range(count)]

    def committed() -> int:
        response = server.admin.call(offsets_request(world, TOPIC), 8)
        offset: int = response.groups[0].topics[0].partitions[0].committed_offset
        return offset

    for taken, left, refusal in ((group, topic, GROUP_REFUSED), (topic, group, TOPIC_REFUSED)):
        server.allow(group, topic)
        assert commit(7, 4) == [{ErrorCode.NONE}] * 4
        server.allow(left)
        assert commit(9, 3) == [{refusal}] * 3
        assert committed() == 7
        server.allow(group, topic, deny=[taken])
        assert commit(9, 3) == [{refusal}] * 3
        assert committed() == 7


# --- advisories


@by_kind
def test_a_client_cannot_act_as_a_replica(server: AclServer, kind: str) -> None:
    """CVE-2018-1288: a client that sent the id of a replica in a Fetch request could cause the loss of data."""
    (subject,) = server.create(unique_name("replica")).values()
    connection = server.connections[kind]
    # All rights on the topic do not make a replica. A broker has no rights on topics.
    every = Right(Operation.ALL, ResourceType.TOPIC, subject.name)
    expected = (every, TOPIC_REFUSED), (CLUSTER_ACTION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    one = FetchPartition(
        partition=0, fetch_offset=RECORD_COUNT, log_start_offset=RECORD_COUNT, partition_max_bytes=1000
    )
    topic = FetchTopic(topic=subject.name, topic_id=subject.topic_id, partitions=[one])
    for right, error in expected:
        server.allow(right)
        for version in (4, 12, 14, 15, HANDLERS[1].api.last_version):
            for replica_id in (0, 1, 2, 2**31 - 1):
                state = ReplicaState(replica_id=replica_id, replica_epoch=1)
                request = FetchRequest(
                    replica_id=replica_id, replica_state=state, max_wait_ms=0, min_bytes=0, topics=[topic]
                )
                assert codes(connection.call(request, version)) == {error}, (version, replica_id)
    # Nothing that the requests claimed about the log was believed.
    server.allow(every)
    assert Session(connection, subject, 12).fetch() == (ErrorCode.NONE, True)
    assert end_offset(server, subject.name) == RECORD_COUNT


def transactional_batch() -> bytearray:
    return build_batch(
        [Record(b"key", b"value", 0)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )


@by_kind
@pytest.mark.parametrize("version", [8, 11, HANDLERS[0].api.last_version])
def test_a_crafted_produce_request_needs_the_right_on_the_transactional_id(
    server: AclServer, kind: str, version: int
) -> None:
    """CVE-2018-17196: a crafted Produce request skipped the check of the transactional id.

    What counts is each batch. The id of the request may be missing, and the request may look like earlier ones.
    """
    (subject,) = server.create(unique_name("crafted")).values()
    connection = server.connections[kind]
    plain = build_batch([Record(b"key", b"value", 0)])

    def send(*batches: bytearray, transactional_id: str | None = None) -> list[int]:
        response = connection.call(produce(subject, *batches, transactional_id=transactional_id), version)
        return [one.error_code for one in response.responses[0].partition_responses]

    server.allow(topic_right(WRITE, subject.name), transaction_right(WRITE, "mine"))
    # A template exists after these.
    for _ in range(4):
        assert send(plain) == [ErrorCode.NONE]
    for _ in range(2):
        assert send(transactional_batch()) == [TRANSACTIONAL_ID_REFUSED]
        assert send(transactional_batch(), transactional_id="theirs") == [TRANSACTIONAL_ID_REFUSED]
        assert send(transactional_batch(), transactional_id="") == [TRANSACTIONAL_ID_REFUSED]
    # The first batch of a request says nothing about the others. Partition 1 does not exist.
    assert send(transactional_batch(), plain)[0] == TRANSACTIONAL_ID_REFUSED
    assert send(plain, transactional_batch(), transactional_id="theirs") == [TRANSACTIONAL_ID_REFUSED] * 2
    # With the right the request reaches the coordinator, which does not know the producer.
    assert send(transactional_batch(), transactional_id="mine") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert end_offset(server, subject.name) == RECORD_COUNT + 4
