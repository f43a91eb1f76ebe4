"""What idempotent producers wrote last, so that a retry is answered and not stored twice.

Kafka's rules: a producer the log knows nothing of may start at any sequence; a new producer epoch starts at 0; each
batch follows its predecessor, 0 following 2**31 - 1 also within a batch; a repetition of one of the last five batches
is answered with the offset it got the first time; anything else is out of order.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, NamedTuple

from storage.batch import BatchHeader
from storage.errors import CoordinatorFenced, InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from storage.format import CONTROL_BIT, MAX_SEQUENCE, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_BIT
from storage.markers import Marker
from storage.transactions import OpenTransaction, UnstableTransactions
from storage.txn_index import AbortedEntry

# A client may have five requests in flight, so no more than five batches can come again.
WINDOW_BATCHES: Final = 5
# More producers than this on one partition push out those that were silent longest and have no open transaction.
PRODUCERS_MAX: Final = 10_000

# States that were written before they had a last timestamp begin with a producer id, which is never negative.
_FORMAT: Final = b"\xff\x01"
# Written once there was a transaction: with what is known of transactions.
_TRANSACTIONAL_FORMAT: Final = b"\xff\x02"
_TRANSACTIONAL_PRODUCER: Final = struct.Struct(">qhiqqiqqB")
_COUNT: Final = struct.Struct(">I")
_UNDECIDED: Final = struct.Struct(">qq")
_PRODUCER: Final = struct.Struct(">qhiqqB")
_PRODUCER_WITHOUT_TIMESTAMP: Final = struct.Struct(">qhiqB")
_BATCH: Final = struct.Struct(">iiqqq")
# One call per producer: a checkpoint packs all of them on the log's thread.
_PRODUCER_WITH_BATCHES: Final = [
    struct.Struct(_PRODUCER.format + "iiqqq" * count).pack for count in range(WINDOW_BATCHES + 1)
]


_TRANSACTIONAL_PRODUCER_WITH_BATCHES: Final = [
    struct.Struct(_TRANSACTIONAL_PRODUCER.format + "iiqqq" * count).pack for count in range(WINDOW_BATCHES + 1)
]
_NO_OFFSET: Final = -1
_NO_COORDINATOR_EPOCH: Final = -1


class ProducedBatch(NamedTuple):
    """One batch of the window. ``append_time_ms`` is -1 unless the log stamps its own time."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_time_ms: int


_new_tuple = tuple.__new__


class ProducerState:
    """The last word of one producer: ``last_ms`` is when it came, ``last_timestamp`` the one on its last batch.

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
        """Of the last record it wrote under its epoch; -1 if it wrote none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


def has_transactions(data: bytes) -> bool:
    """Whether encoded states tell of transactions."""
    return data.startswith(_TRANSACTIONAL_FORMAT)


def add_sequence(sequence: int, increment: int) -> int:
    """Sequences run from 0 to 2**31 - 1 and then start again."""
    return (sequence + increment) & MAX_SEQUENCE


class ProducerStates:
    """All producers of one log: ask :meth:`check` before an append, tell :meth:`record` after it.

    Transaction markers have their own two methods.
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
        """All producers of this moment, by id."""
        return list(self._states.items())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    # --- transactions

    def open_transaction(self, producer_id: int) -> OpenTransaction | None:
        first_offset = self._open.get(producer_id)
        return None if first_offset is None else OpenTransaction(first_offset, self._states[producer_id].epoch)

    @property
    def open_first_offsets(self) -> dict[int, int]:
        """Where the open transactions begin, by producer, in this order."""
        return dict(self._open)

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """Beginning and marker of transactions whose marker not everybody may read yet."""
        return self._unstable.undecided

    def first_unstable(self, high_watermark: int) -> int | None:
        """Where the first transaction begins that is open, or whose marker is at or above ``high_watermark``."""
        return self._unstable.first_unstable(high_watermark) if self._unstable else None

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Raises when the marker must not be appended."""
        state = self._states.get(header.producer_id)
        if state is None:
            return
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                f"a marker of producer {header.producer_id} came with epoch {header.producer_epoch}, "
                f"{state.epoch} is known"
            )
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise CoordinatorFenced(
                f"a marker of producer {header.producer_id} came with coordinator epoch {marker.coordinator_epoch}, "
                f"{state.coordinator_epoch} is known"
            )

    def record_marker(
        self, header: BatchHeader, marker: Marker, base_offset: int, append_time_ms: int, now_ms: int
    ) -> AbortedEntry | None:
        """The marker is in the log; the transaction that it aborted, if it did."""
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
        """None when the batch may be appended, what was stored when it is a repetition; raises when it is neither."""
        state = self._states.get(header.producer_id)
        if state is None:
            return None
        if header.producer_epoch == state.epoch:
            if header.base_sequence != state.next_sequence:
                return self._find_repetition(header, state)
        elif header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} came with epoch {header.producer_epoch}, {state.epoch} is known"
            )
        elif header.base_sequence > 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} began epoch {header.producer_epoch} at sequence {header.base_sequence}"
            )
        if self._open and not header.attributes & TRANSACTIONAL_BIT and header.producer_id in self._open:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has a transaction open and sent a batch that is no part of it"
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
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {state.next_sequence} was next"
        )

    def record(self, header: BatchHeader, base_offset: int, append_time_ms: int, now_ms: int) -> None:
        """The batch is in the log at ``base_offset``."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        state = self._states.get(producer_id)
        if state is None:
            if len(self._states) - len(self._open) >= self._producers_max:
                self._push_out_silent()
            state = self._states[producer_id] = ProducerState(epoch, 0, now_ms)
        elif state.epoch != epoch:
            state.epoch = epoch
            state.next_sequence = 0
            state.batches.clear()
        state.last_ms = now_ms
        state.last_timestamp = header.max_timestamp if append_time_ms < 0 else append_time_ms
        # What compaction has emptied belongs to a transaction that has ended.
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

    def _push_out_silent(self) -> None:
        # A tenth at once, so that the sort is paid for by many appends.
        idle = [producer_id for producer_id in self._states if producer_id not in self._open]
        by_silence = sorted(idle, key=lambda producer_id: self._states[producer_id].last_ms)
        for producer_id in by_silence[: max(1, self._producers_max // 10)]:
            del self._states[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for ``expiration_ms`` and have no open transaction; how many there were."""
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
        """The log now ends at ``end_offset``: forget batches that are gone, and producers one of whose markers is."""
        self._unstable.truncate(end_offset)
        for producer_id, state in list(self._states.items()):
            if state.marker_offset >= end_offset:
                # It may have raised the epoch and ended a transaction; what was before has to be looked for.
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

    def remember_earlier(self, headers: Iterable[BatchHeader]) -> None:
        """Batches of one producer, oldest first, as they are in the log: those before the ones that are known count."""
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

    def restore_open(self, first_offsets: Mapping[int, int | None], undecided: Iterable[tuple[int, int]]) -> None:
        """Where the transactions of these producers begin, None: they have none; of the others it stays as it is.

        ``undecided`` are beginnings and markers of those that ended, as :attr:`undecided` has them.
        """
        opened = {**self._open, **first_offsets}
        self._unstable.restore(
            ((one, first) for one, first in opened.items() if first is not None and one in self._states), undecided
        )

    def encode(self) -> bytes:
        """All states, for the checkpoint."""
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
        """What :meth:`encode` wrote; the checkpoint's CRC has vouched for the bytes."""
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
