"""The template for repeated OffsetCommit requests: the same answers and the same records as the general way."""

import inspect
import struct
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.access.access import Unrestricted
from kwire.access.audit.entries import NO_AUDIT
from kwire.errors import ErrorCode
from kwire.handlers.offset_commit import OffsetCommitTemplateCache, handle
from kwire.handlers.offset_commit.template import FRAME_BYTES_MAX, PARTITIONS_MAX
from kwire.handlers.shared.context import Context, DeferredFrame
from kwire.handlers.shared.views import Views
from kwire.wire.apis import APIS, HEARTBEAT, OFFSET_COMMIT
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.connection import ServerConnection
from kwire.wire.frame import ReceiveMemory
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.coordinator.context import joined, topic_id
from tests.coordinator.world import World, all_offsets
from tests.support.effort import examples

VERSIONS = list(OFFSET_COMMIT.versions)
TOPICS = ("t", "orders")
TOPIC_PARTITIONS = 3
SESSION_MS = 10_000  # of the member that `joined` returns


class Topics:
    """Topics as the template sees them: each of them has a revision, which rises when it is deleted."""

    def __init__(self, partition_count: int = TOPIC_PARTITIONS) -> None:
        self._partition_count = partition_count
        self.known: dict[str, Any] = {}
        for name in TOPICS:
            self.create(name)

    def create(self, name: str) -> None:
        partitions = list(range(self._partition_count))
        self.known[name] = SimpleNamespace(name=name, topic_id=topic_id(name), partitions=partitions, revision=0)

    def delete(self, name: str) -> None:
        self.known.pop(name).revision += 1

    def get(self, name: str) -> Any:
        return self.known.get(name)

    def get_by_id(self, wanted: bytes) -> Any:
        return next((topic for topic in self.known.values() if topic.topic_id == wanted), None)


class Committer:
    """One connection to a world of its own: requests that fit the template use it, as in the server."""

    def __init__(
        self,
        version: int,
        *,
        has_shortcut: bool = True,
        partition_count: int = TOPIC_PARTITIONS,
        has_turns: bool = False,
    ) -> None:
        self.world = World(initial_rebalance_delay_ms=0, offset_metadata_max_bytes=10)
        if has_turns:
            self.world.with_turns()
        self.member_id = joined(self.world)
        self.topics = Topics(partition_count)
        self.taken = 0
        self.template_cache = OffsetCommitTemplateCache()
        self._uses_template = has_shortcut
        self._numbers = count()
        self._machine = ServerConnection(APIS, ReceiveMemory(1 << 30), 1 << 30)
        services = SimpleNamespace(audit=NO_AUDIT, groups=self.world.groups, topics=self.topics)
        self.version = version
        views = Views(cast(Any, services), Unrestricted())
        self.context = Context(cast(Any, services), cast(Any, None), version, "test", views)

    def frame(self, body: bytes) -> memoryview:
        head = struct.pack(">hhih4s", OFFSET_COMMIT.key, self.version, next(self._numbers), 4, b"test")
        tags = bytes(self.version >= OFFSET_COMMIT.first_flexible)
        return memoryview(bytearray(head + tags + body))

    def send(self, request: OffsetCommitRequest) -> bytes:
        """The answer as it leaves, framed."""
        answer = self.send_body(encode_message(request, self.version))
        assert isinstance(answer, bytes)  # the log commits at once
        return answer

    def send_body(self, body: bytes) -> bytes | DeferredFrame:
        frame = self.frame(body)
        answer = self.template_cache.answer(frame) if self._uses_template else None
        if answer is not None:
            self.taken += 1
            return answer
        opened = self._machine.open(frame)
        assert opened.body is not None
        asked = decode_message(OffsetCommitRequest, opened.version, opened.body)
        response = handle(self.context, asked)
        assert not inspect.isawaitable(response)
        self.template_cache.update(self.context, frame, asked, response)
        return b"".join(self._machine.answer_now(opened, [encode_message(response, opened.version)]))

    def stored(self) -> list[Any]:
        return [one for shard in self.world.groups.shards() for one in all_offsets(shard)]


Part = tuple[int, int, int, str | None]


def request(
    committer: Committer, *topics: tuple[str, Sequence[Part]], generation_id: int = 1, member_id: str | None = None
) -> OffsetCommitRequest:
    """`topics`: names with partition, offset, leader epoch and metadata of each partition."""
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation_id,
        member_id=committer.member_id if member_id is None else member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id(name),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset, epoch, metadata in parts
                ],
            )
            for name, parts in topics
        ],
    )


def of_offset(committer: Committer, offset: int, **more: Any) -> OffsetCommitRequest:
    return request(committer, ("t", [(0, offset, 4, ""), (1, offset + 1, 5, "note")]), **more)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_third_request_of_a_form_takes_the_shortcut(version: int) -> None:
    committer, twin = Committer(version), Committer(version, has_shortcut=False)
    for number in range(5):
        assert committer.send(of_offset(committer, number * 1000)) == twin.send(of_offset(twin, number * 1000))
    assert committer.taken == 3
    assert committer.stored() == twin.stored()
    assert committer.world.durable() == committer.world.replayed()


def test_a_heartbeat_in_between_leaves_the_template_alone() -> None:
    committer = Committer(7)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=committer.member_id)
    heartbeat = memoryview(struct.pack(">hhih", HEARTBEAT.key, 3, 7, 0) + encode_message(beat, 3))
    for number in range(4):
        committer.send(of_offset(committer, number))
        assert committer.template_cache.answer(heartbeat) is None
    assert committer.taken == 2


def test_a_request_of_the_same_length_to_another_api_is_not_taken() -> None:
    committer = Committer(7)
    for number in range(3):
        committer.send(of_offset(committer, number))
    frame = committer.frame(encode_message(of_offset(committer, 9), 7))
    frame[:2] = struct.pack(">h", HEARTBEAT.key)
    assert committer.template_cache.answer(frame) is None
    frame[:4] = struct.pack(">hh", OFFSET_COMMIT.key, 6)
    assert committer.template_cache.answer(frame) is None


@pytest.mark.parametrize("version", [5, 9, 10])
def test_errors_of_the_coordinator_are_answered_as_in_the_general_way(version: int) -> None:
    committer, twin = Committer(version), Committer(version, has_shortcut=False)
    for number in range(4):
        wrong = {"generation_id": 7}
        assert committer.send(of_offset(committer, number, **wrong)) == twin.send(of_offset(twin, number, **wrong))
    assert committer.taken == 2
    assert committer.stored() == []


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone() -> None:
    committer, twin = Committer(9), Committer(9, has_shortcut=False)
    for number in range(4):
        parts = [(0, number, -1, "x" * 11), (1, number, -1, "x")]
        assert committer.send(request(committer, ("t", parts))) == twin.send(request(twin, ("t", parts)))
    assert committer.taken == 2
    assert [(partition, one.offset) for _, _, partition, one in committer.stored()] == [(1, 3)]


@pytest.mark.parametrize("version", [9, 10])
def test_a_deleted_topic_ends_the_template(version: int) -> None:
    committer = Committer(version)
    for number in range(3):
        committer.send(of_offset(committer, number))
    assert committer.taken == 1
    committer.topics.delete("t")
    answer = committer.send(of_offset(committer, 7))
    assert committer.taken == 1
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = decode_message(OffsetCommitResponse, version, memoryview(answer)[9:])
    assert [one.error_code for one in response.topics[0].partitions] == [unknown, unknown]
    committer.topics.create("t")
    for number in range(3):
        committer.send(of_offset(committer, 10 + number))
    assert committer.taken == 3


def test_partitions_that_do_not_exist_get_no_template() -> None:
    committer = Committer(9)
    for number in range(4):
        committer.send(request(committer, ("t", [(0, number, -1, ""), (TOPIC_PARTITIONS, number, -1, "")])))
    assert committer.taken == 0


def test_an_answer_that_has_to_wait_comes_when_the_log_has_committed() -> None:
    committer = Committer(9)
    for number in range(3):
        committer.send(of_offset(committer, number))
    committer.world.log.is_holding = True
    answer = committer.send_body(encode_message(of_offset(committer, 5), 9))
    assert isinstance(answer, DeferredFrame)
    frames: list[bytes] = []
    answer.on_complete(frames.append)
    assert not frames
    committer.world.log.release()
    assert len(frames) == 1
    response = decode_message(OffsetCommitResponse, 9, memoryview(frames[0])[9:])
    assert [one.error_code for one in response.topics[0].partitions] == [0, 0]


def refuse_to_submit(*args: object) -> None:
    raise AssertionError("the command was submitted in the usual way")


def test_a_repeated_commit_needs_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    committer = Committer(9)
    for number in range(3):
        committer.send(of_offset(committer, number))
    monkeypatch.setattr(committer.template_cache._template, "_ask", refuse_to_submit)
    committer.send(of_offset(committer, 77))
    assert [one.offset for *_, one in committer.stored()] == [77, 78]


def test_a_repeated_commit_renews_the_session() -> None:
    committer = Committer(9)
    for number in range(4):
        committer.send(of_offset(committer, number))
        committer.world.timers.advance(SESSION_MS * 8 // 10)
    answer = committer.send(of_offset(committer, 9))
    response = decode_message(OffsetCommitResponse, 9, memoryview(answer)[9:])
    assert [one.error_code for one in response.topics[0].partitions] == [0, 0]
    committer.world.timers.advance(SESSION_MS * 12 // 10)
    answer = committer.send(of_offset(committer, 10))
    response = decode_message(OffsetCommitResponse, 9, memoryview(answer)[9:])
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_repeated_commit_that_cannot_be_stored_is_answered_as_in_the_general_way() -> None:
    committer, twin = Committer(9), Committer(9, has_shortcut=False)
    for number in range(6):
        for one in (committer, twin):
            one.world.log.is_failing = number in (3, 4)
        assert committer.send(of_offset(committer, number)) == twin.send(of_offset(twin, number))
    assert committer.taken == 4
    assert committer.stored() == twin.stored()
    assert committer.world.log.shards == twin.world.log.shards


def test_later_repeated_commits_of_a_turn_share_an_append() -> None:
    committer = Committer(9, has_turns=True)
    for number in range(3):
        committer.send(of_offset(committer, number))
        committer.world.end_turn()
    appends = len(committer.world.log.append_sizes)
    first, *others = [committer.send_body(encode_message(of_offset(committer, number), 9)) for number in (10, 20, 30)]
    assert isinstance(first, bytes)
    assert all(isinstance(one, DeferredFrame) and one.frame is None for one in others)
    committer.world.end_turn()
    assert len(committer.world.log.append_sizes) == appends + 2
    assert all(isinstance(one, DeferredFrame) and one.frame is not None for one in others)
    assert [one.offset for *_, one in committer.stored()] == [30, 31]
    assert committer.world.durable() == committer.world.replayed()


def test_an_unusual_encoding_gets_no_template() -> None:
    """A request that ends with a tag of its own is longer than ours would be."""
    committer = Committer(9)
    for number in range(4):
        body = encode_message(of_offset(committer, number), 9)
        assert body[-1] == 0
        committer.send_body(body[:-1] + b"\x01\x4d\x02hi")
    assert committer.taken == 0


def test_a_name_that_contains_the_mark_gets_no_template() -> None:
    committer = Committer(7)
    mark = struct.pack(">qi", 0x0102030405060708, 0x11121314).decode()
    for number in range(4):
        committer.send(request(committer, ("t", [(0, number, -1, "")]), generation_id=-1, member_id=mark))
    assert committer.taken == 0


def test_templates_are_bounded() -> None:
    committer = Committer(9, partition_count=PARTITIONS_MAX + 1)
    for count_of_partitions in (PARTITIONS_MAX, PARTITIONS_MAX + 1):
        for number in range(3):
            parts = [(index, number, -1, "") for index in range(count_of_partitions)]
            committer.send(request(committer, ("t", parts)))
        assert committer.taken == 1
    long_member = "m" * FRAME_BYTES_MAX
    for number in range(3):
        committer.send(request(committer, ("t", [(0, number, -1, "")]), member_id=long_member))
    assert committer.taken == 1


PART = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2, TOPIC_PARTITIONS]),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from([None, "", "", "ä", "more than ten"]),
)
NAMED = st.tuples(st.sampled_from([*TOPICS, "gone"]), st.lists(PART, max_size=3))
REQUEST = st.tuples(
    st.lists(NAMED, max_size=2),
    st.sampled_from([1, 1, 1, 2, -1]),
    st.sampled_from([None, None, None, "", "stranger"]),
    st.integers(1, 4),  # how often it is sent, each time with other offsets
)


@settings(max_examples=examples(100), deadline=None)
@given(version=st.sampled_from(VERSIONS), asked=st.lists(REQUEST, min_size=1, max_size=6))
def test_answers_and_records_are_those_of_the_general_way(version: int, asked: list[Any]) -> None:
    committer, twin = Committer(version), Committer(version, has_shortcut=False)
    for topics, generation_id, member_id, times in asked:
        for number in range(times):
            moved = [
                (name, [(index, offset ^ number, epoch ^ number, note) for index, offset, epoch, note in parts])
                for name, parts in topics
            ]
            answers = [
                one.send(request(one, *moved, generation_id=generation_id, member_id=member_id))
                for one in (committer, twin)
            ]
            assert answers[0] == answers[1]
    assert committer.stored() == twin.stored()
    assert committer.world.log.shards == twin.world.log.shards
