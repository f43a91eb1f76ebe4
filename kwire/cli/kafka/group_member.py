"""Membership in a classic consumer group: join, heartbeats, commits, leave."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.kafka.assignor import NAME, assign_ranges
from kwire.cli.kafka.channel import Channel
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.errors import ServerError, is_retriable
from kwire.cli.kafka.retries import Retries
from kwire.coordinator.group.classic.embedded_protocol import read_assignment, read_subscription, write_assignment
from kwire.errors import ErrorCode
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription
from kwire.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from kwire.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from kwire.wire.messages.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kwire.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from kwire.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.wire.messages.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestTopic
from kwire.wire.messages.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from kwire.wire.schema import Api

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_SECONDS = 3.0
# How long a coordinator that is not available is waited for, and a rebalance that begins again and again.
COORDINATOR_TIMEOUT_SECONDS = 60.0
END_TIMEOUT_SECONDS = 2.0
PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
NO_OFFSET = -1
_VERSION_BYTES = 2
_PROTOCOL_VERSION = 0
_GRACE_SECONDS = 10.0

# The coordinator has moved, or is not ready.
_COORDINATOR_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
# The member has to join again. After all but the first it has lost its member id.
_REJOIN_ERRORS = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class GroupMember:
    """A member of a group. Heartbeats are sent by a thread, because the reader of the output may pause the program."""

    def __init__(self, cluster: Cluster, group_id: str, topics: Sequence[str]) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._topics = sorted(set(topics))
        self._channel: Channel | None = None
        # Guards the channel and the fields below, which the heartbeats use, too.
        self._lock = threading.RLock()
        self._member_id = ""
        self._generation = NO_GENERATION
        self._must_rejoin = threading.Event()
        self._is_closed = threading.Event()
        self._heartbeats: threading.Thread | None = None
        self._heartbeat_error: Exception | None = None
        self._patience_seconds = COORDINATOR_TIMEOUT_SECONDS

    @property
    def must_rejoin(self) -> bool:
        """Whether the group rebalances, so that `join` has to be called. Raises what a heartbeat raised."""
        if self._heartbeat_error is not None:
            raise self._heartbeat_error
        return self._must_rejoin.is_set()

    def join(self) -> list[TopicPartition]:
        """Join the group, and return the partitions that this member reads now."""
        retries = Retries(COORDINATOR_TIMEOUT_SECONDS)
        while True:
            with self._lock:
                assigned = self._try_join()
            if assigned is not None:
                break
            if not retries.pause():
                raise ServerError(f"group {self._group_id}", ErrorCode.REBALANCE_IN_PROGRESS)
        self._must_rejoin.clear()
        if self._heartbeats is None:
            self._heartbeats = threading.Thread(target=self._send_heartbeats, name="heartbeats", daemon=True)
            self._heartbeats.start()
        return assigned

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of those partitions that have one."""
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in _by_topic(partitions).items()
        ]
        request = OffsetFetchRequest(group_id=self._group_id, topics=topics, require_stable=True)
        retries = Retries(self._patience_seconds)
        while True:
            response = self._ask(OFFSET_FETCH, request)
            found: dict[TopicPartition, int] = {}
            codes = [response.error_code]
            for topic in response.topics:
                for one in topic.partitions:
                    codes.append(one.error_code)
                    if one.committed_offset != NO_OFFSET:
                        found[TopicPartition(topic.name, one.partition_index)] = one.committed_offset
            code = next((code for code in codes if code), 0)
            if not code:
                return found
            if not is_retriable(code) or not retries.pause():
                raise ServerError(f"group {self._group_id}", code)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read. If the group rebalances meanwhile, another member may read some again."""
        if not offsets:
            return
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(name, index)],
                        committed_metadata="",
                    )
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic(offsets).items()
        ]
        retries = Retries(self._patience_seconds)
        while True:
            with self._lock:
                request = OffsetCommitRequest(
                    group_id=self._group_id,
                    generation_id_or_member_epoch=self._generation,
                    member_id=self._member_id,
                    topics=topics,
                )
                response = self._ask(OFFSET_COMMIT, request)
            code = next((one.error_code for topic in response.topics for one in topic.partitions if one.error_code), 0)
            if not code:
                return
            if code in _REJOIN_ERRORS:
                self._note_rejoin(code)
                return
            if not is_retriable(code) or not retries.pause():
                raise ServerError(f"the commit of group {self._group_id}", code)

    def end_soon(self) -> None:
        """From now on, wait only a moment for a coordinator that does not answer: the program is about to end."""
        self._patience_seconds = END_TIMEOUT_SECONDS

    def leave(self) -> None:
        """Leave the group, so that other members get its partitions at once. Never raises: it is the end anyway."""
        self._is_closed.set()
        with self._lock:
            if self._member_id and self._channel is not None:
                member = MemberIdentity(member_id=self._member_id, reason="the consumer ends")
                request = LeaveGroupRequest(group_id=self._group_id, member_id=self._member_id, members=[member])
                with suppress(ConnectionError, ServerError):
                    self._channel.request(LEAVE_GROUP, request, _GRACE_SECONDS)
            self._drop_channel()

    # Joining

    def _try_join(self) -> list[TopicPartition] | None:
        """Join and sync once. Return None if it has to be tried again."""
        joined = self._join_once()
        if joined is None:
            return None
        assignments = self._assignments(joined) if joined.leader == joined.member_id else []
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=NAME,
            assignments=assignments,
        )
        synced = self._ask(SYNC_GROUP, request, REBALANCE_TIMEOUT_MS / 1000 + _GRACE_SECONDS)
        code = synced.error_code
        if code in _REJOIN_ERRORS:
            self._note_rejoin(code)
            return None
        if code:
            raise ServerError(f"group {self._group_id}", code)
        if not synced.assignment:
            return []
        assigned = read_assignment(bytes(synced.assignment))
        return [TopicPartition(one.topic, index) for one in assigned.assigned_partitions for index in one.partitions]

    def _join_once(self) -> JoinGroupResponse | None:
        subscription = ConsumerProtocolSubscription(topics=self._topics)
        metadata = _PROTOCOL_VERSION.to_bytes(_VERSION_BYTES, "big") + encode_message(subscription, _PROTOCOL_VERSION)
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=NAME, metadata=metadata)],
        )
        joined: JoinGroupResponse = self._ask(JOIN_GROUP, request, REBALANCE_TIMEOUT_MS / 1000 + _GRACE_SECONDS)
        code = joined.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return self._join_once()
        if code in _REJOIN_ERRORS:
            self._note_rejoin(code)
            return None
        if code:
            raise ServerError(f"group {self._group_id}", code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        return joined

    def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        subscriptions = {
            member.member_id: read_subscription(bytes(member.metadata)).topics for member in joined.members
        }
        topics = {topic for wanted in subscriptions.values() for topic in wanted}
        # Other members may read topics that this one does not.
        self._cluster.load_topics(topics)
        counts = {topic: len(self._cluster.partitions(topic)) for topic in topics}
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=write_assignment(by_topic, _PROTOCOL_VERSION))
            for member, by_topic in assign_ranges(subscriptions, counts).items()
        ]

    def _note_rejoin(self, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            self._generation = NO_GENERATION
        self._must_rejoin.set()

    # Heartbeats

    def _send_heartbeats(self) -> None:
        while not self._is_closed.wait(HEARTBEAT_SECONDS):
            try:
                with self._lock:
                    if self._is_closed.is_set() or self._must_rejoin.is_set():
                        continue
                    request = HeartbeatRequest(
                        group_id=self._group_id, generation_id=self._generation, member_id=self._member_id
                    )
                    code = self._ask(HEARTBEAT, request).error_code
                    if code in _REJOIN_ERRORS:
                        self._note_rejoin(code)
                if code and code not in _REJOIN_ERRORS and not is_retriable(code):
                    raise ServerError(f"group {self._group_id}", code)
            except Exception as error:
                # The main thread raises it: this one has nobody to report to.
                self._heartbeat_error = error
                return

    # The coordinator

    def _ask(self, api: Api, request: Any, timeout_seconds: float | None = None) -> Any:
        """Send a request to the coordinator, and find it again if it has moved or the connection is lost."""
        retries = Retries(self._patience_seconds)
        while True:
            failure: Exception
            try:
                with self._lock:
                    if self._channel is None:
                        self._channel = self._coordinator()
                    response = self._channel.request(api, request, timeout_seconds)
                code = _first_error(response)
                if code not in _COORDINATOR_ERRORS:
                    return response
                failure = ServerError(f"group {self._group_id}", code)
            except ConnectionError as error:
                failure = error
            self._drop_channel()
            if self._is_closed.is_set() or not retries.pause():
                raise failure

    def _coordinator(self) -> Channel:
        retries = Retries(self._patience_seconds)
        while True:
            found = self._cluster.ask_any(FIND_COORDINATOR, FindCoordinatorRequest(key=self._group_id))
            if not found.error_code:
                return self._cluster.open_at(found.host, found.port)
            if not is_retriable(found.error_code) or not retries.pause():
                raise ServerError(f"group {self._group_id}", found.error_code, found.error_message)

    def _drop_channel(self) -> None:
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None


def _first_error(response: Any) -> int:
    code = getattr(response, "error_code", 0)
    if code:
        return int(code)
    for topic in getattr(response, "topics", ()):
        for one in topic.partitions:
            if one.error_code:
                return int(one.error_code)
    return 0


def _by_topic(partitions: Sequence[TopicPartition] | Mapping[TopicPartition, Any]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics
