"""A producer of the second generation of transactions (KIP-890), with nothing between it and the wire.

Partitions are not announced: the first record adds them. Every end of a transaction gives the producer its next epoch.
One record is sent at a time; a request whose answer is lost with the connection is repeated, byte for byte.
"""

import time
from collections import Counter
from typing import Any

from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest

from tests.support.clients_raw import RawConnection, batch, produce_request, produced
from tests.support.history import Acknowledged, History, Outcome, Place, record_of
from tests.support.transactional_errors import NO_ANSWER
from tests.support.transactional_producer import (
    PATIENCE_S,
    START_PATIENCE_S,
    TRANSACTION_TIMEOUT_S,
    NotedProducer,
    Tally,
    TransactionFailed,
)

INIT_PRODUCER_ID_VERSION = 5
PRODUCE_VERSION = 12
END_TXN_VERSION = 5
ANSWER_TIMEOUT_S = 5.0
RETRY_S = 0.02

NONE = 0
# Leader or coordinator not there yet, coordinator cannot be asked, the transaction before this one is still ending.
AGAIN = {3, 5, 6, 7, 14, 15, 16, 19, 51}
DUPLICATE_SEQUENCE_NUMBER = 46
FENCED = {47, 90}
NAMES = {47: "INVALID_PRODUCER_EPOCH", 90: "PRODUCER_FENCED"}


class Impatient(Exception):
    """No answer in time."""


class SecondGenerationProducer(NotedProducer):
    """See the module's words."""

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
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._connection: RawConnection | None = None
        self._producer_id = self._producer_epoch = -1
        self._next_sequences: Counter[Place] = Counter()

    def _take_id(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=int(self.timeout_s * 1000),
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = self._ask(request, INIT_PRODUCER_ID_VERSION, START_PATIENCE_S)
        assert answer.error_code == NONE, f"InitProducerId: error {answer.error_code}"
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    def _begin(self) -> None:
        self._next_sequences.clear()

    def _send(self, place: Place, value: str) -> None:
        records = batch(
            record_of(value),
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._next_sequences[place],
            is_transactional=True,
        )
        request = produce_request(
            place.topic, records, partition=place.partition, transactional_id=self.transactional_id
        )
        try:
            answer = produced(self._ask(request, PRODUCE_VERSION, PATIENCE_S))
        except Impatient as error:
            raise TransactionFailed(str(error)) from error
        if answer.error_code not in (NONE, DUPLICATE_SEQUENCE_NUMBER):
            self.told("send", NAMES.get(answer.error_code, str(answer.error_code)))
            raise TransactionFailed(f"error {answer.error_code}")
        self._next_sequences[place] += 1
        self.history.note(Acknowledged(place=place, value=value, offset=answer.base_offset))

    def _end(self, is_commit: bool, patience_s: float) -> Outcome:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=is_commit,
        )
        try:
            answer = self._ask(request, END_TXN_VERSION, patience_s)
        except Impatient:
            if patience_s >= PATIENCE_S:
                self.told("end", NO_ANSWER)
            return self._ended(Outcome.UNKNOWN)
        if answer.error_code in FENCED:
            return self._ended(Outcome.FENCED)
        if answer.error_code != NONE:
            self.told("end", f"EndTxn error {answer.error_code}")
            return self._ended(Outcome.UNKNOWN)
        if (answer.producer_id, answer.producer_epoch) == (self._producer_id, self._producer_epoch):
            self.told("end", "EndTxn left the epoch as it was")
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
        return self._ended(Outcome.COMMITTED if is_commit else Outcome.ABORTED)

    def _ask(self, request: Any, version: int, patience_s: float) -> Any:
        """The answer of a server that may go away and come back in between."""
        deadline = time.monotonic() + patience_s
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self.close()
                raise Impatient(f"nothing within {patience_s} s")
            try:
                if self._connection is None:
                    self._connection = RawConnection(self._address, min(left_s, ANSWER_TIMEOUT_S))
                self._connection.timeout_s = min(left_s, ANSWER_TIMEOUT_S)
                answer = self._connection.call(request, version)
            except OSError:
                self.close()
            else:
                result = produced(answer) if version == PRODUCE_VERSION else answer
                if result.error_code not in AGAIN:
                    return answer
            time.sleep(min(RETRY_S, max(left_s, 0)))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
