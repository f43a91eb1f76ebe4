"""Fetch sessions as a reader sees them: it names what it changes, is told what has changed, and misses nothing.

The last test is the measure of all: a reader with a session always knows what one without would be told.
"""

import asyncio
import inspect
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.broker.fetch.sessions import FetchSession
from kwire.broker.partition import Partition
from kwire.broker.topics.names import NAME_LENGTH_MAX
from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode
from kwire.wire.apis import FETCH
from kwire.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kwire.wire.types import ZERO_UUID
from storage.batch.record_batch import check_batch
from tests.support.batches import headers, make_batch
from tests.support.effort import examples
from tests.support.node import QuietNode, in_loop, received
from tests.support.partition_log import log_of

SESSION_VERSIONS = [version for version in FETCH.versions if version >= 7]
# With names and with ids, and both ends.
SOME_VERSIONS = [7, 12, 13, 18]
LONG_MS = 600_000
LARGE = 2**31 - 1

in_session_versions = pytest.mark.parametrize("version", SESSION_VERSIONS)
in_some_versions = pytest.mark.parametrize("version", SOME_VERSIONS)


class Place(NamedTuple):
    """A partition as a request names it: the name counts before version 13, the id since."""

    name: str
    topic_id: bytes
    partition: int


def places(topic: Topic, *indexes: int) -> list[Place]:
    return [Place(topic.name, topic.topic_id, index) for index in indexes or range(len(topic.partitions))]


class Reader:
    """A client with a session: it remembers what it wants from where, and sends only what it changed."""

    def __init__(self, node: QuietNode, version: int, **more: Any) -> None:
        self.node = node
        self.version = version
        self.session_id, self.epoch = 0, 0
        self.wanted: dict[Place, int] = {}
        self._changed: dict[Place, int] = {}
        self._forgotten: list[Place] = []
        self._more = {"max_wait_ms": 0, "min_bytes": 1, **more}
        self.max_bytes = LARGE

    def want(self, where: list[Place], offset: int = 0) -> None:
        for place in where:
            self.wanted[place] = self._changed[place] = offset
            # What is forgotten and wanted again before a request is sent was never forgotten.
            self._forgotten = [one for one in self._forgotten if self.key(one) != self.key(place)]

    def forget(self, where: list[Place]) -> None:
        for place in where:
            self.wanted.pop(place, None)
            self._changed.pop(place, None)
            self._forgotten.append(place)

    def start(self, **more: Any) -> Any:
        """Send the next request; what the node answers, or will."""
        asked = self.wanted if self.epoch == 0 else self._changed
        request = FetchRequest(
            topics=[
                FetchTopic(topic=place.name, topic_id=place.topic_id, partitions=[_at(place, offset, self.max_bytes)])
                for place, offset in asked.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=place.name, topic_id=place.topic_id, partitions=[place.partition])
                for place in self._forgotten
            ],
            **{"session_id": self.session_id, "session_epoch": self.epoch, **self._more, **more},
        )
        self._changed, self._forgotten = {}, []
        return self.node.start(request, self.version)

    async def fetch(self, **more: Any) -> dict[tuple[str | bytes, int], PartitionData]:
        """What it is told of, in this order."""
        answer = self.start(**more)
        return self.read(await answer if inspect.isawaitable(answer) else answer)

    def read(self, answer: FetchResponse) -> dict[tuple[str | bytes, int], PartitionData]:
        answer = received(answer, self.version)
        assert answer.error_code == ErrorCode.NONE
        assert answer.session_id == self.session_id or self.epoch == 0
        self.session_id, self.epoch = answer.session_id, self.epoch + 1 if answer.session_id else 0
        told = [(self._key(topic), one) for topic in answer.responses for one in topic.partitions]
        found = {(key, one.partition_index): one for key, one in told}
        assert len(found) == len(told)
        return found

    def _key(self, topic: Any) -> str | bytes:
        assert topic.topic == "" if self.version >= 13 else topic.topic_id == ZERO_UUID
        key: str | bytes = topic.topic_id if self.version >= 13 else topic.topic
        return key

    def key(self, place: Place) -> tuple[str | bytes, int]:
        return place.topic_id if self.version >= 13 else place.name, place.partition

    @property
    def session(self) -> FetchSession:
        return self.node.services.fetch_sessions._sessions[self.session_id]


def _at(place: Place, offset: int, max_bytes: int) -> FetchPartition:
    return FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=max_bytes)


def append(partition: Partition, count: int = 1, value: bytes = b"value") -> int:
    batch = make_batch(count, timestamp_ms=0, value=value)
    partition.append(batch, check_batch(batch))
    return len(batch)


def offsets(data: PartitionData) -> list[int]:
    assert data.records is not None
    return [header.base_offset for header in headers(memoryview(data.records))]


async def reader_of(node: QuietNode, topic: Topic, version: int, **more: Any) -> Reader:
    """A reader of the whole topic that has a session and knows everything."""
    reader = Reader(node, version, **more)
    for place in places(topic):
        reader.want([place], topic.partitions[place.partition].log_end_offset)
    assert len(await reader.fetch(max_wait_ms=0)) == len(topic.partitions)
    assert reader.session_id
    return reader


async def refusal(reader: Reader, **more: Any) -> ErrorCode:
    answer = received(await done(reader.start(**more)), reader.version)
    assert answer.responses == []
    return ErrorCode(answer.error_code)


async def done(answer: FetchResponse | Awaitable[FetchResponse]) -> FetchResponse:
    return answer if isinstance(answer, FetchResponse) else await answer


@in_session_versions
@in_loop
async def test_only_what_has_changed_is_told(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 4)
    reader = Reader(node, version)
    reader.want(places(topic))
    first = await reader.fetch()
    assert [(one.error_code, one.high_watermark) for one in first.values()] == [(0, 0)] * 4
    assert reader.session_id > 0
    assert await reader.fetch() == {}
    append(topic.partitions[1], 2)
    ((key, told),) = (await reader.fetch()).items()
    assert key == reader.key(places(topic, 1)[0])
    assert (offsets(told), told.high_watermark, told.last_stable_offset, told.log_start_offset) == ([0], 2, 2, 0)
    # As long as the reader does not move, the records are news.
    assert list(await reader.fetch()) == [key]
    reader.want(places(topic, 1), 2)
    assert await reader.fetch() == {}
    log_of(topic.partitions[1]).advance_log_start_offset(1)
    ((key, told),) = (await reader.fetch()).items()
    assert (offsets(told), told.high_watermark, told.log_start_offset) == ([], 2, 1)
    assert await reader.fetch() == {}


@in_session_versions
@in_loop
async def test_requests_without_a_session_are_answered_without_one(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    for _ in range(2):
        request = FetchRequest(
            topics=[FetchTopic(topic="t", topic_id=topic.topic_id, partitions=[_at(places(topic)[0], 0, LARGE)])],
            max_wait_ms=0,
            min_bytes=1,
        )
        answer = await node.ask(request, version)
        assert (answer.session_id, len(answer.responses)) == (0, 1)
    assert len(node.services.fetch_sessions) == 0


@in_some_versions
@in_loop
async def test_partitions_are_added_changed_and_forgotten(node: QuietNode, version: int) -> None:
    topic, other = await node.create("t", 2), await node.create("other", 2)
    for partition in (*topic.partitions, *other.partitions):
        append(partition)
    reader = await reader_of(node, topic, version)
    reader.want(places(other, 1))
    assert list(await reader.fetch()) == [reader.key(places(other, 1)[0])]
    reader.want(places(other, 1), 1)
    reader.want(places(topic, 0), 0)
    assert list(await reader.fetch()) == [reader.key(places(topic, 0)[0])]
    reader.forget(places(topic, 0))
    assert await reader.fetch() == {}
    assert len(reader.session.partitions) == node.services.fetch_sessions.partition_count == 2
    append(topic.partitions[0])
    assert await reader.fetch() == {}
    # Added and forgotten in one request: forgotten.
    reader.want(places(other, 0))
    reader._forgotten = places(other, 0)
    assert await reader.fetch() == {}
    # What was never there is forgotten too.
    reader.forget([*places(topic, 0), Place("missing", b"\x07" * 16, 3)])
    assert await reader.fetch() == {}


@in_some_versions
@in_loop
async def test_session_ends_when_all_is_forgotten(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 2)
    reader = await reader_of(node, topic, version)
    reader.forget(places(topic))
    answer = received(await done(reader.start(max_wait_ms=LONG_MS)), version)
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    reader.epoch += 1
    assert await refusal(reader) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@in_some_versions
@in_loop
async def test_unknown_sessions_and_wrong_epochs_are_refused(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    reader = await reader_of(node, topic, version)
    for epoch in (2, 2**31 - 1, -2):
        assert await refusal(reader, session_epoch=epoch) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    for session_id in (0, -5, reader.session_id ^ 1):
        assert await refusal(reader, session_id=session_id) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # Nothing of this has harmed it.
    assert await reader.fetch() == {}
    node.restart()
    reader.node = node
    assert await refusal(reader) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(("first", "second"), [(12, 13), (13, 12), (7, 18), (18, 9)])
@in_loop
async def test_session_keeps_to_names_or_to_ids(node: QuietNode, first: int, second: int) -> None:
    reader = await reader_of(node, await node.create("t"), first)
    reader.version = second
    assert await refusal(reader) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    reader.version = first
    assert await reader.fetch() == {}


@in_some_versions
@in_loop
async def test_full_request_ends_the_session_it_names(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 2)
    sessions = node.services.fetch_sessions
    reader = await reader_of(node, topic, version)
    old_id, reader.epoch = reader.session_id, 0
    assert len(await reader.fetch()) == 2
    assert reader.session_id not in (0, old_id)
    assert len(sessions) == 1
    # The last one of a session: what a consumer sends when it leaves.
    answer = received(await done(reader.start(session_epoch=-1)), version)
    assert (answer.error_code, answer.session_id, len(sessions)) == (0, 0, 0)


@in_some_versions
@in_loop
async def test_reader_that_gets_no_session_is_answered_all_the_same(tmp_path: Path, version: int) -> None:
    with QuietNode(tmp_path, "max.incremental.fetch.session.cache.slots=1") as node:
        topic = await node.create("t")
        append(topic.partitions[0])
        lucky = await reader_of(node, topic, version)
        other = Reader(node, version)
        other.want(places(topic))
        for _ in range(3):
            (told,) = (await other.fetch()).values()
            assert (offsets(told), other.session_id) == ([0], 0)
        assert await lucky.fetch() == {}


@pytest.mark.parametrize("version", [7, 12])
@in_loop
async def test_names_that_no_topic_can_have_are_not_remembered(node: QuietNode, version: int) -> None:
    """They may be long, and there is room for many partitions."""
    overlong = Place("x" * (NAME_LENGTH_MAX + 1), ZERO_UUID, 0)
    topic = await node.create("t")
    other = Reader(node, version)
    other.want([overlong, *places(topic)])
    assert [one.error_code for one in (await other.fetch()).values()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert not other.session_id
    reader = await reader_of(node, topic, version)
    reader.want([overlong])
    assert await refusal(reader) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(node.services.fetch_sessions) == 0


@in_some_versions
@in_loop
async def test_errors_are_told_each_time_and_so_is_their_end(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 2)
    append(topic.partitions[0])
    reader = await reader_of(node, topic, version)
    reader.want(places(topic, 0), 5)
    for _ in range(3):
        (told,) = (await reader.fetch(max_wait_ms=LONG_MS)).values()
        assert (told.error_code, told.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    reader.want(places(topic, 0), 1)
    (told,) = (await reader.fetch()).values()
    assert (told.error_code, told.high_watermark, told.log_start_offset, offsets(told)) == (0, 1, 0, [])
    assert await reader.fetch() == {}


@in_some_versions
@in_loop
async def test_partition_that_comes_into_being_is_found(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    reader = await reader_of(node, topic, version)
    reader.want(places(topic, 1))
    for _ in range(2):
        (told,) = (await reader.fetch()).values()
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await node.topics.create_partitions(topic, 2)
    append(topic.partitions[1])
    (told,) = (await reader.fetch()).values()
    assert (told.error_code, offsets(told)) == (0, [0])


@in_some_versions
@in_loop
async def test_deleted_topic_is_told_as_unknown_and_its_successor_is_found_by_name_only(
    node: QuietNode, version: int
) -> None:
    topic, kept = await node.create("t"), await node.create("kept")
    append(topic.partitions[0])
    reader = await reader_of(node, topic, version)
    reader.want(places(kept))
    assert len(await reader.fetch()) == 1
    await node.topics.delete(topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID
    for _ in range(2):
        (told,) = (await reader.fetch()).values()
        assert (told.error_code, told.high_watermark) == (unknown, -1)
    again = await node.create("t")
    (told,) = (await reader.fetch()).values()
    # By name the reader is now beyond the end of another log; by id it is still the old topic that it asks for.
    assert told.error_code == (ErrorCode.OFFSET_OUT_OF_RANGE if version < 13 else unknown)
    if version >= 13:
        reader.forget(places(topic))
    reader.want(places(again))
    (told,) = (await reader.fetch()).values()
    assert (told.error_code, told.high_watermark) == (0, 0)
    assert await reader.fetch() == {}


@in_some_versions
@in_loop
async def test_log_that_was_put_away_is_opened_again(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 2)
    append(topic.partitions[0])
    reader = await reader_of(node, topic, version)
    for partition in topic.partitions:
        assert node.topics.park(partition)
    assert await reader.fetch() == {}
    append(topic.partitions[0])
    assert node.topics.park(topic.partitions[0])
    (told,) = (await reader.fetch()).values()
    assert (offsets(told), told.high_watermark) == ([1], 2)


@in_some_versions
@in_loop
async def test_wait_ends_when_a_partition_of_the_session_gains_records(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 3)
    reader = await reader_of(node, topic, version, max_wait_ms=LONG_MS)
    for index in (2, 0):
        waiting = asyncio.ensure_future(reader.start())
        await asyncio.sleep(0)
        assert not waiting.done()
        append(topic.partitions[index])
        ((_, told),) = reader.read(await waiting).items()
        assert (told.partition_index, offsets(told)) == (index, [0])
        reader.want(places(topic, index), 1)
    waiting = asyncio.ensure_future(reader.start())
    await node.topics.delete(topic)
    assert len(reader.read(await waiting)) == 3


@in_some_versions
@in_loop
async def test_wait_without_news_ends_with_an_empty_answer(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 3)
    reader = await reader_of(node, topic, version)
    began = asyncio.get_running_loop().time()
    assert await reader.fetch(max_wait_ms=30) == {}
    assert asyncio.get_running_loop().time() - began >= 0.029
    assert not any(partition._watchers for partition in topic.partitions)


@in_some_versions
@in_loop
async def test_request_that_was_overtaken_in_its_session_is_told_nothing(node: QuietNode, version: int) -> None:
    """Whatever it took would be missing in the answers that the reader goes on with."""
    topic = await node.create("t")
    reader = await reader_of(node, topic, version)
    waiting = asyncio.ensure_future(reader.start(max_wait_ms=LONG_MS))
    reader.epoch += 1
    second = reader.start()
    append(topic.partitions[0])
    first = received(await waiting, version)
    assert (first.error_code, first.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, reader.session_id)
    assert first.responses == []
    assert reader.read(second) == {}
    assert len(await reader.fetch()) == 1


@in_some_versions
@in_loop
async def test_partitions_take_turns_when_answers_are_full(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 4)
    sizes = {append(partition) for partition in topic.partitions for _ in range(3)}
    (size,) = sizes
    reader = Reader(node, version)
    reader.want(places(topic))
    read: dict[int, int] = dict.fromkeys(range(4), 0)
    order = []
    for _ in range(12):
        told = await reader.fetch(max_bytes=size)
        with_records = [one for one in told.values() if offsets(one)]
        (one,) = with_records
        order.append(one.partition_index)
        read[one.partition_index] += 1
        reader.want(places(topic, one.partition_index), read[one.partition_index])
    # The first answer was of no session yet; from the second on each has its turn.
    assert order[0] == 0
    assert all(sorted(order[at : at + 4]) == [0, 1, 2, 3] for at in (1, 5))
    assert read == dict.fromkeys(range(4), 3)


@in_some_versions
@in_loop
async def test_large_session_is_looked_at_in_turns(
    node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, doomed = await node.create("t", 30), await node.create("doomed")
    reader = Reader(node, version)
    reader.want(places(topic))
    reader.want(places(doomed))
    assert len(await reader.fetch()) == 31
    monkeypatch.setattr("kwire.handlers.fetch.handler._CHUNK_WEIGHT", 10)
    append(topic.partitions[29])
    waiting = asyncio.ensure_future(reader.start())
    await asyncio.sleep(0)
    assert not waiting.done()
    await node.topics.delete(doomed)
    told = reader.read(await waiting)
    assert offsets(told[reader.key(places(topic, 29)[0])]) == [0]
    assert (await reader.fetch())[reader.key(places(doomed, 0)[0])].error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


@in_loop
async def test_client_that_claims_to_be_a_follower_displaces_no_consumer(tmp_path: Path) -> None:
    with QuietNode(tmp_path, "max.incremental.fetch.session.cache.slots=1") as node:
        topic = await node.create("t")
        consumer = await reader_of(node, topic, 12)
        follower = Reader(node, 12, replica_id=7)
        follower.want(places(topic))
        (told,) = (await follower.fetch()).values()
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not follower.session_id
        await consumer.fetch()
        assert consumer.session_id


class Known(NamedTuple):
    """What a reader knows of a partition."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def known(data: PartitionData) -> Known:
    return Known(data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset)


_NAMES = ("a", "b")
_PARTITIONS = 2
_SPOT = (st.sampled_from(_NAMES), st.integers(0, _PARTITIONS))
_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), *_SPOT, st.integers(1, 2)),
        st.tuples(st.just("want"), *_SPOT, st.integers(0, 3)),
        st.tuples(st.just("forget"), *_SPOT, st.just(0)),
        st.tuples(st.just("start"), *_SPOT, st.integers(1, 3)),
        st.tuples(st.just("delete"), *_SPOT, st.just(0)),
        st.tuples(st.just("park"), *_SPOT, st.just(0)),
        st.tuples(st.just("fetch"), *_SPOT, st.sampled_from([0, 1, 1, 1])),
        st.tuples(st.just("fetch"), *_SPOT, st.sampled_from([0, 1, 1, 1])),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=examples(60))
@given(st.sampled_from(SOME_VERSIONS), _EVENTS)
def test_reader_with_a_session_knows_what_one_without_is_told(
    version: int, events: list[tuple[str, str, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as directory, QuietNode(Path(directory)) as node:
        in_loop(_compare)(node, version, events)


async def _compare(node: QuietNode, version: int, events: list[tuple[str, str, int, int]]) -> None:
    for name in _NAMES:
        await node.create(name, _PARTITIONS)
    reader = Reader(node, version)
    knows: dict[Place, Known] = {}
    for what, name, index, number in [*events, ("fetch", "a", 0, 1), ("fetch", "a", 0, 1)]:
        topic = node.topics.get(name)
        assert topic is not None
        partition = topic.partition(index)
        place = Place(name, topic.topic_id, index)
        if what == "want":
            reader.want([place], number)
        elif what == "forget":
            reader.forget([place])
        elif what == "delete":
            await node.topics.delete(topic)
            await node.create(name, _PARTITIONS)
            if version < 13:
                # The name stands for the new topic from now on, in the session and without.
                _rename(reader, knows, node)
        elif what == "fetch":
            await _compare_once(reader, knows, is_moving=bool(number))
        elif partition is not None and what == "append":
            append(partition, number)
        elif partition is not None and what == "start":
            log_of(partition).advance_log_start_offset(min(number, partition.high_watermark))
        elif partition is not None and what == "park":
            node.topics.park(partition)


def _rename(reader: Reader, knows: dict[Place, Known], node: QuietNode) -> None:
    def now(place: Place) -> Place:
        topic = node.topics.get(place.name)
        assert topic is not None
        return place._replace(topic_id=topic.topic_id)

    reader.wanted = {now(place): offset for place, offset in reader.wanted.items()}
    reader._changed = {now(place): offset for place, offset in reader._changed.items()}
    for place in list(knows):
        knows[now(place)] = knows.pop(place)


async def _compare_once(reader: Reader, knows: dict[Place, Known], *, is_moving: bool) -> None:
    if not reader.wanted:
        if reader.session_id:
            received(await done(reader.start()), reader.version)
            reader.session_id = reader.epoch = 0
        return
    plain = Reader(reader.node, reader.version)
    plain.wanted = dict(reader.wanted)
    expected = plain.read(await done(plain.start(session_epoch=-1)))
    told = await reader.fetch()
    for place in reader.wanted:
        key = reader.key(place)
        if key in told:
            knows[place] = known(told[key])
        assert knows[place] == known(expected[key])
        assert bytes(told[key].records or b"" if key in told else b"") == bytes(expected[key].records or b"")
        if is_moving and key in told and told[key].records:
            reader.want([place], told[key].high_watermark)
    assert set(told) <= {reader.key(place) for place in reader.wanted}
