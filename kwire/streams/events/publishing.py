"""Publisher: appends events to logs in batches.

Events that are published for one log in one iteration of the event loop become one batch, so a thousand clients that
publish one event each cost about as much as one client that publishes a thousand. The events of one call stay together:
they are stored in order, at consecutive offsets, or not at all.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kwire.broker.batch_validation import RECORDS_VALIDATED_MAX
from kwire.broker.topics.catalogue import PROTECTED_TOPICS
from kwire.broker.topics.topics import protected_topic
from kwire.clock import Clock
from kwire.errors import ErrorCode, EventTooLarge, InvalidEvent, KafkaError, StreamError
from kwire.streams.events.event import Envelope, NewEvent
from kwire.streams.log import StreamLog
from storage.batch.builder import batch_bytes_max, build_batch_from_bodies

logger = logging.getLogger(__name__)

# The maximum number of events in a batch that several calls share. A larger batch would delay the last calls, and
# readers would read it in parts anyway.
SHARED_EVENTS_MAX = 1000
# The maximum number of cached envelopes, one per source. A full cache is cleared. Each envelope caches some types and
# metadata names, so a client that sends many different types and names can use about 100 MiB at most.
ENVELOPES_MAX = 4000

# Errors that a single call of a shared batch can cause. After such an error, each call is appended separately.
_SINGLE_CALL_ERRORS = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})


class Published(NamedTuple):
    """The result of `publish`: the offset of the first event, and the ids of all events. Offsets are consecutive."""

    offset: int
    event_ids: Sequence[str]


Outcome = Published | KafkaError | StreamError
Done = Callable[[Outcome], None]
CallSoon = Callable[..., object]


class _Call:
    """One call of `publish`, encoded: `bodies` are the keys, values and headers of its records."""

    __slots__ = ("bodies", "done", "event_ids", "size_bytes")

    def __init__(self, bodies: list[bytes], event_ids: list[str], size_bytes: int, done: Done) -> None:
        self.bodies = bodies
        self.event_ids = event_ids
        self.size_bytes = size_bytes
        self.done = done


class _PendingCalls:
    """The calls for one log in this iteration of the event loop."""

    __slots__ = ("calls", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.calls: list[_Call] = []


class Publisher:
    """Collects the events of an iteration of the event loop, and appends them at the end of the iteration.

    Use it only in the event loop's thread.

    The callers limit the number of events that are collected or wait to become durable, because each connection may
    have only a limited number of unanswered requests.
    """

    def __init__(self, clock: Clock, call_soon: CallSoon) -> None:
        self._clock = clock
        self._call_soon = call_soon
        self._pending: dict[StreamLog, _PendingCalls] = {}
        # The cached envelopes by source.
        self._envelopes: dict[bytes, Envelope] = {}
        # The prefix is random for each run of the server, so ids are unique without being stored. The dash
        # distinguishes these ids from `evt_<offset>`, the id of a record that was stored without an id.
        self._id_prefix = f"evt_{os.urandom(8).hex()}-"
        self._id_number = 0

    def publish(self, log: StreamLog, source: bytes, events: Sequence[NewEvent], done: Done) -> None:
        """Store all events or none. Calls `done` when they are as durable as the topic requires, or were refused.

        `done` is never called before this method returns. `done` may call `publish` again.
        """
        if log.topic in PROTECTED_TOPICS:
            self._call_soon(done, protected_topic(log.topic))
            return
        pending = self._pending.get(log)
        if pending is None:
            if not self._pending:
                self._call_soon(self._flush)
            pending = self._pending[log] = _PendingCalls(self._clock.now_ms())
        try:
            call = self._encode(pending, log, source, events, done)
        except StreamError as error:
            self._call_soon(done, error)
            return
        pending.calls.append(call)

    async def publish_and_wait(self, log: StreamLog, source: bytes, events: Sequence[NewEvent]) -> Published:
        """Publish events, and wait for the result. Raises the error that `publish` would pass to `done`."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.publish(log, source, events, lambda outcome: None if future.done() else future.set_result(outcome))
        outcome = await future
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _encode(
        self, pending: _PendingCalls, log: StreamLog, source: bytes, events: Sequence[NewEvent], done: Done
    ) -> _Call:
        if not events:
            raise InvalidEvent("the request contains no events")
        if len(events) > RECORDS_VALIDATED_MAX:
            raise InvalidEvent(f"the request has {len(events)} events, at most {RECORDS_VALIDATED_MAX} are allowed")
        encode_body = self._envelope(source, pending.now_ms).encode_body
        bodies: list[bytes] = []
        event_ids: list[str] = []
        bodies_bytes = 0
        limit = log.max_batch_bytes
        prefix, number = self._id_prefix, self._id_number
        for event in events:
            event_id = event.event_id
            if event_id is None:
                number += 1
                event_id = f"{prefix}{number:x}"
            body = encode_body(event, event_id)
            bodies_bytes += len(body)
            if bodies_bytes > limit:  # the remaining events are not encoded
                raise EventTooLarge(bodies_bytes, limit)
            bodies.append(body)
            event_ids.append(event_id)
        self._id_number = number
        size_bytes = batch_bytes_max(bodies_bytes, len(bodies))
        if size_bytes > limit:
            raise EventTooLarge(size_bytes, limit)
        return _Call(bodies, event_ids, size_bytes, done)

    def _envelope(self, source: bytes, now_ms: int) -> Envelope:
        envelope = self._envelopes.get(source)
        if envelope is None:
            if len(self._envelopes) >= ENVELOPES_MAX:
                self._envelopes.clear()
            envelope = self._envelopes[source] = Envelope(source, now_ms)
        return envelope.at(now_ms)

    # --- at the end of the iteration

    def _flush(self) -> None:
        all_pending, self._pending = self._pending, {}
        for log, pending in all_pending.items():
            for calls in _batched(pending.calls, log.max_batch_bytes):
                self._append(log, calls, pending.now_ms)

    def _append(self, log: StreamLog, calls: Sequence[_Call], now_ms: int) -> None:
        """Append these calls as one batch. If a single call may have caused an error, append each call separately."""
        bodies = calls[0].bodies if len(calls) == 1 else [body for call in calls for body in call.bodies]

        def appended(outcome: int | KafkaError) -> None:
            if not isinstance(outcome, KafkaError):
                for call in calls:
                    _finish(call.done, Published(outcome, call.event_ids))
                    outcome += len(call.bodies)
            elif len(calls) > 1 and outcome.code in _SINGLE_CALL_ERRORS:
                for call in calls:
                    self._append(log, [call], now_ms)
            else:
                for call in calls:
                    _finish(call.done, outcome)

        log.append(*build_batch_from_bodies(bodies, now_ms), appended)


def _batched(calls: Sequence[_Call], bytes_max: int) -> list[list[_Call]]:
    """Divide the calls, in their order, into groups that each fit into one batch."""
    groups: list[list[_Call]] = []
    size_bytes = count = 0
    for call in calls:
        size_bytes += call.size_bytes
        count += len(call.bodies)
        if size_bytes > bytes_max or count > SHARED_EVENTS_MAX or not groups:
            groups.append([])
            size_bytes, count = call.size_bytes, len(call.bodies)
        groups[-1].append(call)
    return groups


def _finish(done: Done, outcome: Outcome) -> None:
    try:
        done(outcome)
    except Exception:  # the callbacks of the other calls in the batch must still run
        logger.exception("the callback of a published event failed")
