"""Producer states: the last batches of each idempotent producer, to answer a retry without storing it twice.

Kafka's rules:

- An unknown producer may start at any sequence. A new producer epoch starts at 0.
- The first sequence of a batch is the successor of the last sequence of the batch before. The successor of 2**31 - 1 is
  0, also within a batch.
- A duplicate of one of the last five batches is answered with its original offset. Any other sequence is out of order.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, NamedTuple

from storage.batch.format import CONTROL_BIT, MAX_SEQUENCE, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_BIT
from storage.batch.markers import Marker
from storage.batch.record_batch import BatchHeader
from storage.errors import CoordinatorFenced, InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from storage.log.transactions import OpenTransaction, UnstableTransactions
from storage.segment.txn_index import AbortedEntry

# A client has at most five requests in flight, so at most five batches can be repeated.
WINDOW_BATCHES: Final = 5
# Above this number of producers on one partition, the longest idle ones without an open transaction are removed.
PRODUCERS_MAX: Final = 10_000

# Prefix of the format with last timestamps. The older format has no prefix: it begins with a producer id, which is
# never negative.
_FORMAT: Final = b"\xff\x01"
# Prefix of the format with transactions. It is used once the log has had a transaction.
_TRANSACTIONAL_FORMAT: Final = b"\xff\x02"
_TRANSACTIONAL_PRODUCER: Final = struct.Struct(">qhiqqiqqB")
_COUNT: Final = struct.Struct(">I")
_UNDECIDED: Final = struct.Struct(">qq")
_PRODUCER: Final = struct.Struct(">qhiqqB")
_PRODUCER_WITHOUT_TIMESTAMP: Final = struct.Struct(">qhiqB")
_BATCH: Final = struct.Struct(">iiqqq")
# One call packs a whole producer, for speed: a checkpoint packs all producers on the log's thread.
_PRODUCER_WITH_BATCHES: Final = [
    struct.Struct(_PRODUCER.format + "iiqqq" * count).pack for count in range(WINDOW_BATCHES + 1)
]


_TRANSACTIONAL_PRODUCER_WITH_BATCHES: Final = [
    struct.Struct(_TRANSACTIONAL_PRODUCER.format + "iiqqq" * count).pack for count in range(WINDOW_BATCHES + 1)
]
_NO_OFFSET: Final = -1
_NO_COORDINATOR_EPOCH: Final = -1


class ProducedBatch(NamedTuple):
    """One of the last batches of a producer. ``append_time_ms`` is -1 unless the topic uses LogAppendTime."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_time_ms: int


_new_tuple = tuple.__new__


class ProducerState:
    """The state of one producer. Its last batch was appended at ``last_ms`` and has max timestamp ``last_timestamp``.

    ``coordinator_epoch`` and ``marker_offset`` are those of its last transaction marker, -1 if there was none.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_ms",
        "last_timestamp",
        "marker_offset",
        "next_sequence",
    )

    def __init__(self, epoch: int, next_sequence: int, last_ms: int, last_timestamp: int = NO_TIMESTAMP) -> None:
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.last_ms = last_ms
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = _NO_COORDINATOR_EPOCH
        self.marker_offset = _NO_OFFSET
        self.batches: deque[ProducedBatch] = deque(maxlen=WINDOW_BATCHES)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record in the producer's current epoch; -1 if there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


def has_transactions(data: bytes) -> bool:
    """Whether encoded states include transactions."""
    return data.startswith(_TRANSACTIONAL_FORMAT)


def add_sequence(sequence: int, increment: int) -> int:
    """``sequence + increment``; after 2**31 - 1 sequences start again at 0."""
    return (sequence + increment) & MAX_SEQUENCE


class ProducerStates:
    """The producers of one log: call :meth:`check` before an append and :meth:`record` after it.

    For transaction markers, call :meth:`check_marker` and :meth:`record_marker`.
    """

    __slots__ = ("_open", "_producers_max", "_states", "_unstable")

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._states: dict[int, ProducerState] = {}
        self._unstable = UnstableTransactions()
        self._open = self._unstable.open
        self._producers_max = producers_max

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._states

    @property
    def ids(self) -> list[int]:
        return list(self._states)

    def items(self) -> list[tuple[int, ProducerState]]:
        """(producer id, state) of all producers."""
        return list(self._states.items())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    # --- transactions

    def open_transaction(self, producer_id: int) -> OpenTransaction | None:
        first_offset = self._open.get(producer_id)
        return None if first_offset is None else OpenTransaction(first_offset, self._states[producer_id].epoch)

    @property
    def open_first_offsets(self) -> dict[int, int]:
        """The first offsets of the open transactions, by producer id, in offset order."""
        return dict(self._open)

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """(first offset, marker offset) of ended transactions whose marker may not be visible yet."""
        return self._unstable.undecided

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first offset of the earliest transaction that is open or whose marker is not below ``high_watermark``."""
        return self._unstable.first_unstable(high_watermark) if self._unstable else None

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Raise if the marker must not be appended."""
        state = self._states.get(header.producer_id)
        if state is None:
            return
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                f"a marker of producer {header.producer_id} has producer epoch {header.producer_epoch}, "
                f"the current epoch is {state.epoch}"
            )
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise CoordinatorFenced(
                f"a marker of producer {header.producer_id} has coordinator epoch {marker.coordinator_epoch}, "
                f"the current coordinator epoch is {state.coordinator_epoch}"
            )

    def record_marker(
        self, header: BatchHeader, marker: Marker, base_offset: int, append_time_ms: int, now_ms: int
    ) -> AbortedEntry | None:
        """Record an appended marker. Returns the transaction that it aborted, if any."""
        self.record(header, base_offset, append_time_ms, now_ms)
        state = self._states[header.producer_id]
        state.coordinator_epoch = marker.coordinator_epoch
        state.marker_offset = base_offset
        first_offset = self._unstable.end(header.producer_id, base_offset)
        if first_offset is None or marker.is_commit:
            return None
        first_open = self._unstable.first_open()
        stable_offset = base_offset + 1 if first_open is None else first_open
        return AbortedEntry(header.producer_id, first_offset, base_offset, stable_offset)

    # --- sequences

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Return None if the batch may be appended, or the stored batch if it is a duplicate; raise otherwise."""
        state = self._states.get(header.producer_id)
        if state is None:
            return None
        if header.producer_epoch == state.epoch:
            if header.base_sequence != state.next_sequence:
                return self._find_repetition(header, state)
        elif header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, its current epoch is {state.epoch}"
            )
        elif header.base_sequence > 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} began epoch {header.producer_epoch} with sequence "
                f"{header.base_sequence}, not 0"
            )
        if self._open and not header.attributes & TRANSACTIONAL_BIT and header.producer_id in self._open:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has an open transaction and sent a batch that is not part of it"
            )
        return None

    def _find_repetition(self, header: BatchHeader, state: ProducerState) -> ProducedBatch | None:
        if header.base_sequence < 0:
            return None  # a transaction marker has no sequence
        last_sequence = add_sequence(header.base_sequence, header.last_offset_delta)
        for batch in state.batches:
            if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                return batch
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, expected {state.next_sequence}"
        )

    def record(self, header: BatchHeader, base_offset: int, append_time_ms: int, now_ms: int) -> None:
        """Record a batch that was appended at ``base_offset``."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        state = self._states.get(producer_id)
        if state is None:
            if len(self._states) - len(self._open) >= self._producers_max:
                self._evict_idle()
            state = self._states[producer_id] = ProducerState(epoch, 0, now_ms)
        elif state.epoch != epoch:
            state.epoch = epoch
            state.next_sequence = 0
            state.batches.clear()
        state.last_ms = now_ms
        state.last_timestamp = header.max_timestamp if append_time_ms < 0 else append_time_ms
        # A batch without records was emptied by compaction, so its transaction has ended.
        if (
            header.attributes & TRANSACTIONAL_BIT
            and not header.attributes & CONTROL_BIT
            and header.record_count > 0
            and producer_id not in self._open
        ):
            self._open[producer_id] = base_offset
        base_sequence, delta = header.base_sequence, header.last_offset_delta
        if base_sequence < 0:
            return
        last_sequence = (base_sequence + delta) & MAX_SEQUENCE
        state.next_sequence = (last_sequence + 1) & MAX_SEQUENCE
        state.batches.append(
            _new_tuple(ProducedBatch, (base_sequence, last_sequence, base_offset, base_offset + delta, append_time_ms))
        )

    def _evict_idle(self) -> None:
        # Remove a tenth of the limit at a time, so that the list is sorted only once in many appends.
        idle = [producer_id for producer_id in self._states if producer_id not in self._open]
        by_idle_time = sorted(idle, key=lambda producer_id: self._states[producer_id].last_ms)
        for producer_id in by_idle_time[: max(1, self._producers_max // 10)]:
            del self._states[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that were idle for ``expiration_ms`` and have no open transaction. Returns their number."""
        limit = now_ms - expiration_ms
        gone = [
            producer_id
            for producer_id, state in self._states.items()
            if state.last_ms <= limit and producer_id not in self._open
        ]
        for producer_id in gone:
            del self._states[producer_id]
        return len(gone)

    def truncate(self, end_offset: int) -> None:
        """Remove the batches from ``end_offset`` on, and producers whose last marker or all batches were there."""
        self._unstable.truncate(end_offset)
        for producer_id, state in list(self._states.items()):
            if state.marker_offset >= end_offset:
                # The marker may have raised the epoch and ended a transaction. Only a scan can find the state before
                # the marker.
                del self._states[producer_id]
                continue
            kept = [batch for batch in state.batches if batch.last_offset < end_offset]
            if len(kept) == len(state.batches):
                continue
            if not kept:
                del self._states[producer_id]
                continue
            state.batches = deque(kept, maxlen=WINDOW_BATCHES)
            state.next_sequence = add_sequence(kept[-1].last_sequence, 1)

    def add_earlier_batches(self, headers: Iterable[BatchHeader]) -> None:
        """Add earlier batches of one producer. ``headers`` are its batches in the log, oldest first."""
        earlier: list[ProducedBatch] = []
        for header in headers:
            state = self._states[header.producer_id]
            is_known = state.batches and header.base_offset >= state.batches[0].base_offset
            if is_known or header.producer_epoch != state.epoch or header.base_sequence < 0:
                continue
            append_time_ms = header.max_timestamp if header.timestamp_type else NO_TIMESTAMP
            last_sequence = add_sequence(header.base_sequence, header.last_offset_delta)
            earlier.append(
                ProducedBatch(
                    header.base_sequence, last_sequence, header.base_offset, header.last_offset, append_time_ms
                )
            )
        if earlier:
            state.batches = deque([*earlier, *state.batches], maxlen=WINDOW_BATCHES)

    def restore_transactions(
        self, first_offsets: Mapping[int, int | None], undecided: Iterable[tuple[int, int]]
    ) -> None:
        """Set the first offset of the open transaction of each of these producers; None if it has no open transaction.

        Other producers keep their transactions. ``undecided`` replaces :attr:`undecided`.
        """
        opened = {**self._open, **first_offsets}
        self._unstable.restore(
            ((one, first) for one, first in opened.items() if first is not None and one in self._states), undecided
        )

    def encode(self) -> bytes:
        """Encode all states for the checkpoint."""
        if not self._states:
            return b""
        if self._unstable or any(state.marker_offset >= 0 for state in self._states.values()):
            return self._encode_with_transactions()
        return _FORMAT + b"".join(
            [
                _PRODUCER_WITH_BATCHES[len(state.batches)](
                    producer_id,
                    state.epoch,
                    state.next_sequence,
                    state.last_ms,
                    state.last_timestamp,
                    len(state.batches),
                    *chain.from_iterable(state.batches),
                )
                for producer_id, state in self._states.items()
            ]
        )

    def _encode_with_transactions(self) -> bytes:
        undecided = self._unstable.undecided
        return b"".join(
            [
                _TRANSACTIONAL_FORMAT,
                _COUNT.pack(len(undecided)),
                *(_UNDECIDED.pack(*one) for one in undecided),
                *(
                    _TRANSACTIONAL_PRODUCER_WITH_BATCHES[len(state.batches)](
                        producer_id,
                        state.epoch,
                        state.next_sequence,
                        state.last_ms,
                        state.last_timestamp,
                        state.coordinator_epoch,
                        state.marker_offset,
                        self._open.get(producer_id, _NO_OFFSET),
                        len(state.batches),
                        *chain.from_iterable(state.batches),
                    )
                    for producer_id, state in self._states.items()
                ),
            ]
        )

    @classmethod
    def decode(cls, data: bytes, producers_max: int = PRODUCERS_MAX) -> ProducerStates:
        """Decode the result of :meth:`encode`. The caller has checked the checkpoint's CRC."""
        producers = cls(producers_max)
        if data.startswith(_TRANSACTIONAL_FORMAT):
            producers._decode_with_transactions(data)
            return producers
        has_timestamps = data.startswith(_FORMAT)
        facts = _PRODUCER if has_timestamps else _PRODUCER_WITHOUT_TIMESTAMP
        position = len(_FORMAT) if has_timestamps else 0
        while position < len(data):
            producer_id, epoch, next_sequence, *times, count = facts.unpack_from(data, position)
            position += facts.size
            state = ProducerState(epoch, next_sequence, *times)
            for _ in range(count):
                state.batches.append(ProducedBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            producers._states[producer_id] = state
        return producers

    def _decode_with_transactions(self, data: bytes) -> None:
        position = len(_TRANSACTIONAL_FORMAT)
        (undecided_count,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        undecided: list[tuple[int, int]] = []
        for _ in range(undecided_count):
            undecided.append(_UNDECIDED.unpack_from(data, position))
            position += _UNDECIDED.size
        opened: list[tuple[int, int]] = []
        while position < len(data):
            facts = _TRANSACTIONAL_PRODUCER.unpack_from(data, position)
            position += _TRANSACTIONAL_PRODUCER.size
            producer_id, epoch, next_sequence, last_ms, last_timestamp, *marked, first_offset, count = facts
            state = self._states[producer_id] = ProducerState(epoch, next_sequence, last_ms, last_timestamp)
            state.coordinator_epoch, state.marker_offset = marked
            for _ in range(count):
                state.batches.append(ProducedBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            if first_offset >= 0:
                opened.append((producer_id, first_offset))
        self._unstable.restore(opened, undecided)
