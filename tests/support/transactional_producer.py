"""One incarnation of a transactional producer, which notes in a history all it does and is told."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.history import (
    Acknowledged,
    Begun,
    EndAsked,
    Ended,
    History,
    OffsetSent,
    Outcome,
    Place,
    ProducerAsked,
    ProducerReady,
    Sent,
    Source,
    record_of,
    value_in,
)
from tests.support.transactional_errors import NEVER_BEGUN, NO_ANSWER, told

START_PATIENCE_S = 60.0
PATIENCE_S = 60.0
END_CALL_S = 5.0
POSITIONS_PATIENCE_S = 3.0
TRANSACTION_TIMEOUT_S = 60.0
FENCED_CODES = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
# Clients that find nobody wait less than by default, so that most of the time is spent with a server that runs.
EAGER = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "socket.timeout.ms": 4_000,
    "log_level": 0,
}


# How often the server has died and come back, in the tally of a run.
DEATHS = "deaths of the server"
RETURNS = "returns of the server"


class Tally:
    """What the workers of one run have done so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def __getitem__(self, what: str) -> int:
        with self._lock:
            return self._counts[what]

    def with_prefix(self, prefix: str) -> dict[str, int]:
        with self._lock:
            return {what: count for what, count in sorted(self._counts.items()) if what.startswith(prefix)}


class TransactionFailed(Exception):
    """The open transaction cannot be committed any more."""


class NotedProducer:
    """One incarnation of a transactional id, by whatever client: names its transactions and records, and notes them.

    It is used by one thread. After an outcome other than committed or aborted it is of no use any more.
    """

    def __init__(
        self, history: History, tally: Tally, transactional_id: str, incarnation: int, timeout_s: float
    ) -> None:
        self.history = history
        self.tally = tally
        self.transactional_id = transactional_id
        self.incarnation = incarnation
        self.timeout_s = timeout_s
        self.transaction = ""
        self.outcome: Outcome | None = None
        self.is_stuck = False
        # Somebody else has asked for the transactional id, or is about to.
        self.is_replaced = False
        # Of the server, before this producer was made and before its transaction began.
        self._returns_at_first = self._returns_before = tally[RETURNS]
        self._transaction_count = self._record_count = 0

    def start(self) -> Self:
        """Take the transactional id, from whoever has it."""
        self.history.note(ProducerAsked(transactional_id=self.transactional_id, incarnation=self.incarnation))
        self._take_id()
        self.history.note(ProducerReady(transactional_id=self.transactional_id, incarnation=self.incarnation))
        return self

    def begin(self) -> None:
        self._transaction_count += 1
        self._record_count = 0
        self.outcome = None
        self._returns_before = self.tally[RETURNS]
        self.transaction = f"{self.transactional_id}/{self.incarnation}/{self._transaction_count}"
        self.history.note(
            Begun(
                transaction=self.transaction,
                transactional_id=self.transactional_id,
                incarnation=self.incarnation,
                timeout_s=self.timeout_s,
            )
        )
        self._begin()

    def send(self, place: Place, source: Source | None = None) -> None:
        """Raises TransactionFailed."""
        value = f"{self.transaction}:{self._record_count}"
        self._record_count += 1
        self.history.note(Sent(transaction=self.transaction, place=place, value=value, source=source))
        self._send(place, value)

    def end(self, is_commit: bool, patience_s: float = PATIENCE_S) -> Outcome:
        """Ask for the end, again and again while the answer is to try again."""
        self.history.note(EndAsked(transaction=self.transaction, is_commit=is_commit))
        return self._end(is_commit, patience_s)

    def _ended(self, outcome: Outcome) -> Outcome:
        self.history.note(Ended(transaction=self.transaction, outcome=outcome))
        self.tally.add(str(outcome))
        if outcome is Outcome.FENCED:
            self.told("end", str(outcome))
        self.outcome = outcome
        return outcome

    def told(self, where: str, error: str) -> None:
        """Count an error; see transactional_errors.py for those that are right."""
        self.tally.add(told(where, error, is_replaced=self.is_replaced))

    def _has_missed_the_server(self, returns_before: int) -> bool:
        """It is away, or was since it had returned so often."""
        returns = self.tally[RETURNS]
        return returns > returns_before or self.tally[DEATHS] > returns

    def _take_id(self) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        """Clients that have nothing to do then need not."""

    def _send(self, place: Place, value: str) -> None:
        raise NotImplementedError

    def _end(self, is_commit: bool, patience_s: float) -> Outcome:
        raise NotImplementedError

    def close(self) -> None:
        """Let go without ending anything."""
        raise NotImplementedError


class TransactionalProducer(NotedProducer):
    """By confluent-kafka, which speaks the first generation of transactions."""

    def __init__(
        self,
        bootstrap: str,
        history: History,
        tally: Tally,
        transactional_id: str,
        incarnation: int,
        timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        super().__init__(history, tally, transactional_id, incarnation, timeout_s)
        self._is_acknowledged = False
        self._producer = Producer(
            {
                **EAGER,
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": int(timeout_s * 1000),
                "message.timeout.ms": int(timeout_s * 1000),
                "linger.ms": 1,
            }
        )

    def _take_id(self) -> None:
        deadline = time.monotonic() + START_PATIENCE_S
        while True:
            try:
                self._producer.init_transactions(max(deadline - time.monotonic(), 0.001))
                return
            except KafkaException as error:
                if not reason(error).retriable() or time.monotonic() >= deadline:
                    raise

    def _begin(self) -> None:
        self._is_acknowledged = False
        self._producer.begin_transaction()

    def _send(self, place: Place, value: str) -> None:
        try:
            self._producer.produce(
                place.topic, value=record_of(value), partition=place.partition, on_delivery=self._delivered
            )
        except KafkaException as error:
            raise TransactionFailed(str(error)) from error
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.told("delivery", error.name())
            return
        self._is_acknowledged = True
        topic, partition, value, offset = message.topic(), message.partition(), message.value(), message.offset()
        assert topic is not None
        assert partition is not None
        told = -1 if offset is None or offset < 0 else offset
        self.history.note(Acknowledged(place=Place(topic, partition), value=value_in(value), offset=told))

    def flush(self) -> None:
        """Until everything sent is acknowledged, or failed."""
        with suppress(KafkaException):
            self._producer.flush(self.timeout_s)

    def send_positions(self, group: str, positions: Mapping[Place, int], group_metadata: Any) -> None:
        self.history.note_all(
            OffsetSent(transaction=self.transaction, group=group, place=place, offset=offset)
            for place, offset in positions.items()
        )
        offsets = [TopicPartition(place.topic, place.partition, offset) for place, offset in positions.items()]
        refused: list[KafkaException] = []

        def send() -> None:
            deadline = time.monotonic() + POSITIONS_PATIENCE_S
            while True:
                try:
                    self._producer.send_offsets_to_transaction(
                        offsets, group_metadata, max(deadline - time.monotonic(), 0.001)
                    )
                    return
                except KafkaException as error:
                    if not reason(error).retriable() or time.monotonic() >= deadline:
                        refused.append(error)
                        return

        # librdkafka does not keep to the timeout of this call, and may wait for ever after the group's coordinator was
        # away (its issues 5456 and 5511; two of its logs show AddOffsetsToTxn answered without an error, and the
        # TxnOffsetCommit that follows sent 8 and 11 seconds later); so the call has a thread of its own, which is left
        # alone then.
        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        sending.join(2 * POSITIONS_PATIENCE_S)
        if sending.is_alive():
            self.is_stuck = True
            self._told_at_positions("stuck")
            raise TransactionFailed("the client does not come back")
        if refused:
            self._told_at_positions(reason(refused[0]).name())
            raise TransactionFailed(str(refused[0])) from refused[0]

    def _told_at_positions(self, error: str) -> None:
        # A death before this transaction counts too: that is how librdkafka gets stuck.
        has_missed = self._has_missed_the_server(self._returns_at_first)
        self.told("positions" if has_missed else "positions, with the server there", error)

    def _end(self, is_commit: bool, patience_s: float) -> Outcome:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                call = self._producer.commit_transaction if is_commit else self._producer.abort_transaction
                # Short calls: what was in flight when the connection went is queued again by librdkafka, which sends
                # nothing of a transaction that is being aborted. Only the next call to abort drops it.
                call(min(max(deadline - time.monotonic(), 0.001), END_CALL_S))
                return self._ended(Outcome.COMMITTED if is_commit else Outcome.ABORTED)
            except KafkaException as error:
                refused = reason(error)
                if refused.fatal() and refused.code() in FENCED_CODES:
                    return self._ended(Outcome.FENCED)
                if refused.txn_requires_abort() and is_commit:
                    self.told("commit", refused.name())
                    return self.end(is_commit=False)
                if not refused.retriable() or time.monotonic() >= deadline:
                    if not is_commit and self._may_be_unheard_of(refused):
                        self.told("end", NEVER_BEGUN)
                    elif refused.code() != KafkaError._TIMED_OUT:
                        self.told("end", f"{refused.name()} {refused.str()}")
                    elif patience_s >= PATIENCE_S:
                        self.told("end", NO_ANSWER)
                    return self._ended(Outcome.UNKNOWN)

    def _may_be_unheard_of(self, refused: KafkaError) -> bool:
        """Nothing of the transaction was acknowledged, and the server has died since it began."""
        is_state = refused.code() == KafkaError.INVALID_TXN_STATE
        return is_state and not self._is_acknowledged and self._has_missed_the_server(self._returns_before)

    def close(self) -> None:
        self._producer.purge()
        # One that was fenced says so for the last time.
        with suppress(KafkaException):
            self._producer.flush(0)


def reason(error: KafkaException) -> KafkaError:
    (reason,) = error.args
    assert isinstance(reason, KafkaError)
    return reason


def is_usable_after(outcome: Outcome) -> bool:
    return outcome in (Outcome.COMMITTED, Outcome.ABORTED)
