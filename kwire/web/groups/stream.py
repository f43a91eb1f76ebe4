"""GET /consumer-groups/{group}/members/{member}/stream: the events of a member's partitions as they come.

The stream begins in each partition where the group has committed, follows the member's assignment as partitions come
and go, and keeps the member alive as long as it is open: nobody has to poll, or to send heartbeats. It is lines of
JSON, or Server-Sent Events if the request accepts those. Besides events there are marks: `assignment` (the partitions,
the generation, and `stable` or `rebalancing`), `caught_up`, `lagging`, `gap`, and `closed` as the last word.

A partition that is to go to another member is let go of in order: nothing more of it is sent, what was sent is
committed, and then the other member gets it.

With auto-commit the stream commits, every interval, what it had sent one interval before; and everything it has sent
when a partition goes, the member leaves, or the stream ends by `limit`, by `timeout_ms` or because the node stops. Only
what has arrived at the client's machine counts: a client that takes nothing commits nothing, and neither does a
connection that breaks, so what was on its way comes again. Who has to know that an event is processed before it counts
says `auto_commit=false` and commits by itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from aiohttp import hdrs, web

from kwire.broker.subscriptions.marks import ROOM_NOT_FOUND, STOPPING, CaughtUp, Checkpoint, Closed, Gap, Lagging, Mark
from kwire.broker.subscriptions.portions import Portion
from kwire.broker.subscriptions.start import FROM_NEWEST, FROM_OLDEST, Start
from kwire.broker.subscriptions.subscription import OnLag, SubscribeOptions, Subscription
from kwire.coordinator.web_groups import Standing, WebGroups
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange, StreamError
from kwire.web.bodies import query_of
from kwire.web.groups.consumer_groups import MEMBER_PATH, TAG, groups_of, state_of
from kwire.web.groups.encodings import ndjson_control, ndjson_events, sse_control, sse_events
from kwire.web.rooms.encodings import NDJSON_HEARTBEAT, SSE_HEARTBEAT
from kwire.web.route import EVENT_STREAM, NDJSON, Answer, Route
from kwire.web.services import WebServices
from kwire.web.streaming import LAST_CHUNK, Outlet, check_streamable, chunked_head
from kwire.web.streaming import stream as take_over
from kwire.web.topics.events import TopicEvent

log = logging.getLogger("kwire.web")

LIMIT_MAX = 1_000_000
TIMEOUT_MS_MAX = 86_400_000
# Heartbeats of a stream: three in a session, and often enough to notice soon that a topic has more partitions.
HEARTBEATS_PER_SESSION = 3
HEARTBEAT_SECONDS_MAX = 3.0
# Changes of a group come in bursts; a moment later all of one are known.
FOLLOW_DELAY_SECONDS = 0.003
# How long a partition that goes to another member, and a member that leaves, wait for the client to take what it was
# sent; and how often that is looked at. A node that stops does not wait much longer.
TAKING_SECONDS_MAX = 1.0
TAKING_PAUSE_SECONDS = 0.002
# The same where nobody waits but the client; half of a session at the most.
SLOW_TAKING_SECONDS_MAX = 30.0
# Until a member whose stream says nothing of it has checked in.
SESSION_SECONDS_MIN = 1.0
# A line that says nothing, so that a client that is gone is noticed.
IDLE_SECONDS = 10.0
# What ends a stream because the member is no member any more, or there is nothing to read.
FINAL_ERRORS = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)

# A group never loses events because a reader is slow.
OPTIONS = SubscribeOptions(on_lag=OnLag.CATCHUP)


class StreamQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    auto_commit: (
        Annotated[
            bool, msgspec.Meta(description="Commit what was sent; by default as kwire.rest.groups.auto.commit says.")
        ]
        | None
    ) = None
    reset: Annotated[
        Literal["earliest", "latest"], msgspec.Meta(description="Where to begin if nothing is committed.")
    ] = "earliest"
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX, description="End after so many events.")] | None = None
    timeout_ms: (
        Annotated[int, msgspec.Meta(ge=0, le=TIMEOUT_MS_MAX, description="End after so many milliseconds.")] | None
    ) = None


class GroupControl(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A mark. `assignment` has the first fields, `closed` the code and reason, the others a place in a partition."""

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


class Ending(msgspec.Struct):
    """Why a stream ends, whether what it has sent counts, and how long the client may take for it."""

    code: str
    reason: str
    is_committed: bool
    taking_seconds_max: float


class GroupStream:
    """One member's stream: the session of its connection, and the sink of a subscription for each partition.

    What has to wait (check-ins, commits, subscribing) is done by one worker, one after the other; it exists only while
    there is something to do.
    """

    def __init__(
        self, services: WebServices, group_id: str, member_id: str, query: StreamQuery, is_sse: bool, outlet: Outlet
    ) -> None:
        config = services.config.rest_groups
        self._services = services
        self._groups: WebGroups = services.web_groups
        self._group_id = group_id
        self._member_id = member_id
        self._reset = FROM_OLDEST if query.reset == "earliest" else FROM_NEWEST
        self._left = query.limit
        self._is_auto_commit = config.is_auto_commit if query.auto_commit is None else query.auto_commit
        self._commit_seconds = config.auto_commit_interval_ms / 1000
        self._outlet = outlet
        self._events_of = sse_events if is_sse else ndjson_events
        self._control = sse_control if is_sse else ndjson_control
        self._silence = SSE_HEARTBEAT if is_sse else NDJSON_HEARTBEAT

        self._loop = asyncio.get_running_loop()
        self._readers: dict[int, Subscription] = {}
        self._partition_of: dict[Subscription, int] = {}
        # Where a portion was cut because the limit was reached.
        self._cuts: dict[int, int] = {}
        self._told: tuple[object, ...] = ()
        self._generation = 0
        self._session_seconds = SESSION_SECONDS_MIN
        # What had been sent one interval ago, or longer if the client has not taken it, and what is committed.
        self._written_bytes = 0
        # So much had been written when the last event was.
        self._events_bytes = 0
        self._sent_before: dict[int, int] = {}
        self._sent_before_bytes = 0
        self._committed: dict[int, int] = {}
        self._sent_at = self._loop.time()

        self._is_lost = False
        self._is_moved = True
        self._is_commit_due = False
        self._ending: Ending | None = None
        self._has_finished = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._follow_timer: asyncio.TimerHandle | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._groups.coordinator.watch(group_id, self._moved)
        self._groups.begin_reading(group_id, member_id, self)
        if query.timeout_ms is not None:
            self._later("end", query.timeout_ms / 1000, self._time_is_up)
        if self._is_auto_commit:
            self._later("commit", self._commit_seconds, self._commit_is_due)
        self._work_on()

    # --- the session

    def received(self, data: bytes) -> None:
        """Whatever a client sends behind its request means nothing here."""

    def writable(self) -> None:
        for reader in tuple(self._readers.values()):
            reader.resume()

    def tick(self, now: float) -> None:
        if now - self._sent_at >= IDLE_SECONDS and self._outlet.is_writable:
            self._write(self._silence)

    def stop(self) -> None:
        self._end(STOPPING, "the server is stopping")

    def lost(self) -> None:
        self._is_lost = True
        self._rest()
        self._groups.end_reading(self._group_id, self._member_id, self)
        for partition in tuple(self._readers):
            self._stop_reading(partition)
        if self._worker is None:
            self._has_finished.set()

    def _rest(self) -> None:
        """Nothing more is to be done when time has passed or partitions move."""
        for timer in self._timers.values():
            timer.cancel()
        if self._follow_timer is not None:
            self._follow_timer.cancel()
        self._groups.coordinator.unwatch(self._group_id, self._moved)

    # --- the reader of a member

    def replaced(self) -> None:
        self._end("Replaced", "the member reads over another connection now", is_committed=False)

    async def leave(self) -> None:
        self._end("Left", "the member has left the group")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * TAKING_SECONDS_MAX):
                await self._has_finished.wait()

    # --- the sink

    def is_writable(self) -> bool:
        return self._outlet.is_writable and self._ending is None

    def send_events(self, subscription: Subscription, portion: Portion) -> None:
        partition = self._partition_of[subscription]
        if self._left is None:
            self._write_events(portion.encoded(self._events_of(partition)))
            return
        events = portion.events[: self._left]
        self._left -= len(events)
        if len(events) < len(portion.events):
            self._cuts.setdefault(partition, events[-1].offset + 1 if events else subscription.position)
        if events:
            self._write_events(self._events_of(partition)(portion.name, events))
        if self._left == 0:
            self._end("LimitReached", "limit events were sent", taking_seconds_max=SLOW_TAKING_SECONDS_MAX)

    def send_mark(self, subscription: Subscription, mark: Mark) -> None:
        partition = self._partition_of.get(subscription)
        if partition is None or self._ending is not None or isinstance(mark, Checkpoint):
            return
        place: dict[str, object] = {"topic": subscription.name, "partition_id": partition, "offset": mark.offset}
        match mark:
            case CaughtUp():
                self._tell("caught_up", place)
            case Lagging():
                self._tell("lagging", {**place, "behind": mark.behind})
            case Gap(from_offset, to_offset, reason):
                self._tell("gap", {**place, "from_offset": from_offset, "to_offset": to_offset, "reason": reason})
            case Closed(code, reason, _):
                if code == ROOM_NOT_FOUND:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
                self._end(code, reason, is_committed=code == STOPPING)

    def _tell(self, control: str, facts: dict[str, object]) -> None:
        self._write(self._control(control, facts))

    def _write_events(self, data: bytes) -> None:
        self._write(data)
        self._events_bytes = self._written_bytes

    def _write(self, data: bytes) -> None:
        self._sent_at = self._loop.time()
        self._written_bytes += len(data)
        self._outlet.write(data)

    # --- what happens, and what it asks of the worker

    def _moved(self) -> None:
        """Partitions of the group may move. Called amid a decision of the coordinator."""
        if self._follow_timer is None and not self._is_moved:
            self._follow_timer = self._loop.call_later(FOLLOW_DELAY_SECONDS, self._follow_now)

    def _follow_now(self) -> None:
        self._follow_timer = None
        self._is_moved = True
        self._work_on()

    def _time_is_up(self) -> None:
        self._end("TimeIsUp", "timeout_ms is over", taking_seconds_max=SLOW_TAKING_SECONDS_MAX)

    def _commit_is_due(self) -> None:
        self._is_commit_due = True
        self._later("commit", self._commit_seconds, self._commit_is_due)
        self._work_on()

    def _end(
        self, code: str, reason: str, *, is_committed: bool = True, taking_seconds_max: float = TAKING_SECONDS_MAX
    ) -> None:
        if self._ending is None:
            self._ending = Ending(code, reason, is_committed and self._is_auto_commit, taking_seconds_max)
            self._work_on()

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = self._loop.call_later(seconds, call)

    def _work_on(self) -> None:
        if self._worker is None and not self._is_lost:
            self._worker = self._loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            while not self._is_lost:
                if self._ending is not None:
                    await self._finish(self._ending)
                    return
                if self._is_moved:
                    self._is_moved = False
                    await self._follow()
                elif self._is_commit_due:
                    self._is_commit_due = False
                    await self._commit_what_was_taken()
                else:
                    return
        except Exception:
            log.exception("the stream of member %s of group %s failed", self._member_id, self._group_id)
            self._outlet.abort()
        finally:
            self._worker = None
            if self._is_lost or self._ending is not None:
                self._has_finished.set()

    # --- the worker

    async def _follow(self) -> None:
        """Check in, let go of what is not the member's any more, begin to read what is new."""
        try:
            standing = await self._groups.check_in(self._group_id, self._member_id, list(self._readers))
            if self._is_lost:
                return
            self._session_seconds = standing.session_timeout_ms / 1000
            self._generation = standing.generation
            gone = [one for one in self._readers if one not in standing.partitions]
            if gone:
                sent = {one: self._position(one) for one in gone}
                for partition in gone:
                    self._stop_reading(partition)
                if self._is_auto_commit and await self._is_all_taken():
                    await self._commit(sent)
                # Once more: this is what lets the others have them.
                self._is_moved = True
            self._tell_assignment(standing)
            await self._begin_reading([one for one in standing.partitions if one not in self._readers])
        except KafkaError as error:
            if error.code in FINAL_ERRORS:
                self._end(error.code.name, str(error), is_committed=False)
                return
            log.info("group %s: the stream of %s tries again: %s", self._group_id, self._member_id, error)
        if not self._is_lost:
            seconds = min(HEARTBEAT_SECONDS_MAX, self._session_seconds / HEARTBEATS_PER_SESSION)
            self._later("heartbeat", seconds, self._follow_now)

    def _tell_assignment(self, standing: Standing) -> None:
        told = (standing.generation, tuple(standing.partitions), standing.is_rebalancing)
        if told != self._told and not self._is_lost:
            self._told = told
            facts: dict[str, object] = {
                "group_id": self._group_id,
                "member_id": self._member_id,
                "generation": standing.generation,
                "partitions": list(standing.partitions),
                "state": state_of(standing),
            }
            self._tell("assignment", facts)

    async def _begin_reading(self, partitions: list[int]) -> None:
        if not partitions:
            return
        topic = self._groups.topic_of(self._group_id)
        offsets = await self._groups.committed(self._group_id, partitions)
        for index, offset in zip(partitions, offsets, strict=True):
            if index >= len(topic.partitions):
                continue
            reading = topic.stream(index)
            start = self._reset if offset is None else Start.at(offset)
            subscribe = self._services.subscriptions.subscribe
            try:
                try:
                    reader = await subscribe(topic.name, reading, start, self, OPTIONS)
                except OffsetOutOfRange as error:
                    reader = await subscribe(topic.name, reading, FROM_OLDEST, self, OPTIONS)
                    self._tell_lost(topic.name, index, error)
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

    def _tell_lost(self, topic: str, partition: int, error: OffsetOutOfRange) -> None:
        """Retention was faster than the group."""
        place: dict[str, object] = {"topic": topic, "partition_id": partition, "offset": error.oldest - 1}
        gap: dict[str, object] = {"from_offset": error.requested, "to_offset": error.oldest - 1, "reason": "retention"}
        self._tell("gap", place | gap)

    def _stop_reading(self, partition: int) -> None:
        reader = self._readers.pop(partition)
        reader.close()
        del self._partition_of[reader]
        self._sent_before.pop(partition, None)
        self._committed.pop(partition, None)

    def _position(self, partition: int) -> int:
        return self._cuts.get(partition, self._readers[partition].position)

    async def _commit_what_was_taken(self) -> None:
        if not self._has_taken(self._sent_before_bytes):
            return
        try:
            await self._commit(self._sent_before)
        except KafkaError as error:
            # Who is no member any more hears it at the next check-in; everything else is tried again.
            log.info("group %s: %s could not commit: %s", self._group_id, self._member_id, error)
        self._sent_before = {one: self._position(one) for one in self._readers}
        self._sent_before_bytes = self._events_bytes

    def _has_taken(self, written_bytes: int) -> bool:
        """Whether so much of what was written is with the client's machine."""
        return self._written_bytes - self._outlet.unsent_bytes >= written_bytes

    async def _is_all_taken(self, seconds_max: float = TAKING_SECONDS_MAX) -> bool:
        """Whether the client's machine has all events that were sent; if not, it gets a while for it."""
        deadline = self._loop.time() + min(seconds_max, self._session_seconds / 2)
        while not (is_taken := self._has_taken(self._events_bytes)):
            if self._is_lost or self._loop.time() >= deadline:
                break
            await asyncio.sleep(TAKING_PAUSE_SECONDS)
        return is_taken

    async def _commit(self, positions: dict[int, int]) -> None:
        news = [(one, offset) for one, offset in positions.items() if self._committed.get(one) != offset]
        if news:
            await self._groups.commit(self._group_id, news, member_id=self._member_id, generation=self._generation)
            self._committed.update((one, offset) for one, offset in news if one in self._readers)

    async def _finish(self, ending: Ending) -> None:
        sent = {one: self._position(one) for one in self._readers}
        for partition in tuple(self._readers):
            self._stop_reading(partition)
        self._rest()
        if ending.is_committed and await self._is_all_taken(ending.taking_seconds_max):
            try:
                await self._commit(sent)
            except KafkaError as error:
                log.info("group %s: %s ended without its last commit: %s", self._group_id, self._member_id, error)
        self._tell("closed", {"group_id": self._group_id, "code": ending.code, "reason": ending.reason})
        self._outlet.write(LAST_CHUNK)
        self._outlet.close()


async def stream_group(services: WebServices, request: web.Request) -> web.StreamResponse:
    groups = groups_of(services)
    check_streamable(request)
    query = query_of(request, StreamQuery)
    group_id, member_id = request.match_info["group"], request.match_info["member"]
    # Who is no member is told so by a status.
    await groups.check_in(group_id, member_id, None)
    is_sse = EVENT_STREAM in request.headers.get(hdrs.ACCEPT, "")
    return await take_over(
        services,
        request,
        chunked_head(request, EVENT_STREAM if is_sse else NDJSON),
        lambda outlet: GroupStream(services, group_id, member_id, query, is_sse, outlet),
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/consumer-groups/{group}/members/{member}/stream",
        stream_group,
        "The events of a member's partitions, as they come",
        "Lines of JSON, or Server-Sent Events if the request accepts `text/event-stream`. While it is open the member "
        "needs no heartbeats. A member has one stream: a second one ends the first.",
        tag=TAG,
        parameters=MEMBER_PATH,
        query=StreamQuery,
        answers={200: Answer("Events and marks.", {NDJSON: TopicEvent | GroupControl, EVENT_STREAM: None})},
        is_streaming=True,
    ),
)
