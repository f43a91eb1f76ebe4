"""GET /consumer-groups/{group}/members/{member}/stream: a stream of the events of a member's partitions.

The stream starts to read each assigned partition at its committed offset. When the assignment changes, the stream stops
reading revoked partitions and starts to read new ones. The stream sends the member's heartbeats, so the client sends
none. The format is NDJSON, or Server-Sent Events if the request accepts those. The stream contains events and control
messages: `assignment` (the partitions, the generation, and the state `stable` or `rebalancing`), `caught_up`,
`lagging`, `gap`, and `closed` as the last message.

A revoked partition is released in three steps. The stream stops sending events of the partition. With auto-commit it
commits the events that it has sent. Then it sends the heartbeat after which the coordinator may assign the partition to
another member.

With auto-commit the stream commits at the end of every interval. It commits the events that it had sent before the
interval began. It commits all sent events when a partition is revoked, when the member leaves, and when the stream ends
because of `limit`, `timeout_ms` or a stop of the node. Only events that the client's machine has acknowledged (by TCP)
are committed. So nothing is committed for a client that does not read, and after a lost connection the unacknowledged
events are sent again. If a client must process an event before the event is committed, it sets `auto_commit=false` and
commits the offsets itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from aiohttp import web

from kwire.access.acl import Operation, ResourceType
from kwire.access.quotas.kinds import QuotaKind
from kwire.coordinator.web_groups.groups import WebGroups
from kwire.coordinator.web_groups.values import MemberStatus
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange, StreamError
from kwire.streams.subscriptions.control_messages import (
    ROOM_NOT_FOUND,
    STOPPING,
    CaughtUp,
    Checkpoint,
    Closed,
    ControlMessage,
    Gap,
    Lagging,
)
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.streams.subscriptions.start import FROM_NEWEST, FROM_OLDEST, Start
from kwire.streams.subscriptions.subscription import OnLag, SubscribeOptions, Subscription
from kwire.web.groups.consumer_groups import MEMBER_PATH, TAG, groups_of, state_of
from kwire.web.groups.encodings import ndjson_control, ndjson_events, sse_control, sse_events
from kwire.web.needs import READ_GROUP, READ_TOPICS
from kwire.web.requests.access import FORBIDDEN, RequestAccess, access_of
from kwire.web.requests.bodies import query_of
from kwire.web.requests.key_limits import SubscriptionSlot
from kwire.web.rooms.encodings import NDJSON_HEARTBEAT, SSE_HEARTBEAT
from kwire.web.route import EVENT_STREAM, NDJSON, Answer, Route
from kwire.web.services import GroupServices
from kwire.web.streaming.stream_requests import accepts
from kwire.web.streaming.streaming import LAST_CHUNK, Outlet, check_streamable, chunked_head
from kwire.web.streaming.streaming import stream as take_over
from kwire.web.topics.events import TopicEvent

log = logging.getLogger("kwire.web")

LIMIT_MAX = 1_000_000
TIMEOUT_MS_MAX = 86_400_000
# A stream sends three heartbeats per session timeout, and at least one every HEARTBEAT_SECONDS_MAX, so that it detects
# new partitions soon.
HEARTBEATS_PER_SESSION = 3
HEARTBEAT_SECONDS_MAX = 3.0
# The delay between a change of the group and the heartbeat that fetches the new assignment. One heartbeat handles all
# changes within the delay.
SYNC_DELAY_SECONDS = 0.003
# Before the last commit of a partition, the stream waits until the client has received the events that were sent.
# DRAIN_SECONDS_MAX is the maximum wait if a partition is revoked, the member leaves or the node stops. A stopping node
# does not wait much longer for its streams. DRAIN_POLL_SECONDS is the interval of the check.
DRAIN_SECONDS_MAX = 1.0
DRAIN_POLL_SECONDS = 0.002
# The maximum wait if the stream ends because of `limit` or `timeout_ms`. It is longer, because in these cases no other
# member waits for the partitions. Every wait is at most half of the session timeout.
SLOW_DRAIN_SECONDS_MAX = 30.0
# The assumed session timeout before the first heartbeat.
SESSION_SECONDS_MIN = 1.0
# After this time without output the stream sends an empty line or comment, so that a lost connection is detected.
IDLE_SECONDS = 10.0
# Errors that end a stream: the member was removed, or the group or topic does not exist.
FINAL_ERRORS = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)

# Events are never skipped for a slow client.
OPTIONS = SubscribeOptions(on_lag=OnLag.CATCHUP)


class StreamQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    auto_commit: (
        Annotated[
            bool,
            msgspec.Meta(description="Commit the events that were sent. The default is kwire.rest.groups.auto.commit."),
        ]
        | None
    ) = None
    reset: Annotated[
        Literal["earliest", "latest"], msgspec.Meta(description="Where to start if nothing is committed.")
    ] = "earliest"
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX, description="End after this number of events.")] | None = (
        None
    )
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=TIMEOUT_MS_MAX, description="End after this time.")] | None = None


class GroupControl(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A control message. `assignment` has the fields from `group_id` to `state`. `closed` has `group_id`, `code` and
    `reason`. All others have `topic`, `partition_id` and `offset`."""

    control: Literal["assignment", "caught_up", "lagging", "gap", "closed"]
    group_id: str | None = None
    member_id: str | None = None
    generation: int | None = None
    partitions: list[int] | None = None
    state: str | None = None
    topic: str | None = None
    partition_id: int | None = None
    offset: int | None = None
    behind: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    code: str | None = None
    reason: str | None = None


class StreamEnd(msgspec.Struct):
    """Why and how a stream ends. If `is_committed`, the stream waits up to `drain_seconds_max` until the client has
    received the events that were sent, and then commits them."""

    code: str
    reason: str
    is_committed: bool
    drain_seconds_max: float


class GroupStream:
    """The stream of one member: the session of its connection, and the sink of one subscription for each partition.

    One task, the worker, runs the operations that wait (heartbeats, commits, subscribing) one after the other. The task
    exists only while there are such operations.
    """

    def __init__(
        self,
        services: GroupServices,
        access: RequestAccess,
        group_id: str,
        member_id: str,
        query: StreamQuery,
        is_sse: bool,
        outlet: Outlet,
    ) -> None:
        config = services.port.config.rest_groups
        self._access = access
        self._services = services
        self._groups: WebGroups = services.web_groups
        self._group_id = group_id
        self._member_id = member_id
        self._reset = FROM_OLDEST if query.reset == "earliest" else FROM_NEWEST
        self._remaining = query.limit
        self._is_auto_commit = config.is_auto_commit if query.auto_commit is None else query.auto_commit
        self._commit_seconds = config.auto_commit_interval_ms / 1000
        self._outlet = outlet
        self._events_of = sse_events if is_sse else ndjson_events
        self._control = sse_control if is_sse else ndjson_control
        self._keepalive_line = SSE_HEARTBEAT if is_sse else NDJSON_HEARTBEAT

        self._loop = asyncio.get_running_loop()
        self._readers: dict[int, Subscription] = {}
        self._partition_of: dict[Subscription, int] = {}
        # The next offset to read, for partitions whose last batch was truncated because of `limit`.
        self._cuts: dict[int, int] = {}
        self._sent_assignment: tuple[object, ...] = ()
        self._generation = 0
        self._session_seconds = SESSION_SECONDS_MIN
        self._written_bytes = 0
        # The value of `_written_bytes` after the last events were written.
        self._events_bytes = 0
        # The positions that the next auto-commit commits, once the client has received the first `_sent_before_bytes`
        # bytes. The commit happens at least one interval after the stream had reached these positions.
        self._sent_before: dict[int, int] = {}
        self._sent_before_bytes = 0
        self._committed: dict[int, int] = {}
        self._sent_at = self._loop.time()

        self._is_lost = False
        self._is_sync_due = True
        self._is_commit_due = False
        self._ending: StreamEnd | None = None
        self._is_finished = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._groups.watch(group_id, self._assignment_changed)
        self._groups.begin_reading(group_id, member_id, self)
        if query.timeout_ms is not None:
            self._later("end", query.timeout_ms / 1000, self._timeout_expired)
        if self._is_auto_commit:
            self._later("commit", self._commit_seconds, self._request_commit)
        self._wake_worker()

    # --- the session

    def received(self, data: bytes) -> None:
        """Ignore bytes that the client sends after the request."""

    def writable(self) -> None:
        for reader in tuple(self._readers.values()):
            reader.resume()

    def tick(self, now: float) -> None:
        if now - self._sent_at >= IDLE_SECONDS and self._outlet.is_writable:
            self._write(self._keepalive_line)

    def check_access(self) -> None:
        loss = self._access.loss()
        if loss is not None:
            self._end(FORBIDDEN, loss.message, is_committed=False)

    def stop(self) -> None:
        self._end(STOPPING, "the server is stopping")

    def lost(self) -> None:
        self._is_lost = True
        self._stop_watching()
        self._groups.end_reading(self._group_id, self._member_id, self)
        for partition in tuple(self._readers):
            self._stop_reading(partition)
        if self._worker is None:
            self._is_finished.set()

    def _stop_watching(self) -> None:
        """Cancel the timers and stop watching the group."""
        for timer in self._timers.values():
            timer.cancel()
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        self._groups.unwatch(self._group_id, self._assignment_changed)

    # --- the reader of a member

    def replaced(self) -> None:
        self._end("StreamReplaced", "the member has opened another stream", is_committed=False)

    async def leave(self) -> None:
        self._end("MemberLeft", "the member has left the group")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * DRAIN_SECONDS_MAX):
                await self._is_finished.wait()

    # --- the sink

    def is_writable(self) -> bool:
        return self._outlet.is_writable and self._ending is None

    def send_events(self, subscription: Subscription, batch: EventBatch) -> None:
        partition = self._partition_of[subscription]
        if self._remaining is None:
            self._write_events(batch.encoded(self._events_of(partition)))
            return
        events = batch.events[: self._remaining]
        self._remaining -= len(events)
        if len(events) < len(batch.events):
            self._cuts.setdefault(partition, events[-1].offset + 1 if events else subscription.position)
        if events:
            self._write_events(self._events_of(partition)(batch.name, events))
        if self._remaining == 0:
            self._end("LimitReached", "the limit of events was reached", drain_seconds_max=SLOW_DRAIN_SECONDS_MAX)

    def send_control(self, subscription: Subscription, message: ControlMessage) -> None:
        partition = self._partition_of.get(subscription)
        if partition is None or self._ending is not None or isinstance(message, Checkpoint):
            return
        location: dict[str, object] = {"topic": subscription.name, "partition_id": partition, "offset": message.offset}
        match message:
            case CaughtUp():
                self._write_control("caught_up", location)
            case Lagging():
                self._write_control("lagging", {**location, "behind": message.behind})
            case Gap(from_offset, to_offset, reason):
                self._write_control(
                    "gap", {**location, "from_offset": from_offset, "to_offset": to_offset, "reason": reason}
                )
            case Closed(code, reason, _):
                if code == ROOM_NOT_FOUND:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
                self._end(code, reason, is_committed=code == STOPPING)

    def _write_control(self, control: str, facts: dict[str, object]) -> None:
        self._write(self._control(control, facts))

    def _write_events(self, data: bytes) -> None:
        self._write(data)
        self._events_bytes = self._written_bytes

    def _write(self, data: bytes) -> None:
        self._sent_at = self._loop.time()
        self._written_bytes += len(data)
        self._outlet.write(data)

    # --- triggers of the worker

    def _assignment_changed(self) -> None:
        """Schedule a heartbeat, because the assignment may have changed. Called while the coordinator applies a
        decision."""
        if self._sync_timer is None and not self._is_sync_due:
            self._sync_timer = self._loop.call_later(SYNC_DELAY_SECONDS, self._request_sync)

    def _request_sync(self) -> None:
        self._sync_timer = None
        self._is_sync_due = True
        self._wake_worker()

    def _timeout_expired(self) -> None:
        self._end("TimeoutExpired", "timeout_ms has expired", drain_seconds_max=SLOW_DRAIN_SECONDS_MAX)

    def _request_commit(self) -> None:
        self._is_commit_due = True
        self._later("commit", self._commit_seconds, self._request_commit)
        self._wake_worker()

    def _end(
        self, code: str, reason: str, *, is_committed: bool = True, drain_seconds_max: float = DRAIN_SECONDS_MAX
    ) -> None:
        if self._ending is None:
            self._ending = StreamEnd(code, reason, is_committed and self._is_auto_commit, drain_seconds_max)
            self._wake_worker()

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = self._loop.call_later(seconds, call)

    def _wake_worker(self) -> None:
        if self._worker is None and not self._is_lost:
            self._worker = self._loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            while not self._is_lost:
                if self._ending is not None:
                    await self._finish(self._ending)
                    return
                if self._is_sync_due:
                    self._is_sync_due = False
                    await self._sync_assignment()
                elif self._is_commit_due:
                    self._is_commit_due = False
                    await self._commit_received()
                else:
                    return
        except Exception:
            log.exception("the stream of member %s of group %s failed", self._member_id, self._group_id)
            self._outlet.abort()
        finally:
            self._worker = None
            if self._is_lost or self._ending is not None:
                self._is_finished.set()

    # --- the worker

    async def _sync_assignment(self) -> None:
        """Send a heartbeat, release revoked partitions and start to read new ones."""
        try:
            member_status = await self._groups.heartbeat(self._group_id, self._member_id, list(self._readers))
            if self._is_lost:
                return
            self._session_seconds = member_status.session_timeout_ms / 1000
            self._generation = member_status.generation
            revoked = [one for one in self._readers if one not in member_status.partitions]
            if revoked:
                sent = {one: self._position(one) for one in revoked}
                for partition in revoked:
                    self._stop_reading(partition)
                if self._is_auto_commit and await self._is_drained():
                    await self._commit(sent)
                # Send another heartbeat: it confirms the release, so that other members get the partitions.
                self._is_sync_due = True
            self._send_assignment(member_status)
            await self._begin_reading([one for one in member_status.partitions if one not in self._readers])
        except KafkaError as error:
            if error.code in FINAL_ERRORS:
                self._end(error.code.name, str(error), is_committed=False)
                return
            log.info("group %s: the heartbeat of member %s is retried: %s", self._group_id, self._member_id, error)
        if not self._is_lost:
            seconds = min(HEARTBEAT_SECONDS_MAX, self._session_seconds / HEARTBEATS_PER_SESSION)
            self._later("heartbeat", seconds, self._request_sync)

    def _send_assignment(self, member_status: MemberStatus) -> None:
        assignment = (member_status.generation, tuple(member_status.partitions), member_status.is_rebalancing)
        if assignment != self._sent_assignment and not self._is_lost:
            self._sent_assignment = assignment
            facts: dict[str, object] = {
                "group_id": self._access.shown(self._group_id),
                "member_id": self._member_id,
                "generation": member_status.generation,
                "partitions": list(member_status.partitions),
                "state": state_of(member_status),
            }
            self._write_control("assignment", facts)

    async def _begin_reading(self, partitions: list[int]) -> None:
        if not partitions:
            return
        topic = await self._groups.topic_of(self._group_id)
        shown_topic = self._access.shown(topic.name)
        offsets = await self._groups.committed(self._group_id, partitions)
        for index, offset in zip(partitions, offsets, strict=True):
            if index >= topic.partition_count:
                continue
            reading = topic.stream(index)
            start = self._reset if offset is None else Start.at(offset)
            subscribe = self._services.subscriptions.subscribe
            try:
                try:
                    reader = await subscribe(shown_topic, reading, start, self, OPTIONS)
                except OffsetOutOfRange as error:
                    reader = await subscribe(shown_topic, reading, FROM_OLDEST, self, OPTIONS)
                    self._send_retention_gap(shown_topic, index, error)
            except StreamError as error:
                self._end(error.code, error.message)
                return
            if self._is_lost:
                reader.close()
                return
            if offset is not None:
                self._committed[index] = offset
            self._readers[index] = reader
            self._partition_of[reader] = index
            reader.begin()

    def _send_retention_gap(self, topic: str, partition: int, error: OffsetOutOfRange) -> None:
        """Send a `gap`, because retention has deleted events that the group had not read."""
        location: dict[str, object] = {"topic": topic, "partition_id": partition, "offset": error.oldest - 1}
        gap: dict[str, object] = {"from_offset": error.requested, "to_offset": error.oldest - 1, "reason": "retention"}
        self._write_control("gap", location | gap)

    def _stop_reading(self, partition: int) -> None:
        reader = self._readers.pop(partition)
        reader.close()
        del self._partition_of[reader]
        self._sent_before.pop(partition, None)
        self._committed.pop(partition, None)

    def _position(self, partition: int) -> int:
        return self._cuts.get(partition, self._readers[partition].position)

    async def _commit_received(self) -> None:
        if not self._has_received(self._sent_before_bytes):
            return
        try:
            await self._commit(self._sent_before)
        except KafkaError as error:
            # The next interval retries the commit. If the member was removed, the next heartbeat ends the stream.
            log.info("group %s: the commit of member %s is retried: %s", self._group_id, self._member_id, error)
        self._sent_before = {one: self._position(one) for one in self._readers}
        self._sent_before_bytes = self._events_bytes

    def _has_received(self, written_bytes: int) -> bool:
        """Return whether the client's machine has received the first `written_bytes` bytes of the stream."""
        return self._written_bytes - self._outlet.unsent_bytes >= written_bytes

    async def _is_drained(self, seconds_max: float = DRAIN_SECONDS_MAX) -> bool:
        """Wait up to `seconds_max` until the client's machine has received all sent events. Return whether the machine
        has received them."""
        deadline = self._loop.time() + min(seconds_max, self._session_seconds / 2)
        while not (is_received := self._has_received(self._events_bytes)):
            if self._is_lost or self._loop.time() >= deadline:
                break
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        return is_received

    async def _commit(self, positions: dict[int, int]) -> None:
        changed = [(one, offset) for one, offset in positions.items() if self._committed.get(one) != offset]
        if changed:
            await self._groups.commit(self._group_id, changed, member_id=self._member_id, generation=self._generation)
            self._committed.update((one, offset) for one, offset in changed if one in self._readers)

    async def _finish(self, ending: StreamEnd) -> None:
        sent = {one: self._position(one) for one in self._readers}
        for partition in tuple(self._readers):
            self._stop_reading(partition)
        self._stop_watching()
        if ending.is_committed and await self._is_drained(ending.drain_seconds_max):
            try:
                await self._commit(sent)
            except KafkaError as error:
                log.info("group %s: the last commit of member %s failed: %s", self._group_id, self._member_id, error)
        reason = self._access.shown_text(ending.reason)
        shown_id = self._access.shown(self._group_id)
        self._write_control("closed", {"group_id": shown_id, "code": ending.code, "reason": reason})
        self._outlet.write(LAST_CHUNK)
        self._outlet.close()


async def stream_group(services: GroupServices, request: web.Request) -> web.StreamResponse:
    groups = groups_of(services)
    check_streamable(request)
    query = query_of(request, StreamQuery)
    group_id, member_id = request.match_info["group"], request.match_info["member"]
    access = access_of(request)
    access.hold(Operation.READ, ResourceType.TOPIC, groups.find(group_id).topic)
    # If the member is unknown, this heartbeat fails before the stream begins, and the answer has an error status.
    await groups.heartbeat(group_id, member_id, None)
    is_sse = accepts(request, EVENT_STREAM)
    async with SubscriptionSlot(access):
        return await take_over(
            services.port,
            request,
            chunked_head(request, EVENT_STREAM if is_sse else NDJSON),
            lambda outlet: GroupStream(services, access, group_id, member_id, query, is_sse, outlet),
        )


ROUTES: tuple[Route[GroupServices], ...] = (
    Route(
        "GET",
        "/consumer-groups/{group}/members/{member}/stream",
        stream_group,
        "Stream the events of a member's partitions",
        "NDJSON, or Server-Sent Events if the request accepts `text/event-stream`. While the stream is open the member "
        "needs no heartbeats. A member has one stream: a second one ends the first.",
        tag=TAG,
        parameters=MEMBER_PATH,
        query=StreamQuery,
        answers={200: Answer("Events and control messages.", {NDJSON: TopicEvent | GroupControl, EVENT_STREAM: None})},
        is_streaming=True,
        needs=(READ_GROUP, READ_TOPICS),
        charges=QuotaKind.CONSUME,
    ),
)
