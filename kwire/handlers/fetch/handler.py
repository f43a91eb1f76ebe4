"""Fetch 4-18: record batches from given offsets, waiting for them if there are too few.

- Answers as soon as `min_bytes` are there, some partition cannot be read, or `max_wait_ms` are over; then with what is
  there. It does not wait either when it left records behind (the limits are reached, or the segment ends): waiting
  would not bring more of them.
- Whole batches as they were written, the first one even if it is larger than the limits, so that a reader gets on.
- An offset inside a batch gets the whole batch; one outside the log is OFFSET_OUT_OF_RANGE.
- A partition named twice is answered once, for what was said last. One that does not exist is told when others that
  were asked for have been waited for: nothing is gained by asking again at once. A large request does not wait then.
- Who reads committed data gets nothing from the last stable offset on, waits for that to rise, and is told which
  transactions in what it gets were aborted: to leave them out is the client's part. Everybody is told that offset.
- Version 4 brought the isolation level, 5 the start of the log; 6 lets a disk that failed be told as such, before it is
  NOT_LEADER_OR_FOLLOWER.
- Version 7 brought sessions: epoch 0 asks for one, -1 ends it or does without, any other goes on with one. Then what
  is not named is as before, and only what has changed is answered (records, errors, ends and starts of logs).
  `broker/fetch_sessions.py` says who gets one.
- Version 9 checks the client's leader epoch; 10 is the first that may read topics compressed with zstd; 11 brought the
  client's rack, which changes nothing where there is one copy.
- Version 12 tells where the log went another way when the client says which epoch it read last (diverging epoch).
- Version 13 names topics by id; a session keeps to what it began with. 16 tells where the leader is when the epoch is
  not the leader's. 14, 15, 17 and 18 are for followers: here none has a copy, so a follower is refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kwire.broker.chunking import call_in_turn, eager, next_turn, spread, spread_nested
from kwire.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Asked, CachedPartition, FetchSession
from kwire.broker.partition import UNKNOWN_EPOCH, Partition, code_of
from kwire.broker.topics import Topic
from kwire.broker.turns import OPENS_PER_TURN, WEIGHT_PER_TURN
from kwire.broker.waits import LongPoll
from kwire.coordinator.asking import settled
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.handlers.fetch_errors import FIRST_TOPIC_ID_VERSION, failed, failed_response
from kwire.handlers.fetch_requests import has_overlong_names, has_repeats, is_large, without_repeats
from kwire.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from storage.epochs import UNDEFINED
from storage.errors import OffsetOutOfRange, StorageError
from storage.format import ZSTD
from storage.transactions import AbortedTransaction as AbortedInLog
from storage.windows import EMPTY

log = logging.getLogger("kwire.handlers")

FIRST_STORAGE_ERROR_VERSION = 6
FIRST_ZSTD_VERSION = 10
FIRST_LEADER_HINT_VERSION = 16
READ_COMMITTED = 1
# Under memory pressure pages may be gone again before they are sent; after some tries the loop reads them itself.
WARM_UPS_MAX = 3

# What a turn of the loop may cost. To find that a partition of a session has not changed is next to nothing.
_UNCHANGED_WEIGHT = 1
_TOPIC_WEIGHT = 5
_READ_WEIGHT = 20
_TURN_WEIGHT = _READ_WEIGHT * WEIGHT_PER_TURN
_OPEN_WEIGHT = _TURN_WEIGHT // OPENS_PER_TURN

# Told of most of what readers of committed data get. Nobody changes it.
_NONE_ABORTED: list[AbortedTransaction] = []

# Errors after which a client looks for the leader; it is told where.
_LEADER_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(context: Context, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    by_id = context.api_version >= FIRST_TOPIC_ID_VERSION
    if is_large(request) or (
        request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH) and has_repeats(request.topics, by_id)
    ):
        return eager(_handle_in_turns(context, request, by_id))
    sessions = context.services.fetch_sessions
    if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        return _answer(_Look(context, request, None))
    try:
        session = _find_session(context, request, by_id)
        for asked in request.topics:
            session.ask(asked.topic_id if by_id else asked.topic, asked.partitions)
        for gone in request.forgotten_topics_data:
            session.forget(gone.topic_id if by_id else gone.topic, gone.partitions)
        sessions.advance(session)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    if not session.partitions:
        return FetchResponse(responses=[])
    return _answer(_Look(context, request, session))


def _find_session(context: Context, request: FetchRequest, by_id: bool) -> FetchSession:
    sessions = context.services.fetch_sessions
    session = sessions.find(request.session_id, request.session_epoch, uses_topic_ids=by_id)
    if not by_id and has_overlong_names(request.topics):
        sessions.close(request.session_id)
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return session


async def _handle_in_turns(context: Context, request: FetchRequest, by_id: bool) -> FetchResponse:
    """The same for a request that names very many partitions, or one of them twice."""
    sessions = context.services.fetch_sessions
    if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        request.topics = await without_repeats(request.topics, by_id)
        look = _Look(context, request, None, in_turns=True)
        response = await settled(_answer(look))
        if request.session_epoch == INITIAL_EPOCH:
            response.session_id = await look.new_session_in_turns()
        return response
    try:
        session = _find_session(context, request, by_id)
        async for asked, one in spread_nested(request.topics, lambda asked: asked.partitions):
            session.ask(asked.topic_id if by_id else asked.topic, (one,))
        async for gone, index in spread_nested(request.forgotten_topics_data, lambda gone: gone.partitions):
            session.forget(gone.topic_id if by_id else gone.topic, (index,))
        # Another request may have gone on with the session meanwhile.
        sessions.advance(_find_session(context, request, by_id))
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    if not session.partitions:
        return FetchResponse(responses=[])
    return await settled(_answer(_Look(context, request, session)))


def _answer(look: "_Look") -> FetchResponse | Awaitable[FetchResponse]:
    steps = look.steps()
    for _ in steps:
        return _answer_in_turns(look, steps)
    if look.warm_ups:
        return _answer_when_warm(look)
    return look.answer() if look.is_enough else _GrownAnswer(look)


async def _answer_in_turns(look: "_Look", steps: Iterator[None]) -> FetchResponse:
    """There is more to look at than others can wait for."""
    await next_turn()
    await _finish(steps)
    if look.warm_ups:
        return await _answer_when_warm(look)
    return look.answer() if look.is_enough else await _GrownAnswer(look)


async def _finish(steps: Iterator[None]) -> None:
    for _ in steps:
        await next_turn()


async def _answer_when_warm(look: "_Look") -> FetchResponse:
    """Pages that are not in memory are fetched by threads, then everything is looked at again."""
    for _ in range(WARM_UPS_MAX):
        with suppress(StorageError):  # met again by the read, which tells it of the one partition it is about
            await look.context.services.cold_reads.do(look.warm_ups)
        await _finish(look.steps())
        if not look.warm_ups:
            break
    else:
        await _finish(look.steps(is_patient=True))
    return look.answer() if look.is_enough else await _GrownAnswer(look)


class _GrownAnswer(asyncio.Future[FetchResponse]):
    """Looks again when enough has been appended or the time is up, and answers with what is there then.

    A future itself: so to end the wait is part of its `cancel`, and no callback has to see to that.
    """

    __slots__ = ("_deadline", "_look", "_poll")

    def __init__(self, look: "_Look") -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop=loop)
        self._look = look
        max_wait_ms = look.request.max_wait_ms
        self._deadline = loop.time() + max_wait_ms / 1000
        self._poll = self._wait(max_wait_ms)

    def cancel(self, msg: Any | None = None) -> bool:
        if not self.done():
            self._poll.cancel()
        return super().cancel(msg)

    def _wait(self, max_wait_ms: float) -> LongPoll:
        look, loop = self._look, self.get_loop()
        missing = look.request.min_bytes - look.found_bytes
        again = self._look_again
        return LongPoll(look.partitions, missing, max_wait_ms, again, is_committed=look.is_committed, loop=loop)

    def _look_again(self) -> None:
        # What was just appended is in memory, so nothing is left to be warmed up but what an idle time evicted.
        self._look_on(self._look.steps())

    def _look_on(self, steps: Iterator[None]) -> None:
        if self.done():
            return
        try:
            self._finish_look(steps)
        except Exception:
            # Nobody else would notice: this is a callback of the loop. The client must not wait for ever.
            log.exception("Fetch failed while it waited for records")
            look = self._look
            del self._poll
            self.set_result(failed_response(look.context, look.request, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _finish_look(self, steps: Iterator[None]) -> None:
        for _ in steps:
            call_in_turn(partial(self._look_on, steps))
            return
        look = self._look
        if self._poll.is_guess and not look.is_enough:
            left_s = self._deadline - self.get_loop().time()
            if left_s > 0:
                self._poll = self._wait(left_s * 1000)
                return
        answer = look.answer()
        # The two know each other: what they hold should not have to wait for the garbage collector.
        del self._poll
        self.set_result(answer)


class _Look:
    """A look at every partition asked for. It is only good for an answer if nothing needs to be warmed up first.

    Without a session the request names all that is asked for, and is told of all of it; with one, the session has it,
    and what has changed since the answer before is told. One class, because Python is quicker with code that only
    ever meets one.
    """

    __slots__ = (
        "_by_id",
        "_endpoint",
        "_epoch",
        "_in_turns",
        "_is_follower",
        "_is_limited",
        "_is_patient",
        "_left_bytes",
        "_left_weight",
        "_news",
        "_opens_session",
        "_responses",
        "_session",
        "context",
        "found_bytes",
        "has_failed",
        "has_more",
        "is_committed",
        "partitions",
        "request",
        "warm_ups",
    )

    def __init__(
        self, context: Context, request: FetchRequest, session: FetchSession | None, *, in_turns: bool = False
    ) -> None:
        self.context = context
        self._in_turns = in_turns
        self._opens_session = not in_turns and request.session_epoch == INITIAL_EPOCH
        self.request = request
        self._session = session
        if session is not None:
            self._epoch = session.epoch
        version = context.api_version
        self._by_id = version >= FIRST_TOPIC_ID_VERSION
        self._is_follower = request.replica_id >= 0 or request.replica_state.replica_id >= 0
        # Not everything may be read by this one.
        self._is_limited = self._is_follower or version < FIRST_ZSTD_VERSION
        self.is_committed = request.isolation_level == READ_COMMITTED

    def steps(self, *, is_patient: bool = False) -> Iterator[None]:
        """Look at everything, anew each time; it comes back in between when a turn of the loop is over.

        A patient look waits for the disk, and the whole loop with it.
        """
        self.found_bytes = 0
        # Some partition that exists cannot be read, or not from there.
        self.has_failed = False
        self.has_more = False
        self.partitions: list[Partition] = []
        self.warm_ups: list[Callable[[], None]] = []
        self._is_patient = is_patient
        self._left_bytes = min(self.request.max_bytes, self.context.services.config.network.fetch_bytes_max)
        self._left_weight = _TURN_WEIGHT
        self._responses: list[FetchableTopicResponse] = []
        # Of the leader, when somebody has to be told where it is.
        self._endpoint: NodeEndpoint | None = None
        session = self._session
        if session is None:
            return self._look_at_request()
        self._news: list[tuple[CachedPartition, PartitionData]] = []
        return self._look_at_session(session)

    def answer(self) -> FetchResponse:
        """What was seen, as this reader is told it. For the last look only: sessions remember what they told."""
        if self._session is not None:
            return self._tell_news(self._session)
        return self._response(self._new_session() if self._opens_session else NO_SESSION)

    @property
    def is_enough(self) -> bool:
        return (
            self.found_bytes >= self.request.min_bytes
            or self.has_failed
            or self.has_more
            or self.request.max_wait_ms <= 0
            or not self.partitions
        )

    def _look_at(self, partition: Partition, asked: Asked) -> PartitionData:
        try:
            return self._read(partition, asked)
        except KafkaError as error:
            code = error.code
        except StorageError as error:
            code = code_of(error)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.context.api_version < FIRST_STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.has_failed = True
        data = failed(asked.partition, code)
        if code in _LEADER_ELSEWHERE and self.context.api_version >= FIRST_LEADER_HINT_VERSION:
            self._tell_leader(data, partition)
        return data

    def _read(self, partition: Partition, asked: Asked) -> PartitionData:
        self.partitions.append(partition)
        partition.is_fetched = True
        self._left_weight -= _READ_WEIGHT if partition.is_open else _OPEN_WEIGHT
        if asked.current_leader_epoch not in partition.accepted_epochs:
            partition.check_leader(asked.current_leader_epoch)
        if self._is_limited:
            self._check_limits(partition, asked)
        diverging = None if asked.last_fetched_epoch < 0 else _diverging_epoch(partition, asked)
        records, aborted = EMPTY, _NONE_ABORTED if self.is_committed else None
        if diverging is not None:
            self.has_more = True
        elif self._is_patient or (cold_start := self._cold_start(partition, asked.fetch_offset)) is None:
            records, aborted = self._read_records(partition, asked)
        else:
            self.warm_ups.append(cold_start)
        high_watermark = partition.high_watermark
        data = PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=high_watermark,
            last_stable_offset=partition.last_stable_offset if partition.is_unstable else high_watermark,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )
        if diverging is not None:
            data.diverging_epoch = diverging
        return data

    def _check_limits(self, partition: Partition, asked: Asked) -> None:
        if self._is_follower:
            # As Kafka tells a node that has no copy of the partition: to ask again when its metadata is newer.
            is_epoch_known = asked.current_leader_epoch != UNKNOWN_EPOCH
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if is_epoch_known else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.settings.compression == ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    def _cold_start(self, partition: Partition, offset: int) -> Callable[[], None] | None:
        cold_start = partition.cold_start(offset)
        return partition.cold_aborted(offset) if cold_start is None and self.is_committed else cold_start

    def _read_records(self, partition: Partition, asked: Asked) -> tuple[memoryview, list[AbortedTransaction] | None]:
        # Only the very first batch of an answer may pass the limits.
        found_bytes, limit, left_bytes = self.found_bytes, asked.partition_max_bytes, self._left_bytes
        if limit > left_bytes:
            limit = left_bytes
        told: list[AbortedTransaction] | None = None
        if self.is_committed:
            read, aborted = partition.read_committed(asked.fetch_offset, limit, at_least_one=not found_bytes)
            end = partition.last_stable_offset if partition.is_unstable else partition.high_watermark
            told = _told_aborted(aborted) if aborted else _NONE_ABORTED
        else:
            read = partition.read(asked.fetch_offset, limit, at_least_one=not found_bytes)
            end = partition.high_watermark
        view = read.view
        size = len(view)
        # A read ends with its segment: what lies behind is there already, so there is nothing to wait for. Unless
        # nothing was found where something would have been taken: then a gap lies before what may not be read yet.
        if read.next_offset < end and (size or found_bytes):
            self.has_more = True
        if size:
            self.found_bytes = found_bytes + size
            self._left_bytes = left_bytes - size if left_bytes > size else 0
            if not self._is_patient and not read.is_warm():
                self.warm_ups.append(read.warm_up)
        return view, told

    def _missing(self, topic: Topic | None, asked: Asked) -> PartitionData:
        self._left_weight -= _READ_WEIGHT
        # What a large request names must not be held in memory while it waits for something else.
        self.has_failed = self.has_failed or self._in_turns
        is_id_unknown = topic is None and self._by_id
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_id_unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None and topic.is_hidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return failed(asked.partition, code)

    def _tell_leader(self, data: PartitionData, partition: Partition) -> None:
        node = self.context.services.node
        data.current_leader = LeaderIdAndEpoch(leader_id=node.node_id, leader_epoch=partition.leader_epoch)
        host, port = self.context.endpoint
        self._endpoint = NodeEndpoint(node_id=node.node_id, host=host, port=port, rack=node.rack)

    def _response(self, session_id: int) -> FetchResponse:
        response = FetchResponse(session_id=session_id, responses=self._responses)
        if self._endpoint is not None:
            response.node_endpoints.append(self._endpoint)
        return response

    # --- requests that name all they want

    def _look_at_request(self) -> Iterator[None]:
        topics, by_id = self.context.services.topics, self._by_id
        for asked in self.request.topics:
            self._left_weight -= _TOPIC_WEIGHT
            if self._left_weight <= 0:
                self._left_weight = _TURN_WEIGHT
                yield
            topic = topics.get_by_id(asked.topic_id) if by_id else topics.get(asked.topic)
            is_hidden = topic is not None and topic.is_hidden
            answers = []
            for one in asked.partitions:
                if self._left_weight <= 0:
                    self._left_weight = _TURN_WEIGHT
                    yield
                partition = topic.partition(one.partition) if topic is not None else None
                if partition is not None and not is_hidden:
                    answers.append(self._look_at(partition, one))
                else:
                    answers.append(self._missing(topic, one))
            self._responses.append(
                FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=answers)
            )

    def _new_session(self) -> int:
        topics, sessions = self.request.topics, self.context.services.fetch_sessions
        if has_overlong_names(topics):
            return NO_SESSION
        session = sessions.begin(sum(len(asked.partitions) for asked in topics), uses_topic_ids=self._by_id)
        if session is None:
            return NO_SESSION
        for asked, response in zip(topics, self._responses, strict=True):
            for one, data in zip(asked.partitions, response.partitions, strict=True):
                self._fill(session, asked, one, data)
        return sessions.add(session)

    async def new_session_in_turns(self) -> int:
        """The same for very many partitions; called after `answer`, which then has opened none."""
        topics, sessions = self.request.topics, self.context.services.fetch_sessions
        size = 0
        async for asked in spread(topics):
            size += len(asked.partitions)
            if has_overlong_names((asked,)):
                return NO_SESSION
        session = sessions.begin(size, uses_topic_ids=self._by_id)
        if session is None:
            return NO_SESSION
        pairs = zip(topics, self._responses, strict=True)
        answers = spread_nested(pairs, lambda pair: zip(pair[0].partitions, pair[1].partitions, strict=True))
        async for (asked, _), (one, data) in answers:
            self._fill(session, asked, one, data)
        return sessions.add(session)

    def _fill(self, session: FetchSession, asked: FetchTopic, one: FetchPartition, data: PartitionData) -> None:
        topic = asked.topic_id if self._by_id else asked.topic
        session.ask(topic, (one,))
        cached = session.partitions[topic, one.partition]
        cached.tell(data.high_watermark, data.last_stable_offset, data.log_start_offset)

    # --- requests that go on with a session

    def _look_at_session(self, session: FetchSession) -> Iterator[None]:
        news, partitions, is_committed = self._news, self.partitions, self.is_committed
        topics = self.context.services.topics
        session.look_up_again(topics.deletion_count)
        # A copy, because the session may be changed between two turns.
        for cached in list(session.partitions.values()):
            if self._left_weight <= 0:
                self._left_weight = _TURN_WEIGHT
                yield
                session.look_up_again(topics.deletion_count)
            partition = cached.live
            if partition is None:
                partition = cached.live = self._find(cached)
                if partition is None:
                    continue
            elif (
                # The reader has all there is and knows it. Most partitions are like this most of the time. With the
                # high watermark and the log start the last stable offset stays as it was too.
                partition.high_watermark == cached.high_watermark
                and cached.fetch_offset == (cached.last_stable_offset if is_committed else cached.high_watermark)
                and partition.is_open
                and cached.log_start_offset == partition.log_start_offset
                and cached.last_fetched_epoch < 0
                and cached.current_leader_epoch in partition.accepted_epochs
            ):
                self._left_weight -= _UNCHANGED_WEIGHT
                partition.is_fetched = True
                partitions.append(partition)
                continue
            data = self._look_at(partition, cached)
            if data.records or _is_news(cached, data):
                news.append((cached, data))

    def _find(self, cached: CachedPartition) -> Partition | None:
        """The partition, looked up by what the session calls its topic; if there is none, that is told every time."""
        topics, key = self.context.services.topics, cached.topic
        topic = topics.get_by_id(key) if isinstance(key, bytes) else topics.get(key)
        partition = topic.partition(cached.partition) if topic is not None and not topic.is_hidden else None
        if partition is None:
            self._news.append((cached, self._missing(topic, cached)))
        return partition

    def _tell_news(self, session: FetchSession) -> FetchResponse:
        if session.epoch != self._epoch:
            # Another request went on with the session while this one waited: it must not be told things twice.
            code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return FetchResponse(error_code=code, session_id=session.session_id, responses=[])
        responses = self._responses
        last_topic: str | bytes | None = None
        for cached, data in self._news:
            cached.tell(data.high_watermark, data.last_stable_offset, data.log_start_offset)
            if data.records:
                session.move_to_end(cached)
            topic = cached.topic
            if topic == last_topic:
                responses[-1].partitions.append(data)
                continue
            last_topic = topic
            if isinstance(topic, bytes):
                responses.append(FetchableTopicResponse(topic_id=topic, partitions=[data]))
            else:
                responses.append(FetchableTopicResponse(topic=topic, partitions=[data]))
        return self._response(session.session_id)


def _is_news(cached: CachedPartition, data: PartitionData) -> bool:
    """Whether the reader has to be told if not of records: of errors, ends and starts, which it cannot know."""
    return bool(
        data.error_code
        or data.diverging_epoch.epoch != UNDEFINED
        or not cached.is_told(data.high_watermark, data.last_stable_offset, data.log_start_offset)
    )


def _told_aborted(aborted: Sequence[AbortedInLog]) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted]


def _diverging_epoch(partition: Partition, asked: Asked) -> EpochEndOffset | None:
    """Where the epoch that the client read last ends here, if that is before what it has read (KIP-595)."""
    epoch, end_offset = partition.epoch_end(asked.last_fetched_epoch)
    if epoch == UNDEFINED or end_offset == UNDEFINED or asked.fetch_offset < partition.log_start_offset:
        raise OffsetOutOfRange(asked.fetch_offset, partition.log_start_offset, partition.log_end_offset)
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
