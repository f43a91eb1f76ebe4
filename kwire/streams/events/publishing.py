"""Publishing: events on their way into a log.

What is published in one turn of the event loop for one log becomes one batch, so a thousand clients that publish one
event each cost about as much as one that publishes a thousand. The events of one call stay together: they are stored in
order, at consecutive offsets, or not at all.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kwire.broker.batch_validation import RECORDS_VALIDATED_MAX
from kwire.broker.events.event import Envelope, NewEvent
from kwire.clock import Clock
from kwire.errors import ErrorCode, EventTooLarge, InvalidEvent, KafkaError, StreamError
from kwire.streams.log import StreamLog
from storage.batch_writing import batch_bytes_max, batch_of_tails

logger = logging.getLogger(__name__)

# Calls share a batch up to so many events: readers take it in portions anyway, and a late call need not wait for more.
SHARED_EVENTS_MAX = 1000
# Sources that are remembered; then all are forgotten at once, and made anew as they come. Each remembers some types and
# names of metadata, so this bounds what somebody who makes up many of them can fill: about 100 MiB at worst.
ENVELOPES_MAX = 4000

# What one call can be at fault for; others that share its batch are not.
_FAULTS_OF_ONE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})


class Published(NamedTuple):
    """`offset` is that of the first event; the others follow one by one. `event_ids` are in order."""

    offset: int
    event_ids: Sequence[str]


Outcome = Published | KafkaError | StreamError
Done = Callable[[Outcome], None]
CallSoon = Callable[..., object]


class _Call:
    """One call of `publish`, encoded: `tails` are records without their place."""

    __slots__ = ("done", "event_ids", "size_bytes", "tails")

    def __init__(self, tails: list[bytes], event_ids: list[str], size_bytes: int, done: Done) -> None:
        self.tails = tails
        self.event_ids = event_ids
        self.size_bytes = size_bytes
        self.done = done


class _Turn:
    """What was published for one log in this turn of the loop."""

    __slots__ = ("calls", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.calls: list[_Call] = []


class Publisher:
    """Called from the event loop. It holds what came in one turn, and lets go of it at its end.

    How much that is, and how much waits to be durable, is bounded by those who call: each connection has so many
    unanswered requests at most.
    """

    def __init__(self, clock: Clock, call_soon: CallSoon) -> None:
        self._clock = clock
        self._call_soon = call_soon
        self._turns: dict[StreamLog, _Turn] = {}
        # By source: the rooms that were published to lately.
        self._envelopes: dict[bytes, Envelope] = {}
        # Of this run alone, so no id has to be remembered to be unique; the dash keeps them apart from evt_<offset>.
        self._id_prefix = f"evt_{os.urandom(8).hex()}-"
        self._id_number = 0

    def publish(self, log: StreamLog, source: bytes, events: Sequence[NewEvent], done: Done) -> None:
        """Store all events or none, and call `done` when they are as durable as the topic promises, or refused.

        `done` is never called before this returns. It may publish again.
        """
        turn = self._turns.get(log)
        if turn is None:
            if not self._turns:
                self._call_soon(self._flush)
            turn = self._turns[log] = _Turn(self._clock.now_ms())
        try:
            call = self._encode(turn, log, source, events, done)
        except StreamError as error:
            self._call_soon(done, error)
            return
        turn.calls.append(call)

    async def publish_and_wait(self, log: StreamLog, source: bytes, events: Sequence[NewEvent]) -> Published:
        """The same as a coroutine; raises what `publish` passes to `done`."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.publish(log, source, events, lambda outcome: None if future.done() else future.set_result(outcome))
        outcome = await future
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _encode(self, turn: _Turn, log: StreamLog, source: bytes, events: Sequence[NewEvent], done: Done) -> _Call:
        if not events:
            raise InvalidEvent("there is no event")
        if len(events) > RECORDS_VALIDATED_MAX:
            raise InvalidEvent(f"{len(events)} events are to be stored at once, {RECORDS_VALIDATED_MAX} are allowed")
        tail_of = self._envelope(source, turn.now_ms).tail_of
        tails: list[bytes] = []
        event_ids: list[str] = []
        tails_bytes = 0
        limit = log.max_batch_bytes
        prefix, number = self._id_prefix, self._id_number
        for event in events:
            event_id = event.event_id
            if event_id is None:
                number += 1
                event_id = f"{prefix}{number:x}"
            tail = tail_of(event, event_id)
            tails_bytes += len(tail)
            if tails_bytes > limit:  # what follows is not even looked at
                raise EventTooLarge(tails_bytes, limit)
            tails.append(tail)
            event_ids.append(event_id)
        self._id_number = number
        size_bytes = batch_bytes_max(tails_bytes, len(tails))
        if size_bytes > limit:
            raise EventTooLarge(size_bytes, limit)
        return _Call(tails, event_ids, size_bytes, done)

    def _envelope(self, source: bytes, now_ms: int) -> Envelope:
        envelope = self._envelopes.get(source)
        if envelope is None:
            if len(self._envelopes) >= ENVELOPES_MAX:
                self._envelopes.clear()
            envelope = self._envelopes[source] = Envelope(source, now_ms)
        return envelope.at(now_ms)

    # --- at the end of the turn

    def _flush(self) -> None:
        turns, self._turns = self._turns, {}
        for log, turn in turns.items():
            for calls in _shared(turn.calls, log.max_batch_bytes):
                self._append(log, calls, turn.now_ms)

    def _append(self, log: StreamLog, calls: Sequence[_Call], now_ms: int) -> None:
        """Store these calls as one batch; if one of them is at fault, each as a batch of its own."""
        tails = calls[0].tails if len(calls) == 1 else [tail for call in calls for tail in call.tails]

        def appended(outcome: int | KafkaError) -> None:
            if not isinstance(outcome, KafkaError):
                for call in calls:
                    _finish(call.done, Published(outcome, call.event_ids))
                    outcome += len(call.tails)
            elif len(calls) > 1 and outcome.code in _FAULTS_OF_ONE:
                for call in calls:
                    self._append(log, [call], now_ms)
            else:
                for call in calls:
                    _finish(call.done, outcome)

        log.append(*batch_of_tails(tails, now_ms), appended)


def _shared(calls: Sequence[_Call], bytes_max: int) -> list[list[_Call]]:
    """The calls in order, in groups that may become one batch each."""
    groups: list[list[_Call]] = []
    size_bytes = count = 0
    for call in calls:
        size_bytes += call.size_bytes
        count += len(call.tails)
        if size_bytes > bytes_max or count > SHARED_EVENTS_MAX or not groups:
            groups.append([])
            size_bytes, count = call.size_bytes, len(call.tails)
        groups[-1].append(call)
    return groups


def _finish(done: Done, outcome: Outcome) -> None:
    try:
        done(outcome)
    except Exception:  # the other calls that share its batch have to be answered too
        logger.exception("the callback of a published event failed")
