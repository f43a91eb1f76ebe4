"""Fetch 4-18: read record batches from given offsets, with long polling.

- The response is sent when `min_bytes` are available, when a partition cannot be read, or after `max_wait_ms`. It is
  sent immediately if more records are available than it returns (a limit or the end of a segment was reached).
- A consumer needs READ on the topic. Rights are checked for every request, for every partition of a session, and again
  after a wait. A partition without the right is TOPIC_AUTHORIZATION_FAILED.
- Batches are returned whole, as they were written. The first batch is returned even if it exceeds the limits, because
  otherwise a consumer could never read it.
- For an offset inside a batch the whole batch is returned. An offset outside the log is OFFSET_OUT_OF_RANGE.
- A repeated partition has one result, for its last parameters. If a partition does not exist, the request still waits
  for the others, because an immediate retry would not help. A large request does not wait in this case.
- With isolation level read_committed, only records below the last stable offset are returned, and the request waits
  until that offset rises. The response lists the aborted transactions, whose records the client has to skip. The last
  stable offset is returned for both isolation levels.
- A client that exceeds its quota (`consumer_byte_rate`) gets an empty response with a throttle time. A response has at
  most as many bytes as the quota allows in one window.
- Version 4 adds the isolation level. Version 5 adds the log start offset. Version 6 reports a failed disk as
  KAFKA_STORAGE_ERROR, earlier versions as NOT_LEADER_OR_FOLLOWER.
- Version 7 adds fetch sessions. Epoch 0 requests a session. Epoch -1 requests none and closes the session that the
  request names, if any. Any other epoch continues the session. A continued session keeps the partitions that the
  request does not name. The response has only partitions with records, errors or a changed high watermark, last stable
  offset or log start offset. See `broker/fetch/sessions.py`.
- Version 9 checks the client's leader epoch. Version 10 is the first that may read topics compressed with zstd. Version
  11 adds the client's rack, which has no effect with one replica.
- Version 12 returns the diverging epoch if the client sends the epoch of its last fetched record.
- Version 13 names topics by id. A session uses either names or ids. Version 16 returns the current leader if the
  client's leader epoch is not current. Versions 14, 15, 17 and 18 change only requests of followers. kwire has no
  followers and refuses their requests. As in Kafka they need CLUSTER_ACTION on the cluster instead of READ.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from kwire.access.access import Access
from kwire.broker.chunked_answers import OPENS_PER_CHUNK, WEIGHT_PER_CHUNK
from kwire.broker.fetch.long_poll import LongPoll
from kwire.broker.fetch.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    CachedPartition,
    FetchSession,
    RequestedPartition,
)
from kwire.broker.partition import Partition, code_of
from kwire.concurrency.chunking import eager, schedule_chunk, spread, spread_nested, yield_to_loop
from kwire.coordinator.client_requests import resolved_answer
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.fetch.epochs import diverging_epoch
from kwire.handlers.fetch.errors import FIRST_TOPIC_ID_VERSION, failed, failed_response
from kwire.handlers.fetch.lookup import TopicLookup, check_restrictions, follower_lookup, lookup_state, missing_code
from kwire.handlers.fetch.requests import find_session, has_overlong_names, has_repeats, is_large, without_repeats
from kwire.handlers.fetch.responses import NO_ABORTED_TRANSACTIONS, aborted_in_response, has_changed
from kwire.handlers.shared.context import Context
from kwire.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from storage.errors import StorageError
from storage.segment.map_windows import EMPTY

log = logging.getLogger("kwire.handlers")

FIRST_STORAGE_ERROR_VERSION = 6
FIRST_ZSTD_VERSION = 10
FIRST_LEADER_HINT_VERSION = 16
READ_COMMITTED = 1
# Under memory pressure, loaded pages may be evicted before they are sent. After this many tries the event loop reads
# the pages itself.
WARM_UPS_MAX = 3

# The weights of single steps, and the weight of one chunk between two yields to the event loop.
_UNCHANGED_WEIGHT = 1
_TOPIC_WEIGHT = 5
_READ_WEIGHT = 20
_CHUNK_WEIGHT = _READ_WEIGHT * WEIGHT_PER_CHUNK
_OPEN_WEIGHT = _CHUNK_WEIGHT // OPENS_PER_CHUNK

# For these errors the response also names the current leader.
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(context: Context, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    by_id = context.api_version >= FIRST_TOPIC_ID_VERSION
    if is_large(request) or (
        request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH) and has_repeats(request.topics, by_id)
    ):
        return eager(_handle_in_chunks(context, request, by_id))
    sessions = context.services.fetch_sessions
    if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close_of(context.views.prefix, request.session_id)
        return _answer(_FetchAttempt(context, request, None))
    try:
        session = find_session(context, request, by_id)
        for asked in request.topics:
            session.request(asked.topic_id if by_id else asked.topic, asked.partitions)
        for forgotten in request.forgotten_topics_data:
            session.forget(forgotten.topic_id if by_id else forgotten.topic, forgotten.partitions)
        sessions.advance(session)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    if not session.partitions:
        return FetchResponse(responses=[])
    return _answer(_FetchAttempt(context, request, session))


async def _handle_in_chunks(context: Context, request: FetchRequest, by_id: bool) -> FetchResponse:
    """Handle a request with many partitions (see `is_large`) or with repeated partitions."""
    sessions = context.services.fetch_sessions
    if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close_of(context.views.prefix, request.session_id)
        request.topics = await without_repeats(request.topics, by_id)
        attempt = _FetchAttempt(context, request, None, is_chunked=True)
        response = await resolved_answer(_answer(attempt))
        if request.session_epoch == INITIAL_EPOCH and not response.throttle_time_ms:
            response.session_id = await attempt.new_session_in_chunks()
        return response
    try:
        session = find_session(context, request, by_id)
        async for asked, one in spread_nested(request.topics, lambda asked: asked.partitions):
            session.request(asked.topic_id if by_id else asked.topic, (one,))
        async for forgotten, index in spread_nested(
            request.forgotten_topics_data, lambda forgotten: forgotten.partitions
        ):
            session.forget(forgotten.topic_id if by_id else forgotten.topic, (index,))
        # Check the session again: another request may have continued it in the meantime.
        sessions.advance(find_session(context, request, by_id))
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    if not session.partitions:
        return FetchResponse(responses=[])
    return await resolved_answer(_answer(_FetchAttempt(context, request, session)))


def _answer(attempt: "_FetchAttempt") -> FetchResponse | Awaitable[FetchResponse]:
    steps = attempt.steps()
    for _ in steps:
        return _answer_in_chunks(attempt, steps)
    if attempt.warm_ups:
        return _answer_when_warm(attempt)
    return attempt.answer() if attempt.is_enough else _DelayedFetch(attempt)


async def _answer_in_chunks(attempt: "_FetchAttempt", steps: Iterator[None]) -> FetchResponse:
    """Complete an attempt that takes more than one chunk, and return its response."""
    await yield_to_loop()
    await _finish(steps)
    if attempt.warm_ups:
        return await _answer_when_warm(attempt)
    return attempt.answer() if attempt.is_enough else await _DelayedFetch(attempt)


async def _finish(steps: Iterator[None]) -> None:
    for _ in steps:
        await yield_to_loop()


async def _answer_when_warm(attempt: "_FetchAttempt") -> FetchResponse:
    """Load pages that are not in memory with threads, then repeat the attempt."""
    for _ in range(WARM_UPS_MAX):
        with suppress(StorageError):  # the read raises the error again and reports it for the partition
            await attempt.context.services.cold_reads.do(attempt.warm_ups)
        await _finish(attempt.steps())
        if not attempt.warm_ups:
            break
    else:
        await _finish(attempt.steps(may_block=True))
    return attempt.answer() if attempt.is_enough else await _DelayedFetch(attempt)


class _DelayedFetch(asyncio.Future[FetchResponse]):
    """A fetch that waits. When enough bytes were appended or the time has passed, it repeats the attempt and responds.

    The class is a future, so that its `cancel` ends the wait without another callback.
    """

    __slots__ = ("_attempt", "_deadline", "_poll")

    def __init__(self, attempt: "_FetchAttempt") -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop=loop)
        self._attempt = attempt
        max_wait_ms = attempt.request.max_wait_ms
        self._deadline = loop.time() + max_wait_ms / 1000
        self._poll = self._wait(max_wait_ms)

    def cancel(self, msg: Any | None = None) -> bool:
        if not self.done():
            self._poll.cancel()
        return super().cancel(msg)

    def _wait(self, max_wait_ms: float) -> LongPoll:
        attempt, loop = self._attempt, self.get_loop()
        missing = attempt.request.min_bytes - attempt.found_bytes
        retry = self._retry
        return LongPoll(attempt.partitions, missing, max_wait_ms, retry, is_committed=attempt.is_committed, loop=loop)

    def _retry(self) -> None:
        # `warm_ups` is ignored: new records are in memory, only older pages may have been evicted during the wait.
        self._continue(self._attempt.steps())

    def _continue(self, steps: Iterator[None]) -> None:
        if self.done():
            return
        try:
            self._run(steps)
        except Exception:
            # This is a callback of the event loop: no caller receives the error, and the client would wait forever.
            log.exception("Fetch failed while it waited for records")
            attempt = self._attempt
            del self._poll
            self.set_result(failed_response(attempt.context, attempt.request, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _run(self, steps: Iterator[None]) -> None:
        for _ in steps:
            schedule_chunk(partial(self._continue, steps))
            return
        attempt = self._attempt
        if self._poll.is_guess and not attempt.is_enough:
            left_s = self._deadline - self.get_loop().time()
            if left_s > 0:
                self._poll = self._wait(left_s * 1000)
                return
        answer = attempt.answer()
        # Break the reference cycle, so that the memory is freed without the garbage collector.
        del self._poll
        self.set_result(answer)


class _FetchAttempt:
    """One attempt to read every requested partition.

    `warm_ups` are functions that load pages which are not in memory. If there are any, call them in threads and then
    repeat the attempt, because its response is incomplete.

    Without a session the request names all partitions, and the response has all of them. With a session the partitions
    are those of the session, and the response has those that changed since the previous response. One class implements
    both cases, because CPython's specialised instructions are faster when a call site sees a single class.
    """

    __slots__ = (
        "_by_id",
        "_changed",
        "_endpoint",
        "_epoch",
        "_find_topic",
        "_found",
        "_is_chunked",
        "_is_follower",
        "_is_restricted",
        "_left_bytes",
        "_left_weight",
        "_may_block",
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
        self, context: Context, request: FetchRequest, session: FetchSession | None, *, is_chunked: bool = False
    ) -> None:
        self.context = context
        self._is_chunked = is_chunked
        self._opens_session = not is_chunked and request.session_epoch == INITIAL_EPOCH
        self.request = request
        self._session = session
        if session is not None:
            self._epoch = session.epoch
        version = context.api_version
        self._by_id = version >= FIRST_TOPIC_ID_VERSION
        self._is_follower = request.replica_id >= 0 or request.replica_state.replica_id >= 0
        # Followers, and versions that do not allow zstd, may not read all partitions.
        self._is_restricted = self._is_follower or version < FIRST_ZSTD_VERSION
        self.is_committed = request.isolation_level == READ_COMMITTED

    def steps(self, *, may_block: bool = False) -> Iterator[None]:
        """Begin the attempt again and yield after each chunk. With `may_block`, reads may block the event loop."""
        self._may_block = may_block
        access = self.context.views.access
        return self._begin() if access.is_unrestricted else self._steps_with_rights(access)

    def _steps_with_rights(self, access: Access) -> Iterator[None]:
        """Begin again whenever rights change between two chunks, so that no record is returned without the right."""
        revision = -1
        while revision != access.revision:
            revision = access.revision
            for _ in self._begin():
                yield
                if revision != access.revision:
                    break

    def _begin(self) -> Iterator[None]:
        self.found_bytes = 0
        # For metrics: each partition with records, their bytes and their number of offsets.
        self._found: list[tuple[Partition, int, int]] = []
        # True if the read of an existing partition failed, for example because the offset is out of range.
        self.has_failed = False
        self.has_more = False
        self.partitions: list[Partition] = []
        self.warm_ups: list[Callable[[], None]] = []
        self._left_bytes = min(self.request.max_bytes, self.context.services.config.network.fetch_bytes_max)
        if self.context.quota is not None:
            self._left_bytes = self.context.quota.fetch_bytes_max(self._left_bytes)
        self._left_weight = _CHUNK_WEIGHT
        self._responses: list[FetchableTopicResponse] = []
        # The address of the leader, which is returned with some errors of partitions.
        self._endpoint: NodeEndpoint | None = None
        session = self._session
        topics = self.context.views.topics
        if self._is_follower:
            self._find_topic: TopicLookup = follower_lookup(self.context, self._by_id)
        else:
            self._find_topic = topics.readable_by_id if self._by_id else topics.readable
        if session is None:
            return self._fetch_request()
        self._changed: list[tuple[CachedPartition, PartitionData]] = []
        return self._fetch_session(session)

    def answer(self) -> FetchResponse:
        """Build the response. Call it only once, after the last attempt: a session records what was returned.

        Records above the client's quota are not returned. The client requests them again after the throttle time.
        """
        quota = self.context.quota
        if quota is not None and not self._is_follower and (throttle_ms := quota.fetched(self.found_bytes)):
            self._responses, self._changed, self._found, self._opens_session = [], [], [], False
            response = self._response(NO_SESSION) if self._session is None else self._session_response(self._session)
            response.throttle_time_ms = throttle_ms
            return response
        if self._session is not None:
            return self._session_response(self._session)
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

    def _fetch_partition(self, partition: Partition, asked: RequestedPartition) -> PartitionData:
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
        if code in _LEADER_ERRORS and self.context.api_version >= FIRST_LEADER_HINT_VERSION:
            self._add_leader(data, partition)
        return data

    def _read(self, partition: Partition, asked: RequestedPartition) -> PartitionData:
        self.partitions.append(partition)
        partition.is_fetched = True
        self._left_weight -= _READ_WEIGHT if partition.is_open else _OPEN_WEIGHT
        if asked.current_leader_epoch not in partition.accepted_epochs:
            partition.check_leader(asked.current_leader_epoch)
        if self._is_restricted:
            check_restrictions(partition, asked, self._is_follower)
        diverging = None if asked.last_fetched_epoch < 0 else diverging_epoch(partition, asked)
        records, aborted = EMPTY, NO_ABORTED_TRANSACTIONS if self.is_committed else None
        if diverging is not None:
            self.has_more = True
        elif self._may_block or (cold_start := self._cold_start(partition, asked.fetch_offset)) is None:
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

    def _cold_start(self, partition: Partition, offset: int) -> Callable[[], None] | None:
        cold_start = partition.cold_start(offset)
        return partition.cold_aborted(offset) if cold_start is None and self.is_committed else cold_start

    def _read_records(
        self, partition: Partition, asked: RequestedPartition
    ) -> tuple[memoryview, list[AbortedTransaction] | None]:
        # Only the first batch of a response may exceed the limits.
        found_bytes, limit, left_bytes = self.found_bytes, asked.partition_max_bytes, self._left_bytes
        if limit > left_bytes:
            limit = left_bytes
        aborted_transactions: list[AbortedTransaction] | None = None
        if self.is_committed:
            read, aborted = partition.read_committed(asked.fetch_offset, limit, at_least_one=not found_bytes)
            end = partition.last_stable_offset if partition.is_unstable else partition.high_watermark
            aborted_transactions = aborted_in_response(aborted) if aborted else NO_ABORTED_TRANSACTIONS
        else:
            read = partition.read(asked.fetch_offset, limit, at_least_one=not found_bytes)
            end = partition.high_watermark
        view = read.view
        size = len(view)
        # A read ends at the end of its segment. If more records are readable, the fetch does not wait. But if no record
        # was found so far, the fetch waits: the remaining offsets are a gap before records that are not readable yet.
        if read.next_offset < end and (size or found_bytes):
            self.has_more = True
        if size:
            self.found_bytes = found_bytes + size
            self._found.append((partition, size, read.next_offset - asked.fetch_offset))
            self._left_bytes = left_bytes - size if left_bytes > size else 0
            if not self._may_block and not read.is_warm():
                self.warm_ups.append(read.warm_up)
        return view, aborted_transactions

    def _missing(self, asked: RequestedPartition, code: ErrorCode) -> PartitionData:
        self._left_weight -= _READ_WEIGHT
        # A large request does not wait for its other partitions, because it would stay in memory.
        self.has_failed = self.has_failed or self._is_chunked
        return failed(asked.partition, code)

    def _add_leader(self, data: PartitionData, partition: Partition) -> None:
        node = self.context.services.node
        data.current_leader = LeaderIdAndEpoch(leader_id=node.node_id, leader_epoch=partition.leader_epoch)
        host, port = self.context.endpoint
        self._endpoint = NodeEndpoint(node_id=node.node_id, host=host, port=port, rack=node.rack)

    def _response(self, session_id: int) -> FetchResponse:
        for partition, size, offset_count in self._found:
            partition.fetched_bytes += size
            partition.fetched_records += offset_count
        response = FetchResponse(session_id=session_id, responses=self._responses)
        if self._endpoint is not None:
            response.node_endpoints.append(self._endpoint)
        return response

    # --- requests without a session

    def _fetch_request(self) -> Iterator[None]:
        find_topic, by_id = self._find_topic, self._by_id
        for asked in self.request.topics:
            self._left_weight -= _TOPIC_WEIGHT
            if self._left_weight <= 0:
                self._left_weight = _CHUNK_WEIGHT
                yield
            topic, refusal = None, None
            try:
                topic = find_topic(asked.topic_id if by_id else asked.topic)
            except KafkaError as error:
                refusal = error.code
            is_hidden = topic is not None and topic.is_hidden
            answers = []
            for one in asked.partitions:
                if self._left_weight <= 0:
                    self._left_weight = _CHUNK_WEIGHT
                    yield
                partition = topic.partition(one.partition) if topic is not None else None
                if partition is not None and not is_hidden:
                    answers.append(self._fetch_partition(partition, one))
                else:
                    answers.append(self._missing(one, refusal or missing_code(topic, by_id)))
            self._responses.append(
                FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=answers)
            )

    def _new_session(self) -> int:
        topics, sessions = self.request.topics, self.context.services.fetch_sessions
        if has_overlong_names(topics):
            return NO_SESSION
        size, owner = sum(len(asked.partitions) for asked in topics), self.context.views.prefix
        session = sessions.begin(size, uses_topic_ids=self._by_id, owner=owner)
        if session is None:
            return NO_SESSION
        for asked, response in zip(topics, self._responses, strict=True):
            for one, data in zip(asked.partitions, response.partitions, strict=True):
                self._add_to_session(session, asked, one, data)
        return sessions.add(session)

    async def new_session_in_chunks(self) -> int:
        """Open a session for many partitions, in chunks, after `answer`, which opens none if `is_chunked`."""
        topics, sessions = self.request.topics, self.context.services.fetch_sessions
        size = 0
        async for asked in spread(topics):
            size += len(asked.partitions)
            if has_overlong_names((asked,)):
                return NO_SESSION
        session = sessions.begin(size, uses_topic_ids=self._by_id, owner=self.context.views.prefix)
        if session is None:
            return NO_SESSION
        pairs = zip(topics, self._responses, strict=True)
        answers = spread_nested(pairs, lambda pair: zip(pair[0].partitions, pair[1].partitions, strict=True))
        async for (asked, _), (one, data) in answers:
            self._add_to_session(session, asked, one, data)
        return sessions.add(session)

    def _add_to_session(
        self, session: FetchSession, asked: FetchTopic, one: FetchPartition, data: PartitionData
    ) -> None:
        topic = asked.topic_id if self._by_id else asked.topic
        session.request(topic, (one,))
        cached = session.partitions[topic, one.partition]
        cached.record_answer(data.high_watermark, data.last_stable_offset, data.log_start_offset)

    # --- requests that continue a session

    def _fetch_session(self, session: FetchSession) -> Iterator[None]:
        changed, partitions, is_committed = self._changed, self.partitions, self.is_committed
        session.look_up_again(lookup_state(self.context, self._is_follower))
        # Iterate over a copy, because the session may change between two chunks.
        for cached in list(session.partitions.values()):
            if self._left_weight <= 0:
                self._left_weight = _CHUNK_WEIGHT
                yield
                session.look_up_again(lookup_state(self.context, self._is_follower))
            partition = cached.live
            if partition is None:
                partition = cached.live = self._find(cached)
                if partition is None:
                    continue
            elif (
                # The partition has no changes since the last response, which is the usual case. If the high
                # watermark and the log start offset are unchanged, the last stable offset is unchanged too.
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
            data = self._fetch_partition(partition, cached)
            if data.records or has_changed(cached, data):
                changed.append((cached, data))

    def _find(self, cached: CachedPartition) -> Partition | None:
        """Look up a partition of the session. A partition that cannot be read has an error in every response."""
        try:
            topic = self._find_topic(cached.topic)
        except KafkaError as error:
            self._changed.append((cached, self._missing(cached, error.code)))
            return None
        partition = topic.partition(cached.partition) if topic is not None and not topic.is_hidden else None
        if partition is None:
            self._changed.append((cached, self._missing(cached, missing_code(topic, self._by_id))))
        return partition

    def _session_response(self, session: FetchSession) -> FetchResponse:
        if session.epoch != self._epoch:
            # Another request continued the session while this one waited. No record may be returned twice.
            code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return FetchResponse(error_code=code, session_id=session.session_id, responses=[])
        responses = self._responses
        last_topic: str | bytes | None = None
        for cached, data in self._changed:
            cached.record_answer(data.high_watermark, data.last_stable_offset, data.log_start_offset)
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
