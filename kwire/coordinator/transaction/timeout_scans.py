"""What is looked at regularly: transactions that took too long, and transactional ids that nobody uses any more.

A shard can hold a hundred thousand ids, so a round is made in portions, and clients are served between two of them.
A portion looks at the state as it is then. What an append that failed left undone is found by the next round.
"""

from collections import deque
from collections.abc import Collection, Mapping

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.transaction.records import encode_record
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.coordinator.transaction.states import State
from kwire.coordinator.transaction.transaction import Transaction

# A portion takes a few milliseconds.
PORTION_IDS_MAX = 1_000
PORTION_RECORDS_MAX = 100
# Its records have to fit into one batch, however many partitions the transactions reach.
PORTION_BYTES_MAX = 256 * 1024
# Between two portions, so that a long round takes no more than half of the loop.
PAUSE_MS = 5


class Rounds:
    """The two rounds of one shard, each with its clock; what is left of a round is gone through before the next."""

    def __init__(
        self, transactions: Mapping[str, Transaction], ongoing: Collection[str], settings: TransactionSettings
    ) -> None:
        self._transactions = transactions
        self._ongoing = ongoing
        self._settings = settings
        self._abort_ms: int | None = None
        self._expire_ms: int | None = None
        self._to_abort: deque[str] = deque()
        self._to_expire: deque[str] = deque()
        self._resume_ms = 0

    @property
    def wake_ms(self) -> int | None:
        if self._to_abort or self._to_expire:
            return self._resume_ms
        if self._abort_ms is None or self._expire_ms is None or not self._transactions:
            return None
        return min(self._abort_ms, self._expire_ms) if self._ongoing else self._expire_ms

    def start(self, moment: Moment) -> None:
        """The shard has been loaded."""
        self._abort_ms = moment.steady_ms + self._settings.abort_timed_out_interval_ms
        self._expire_ms = moment.steady_ms + self._settings.remove_expired_interval_ms

    def look(self, moment: Moment, result: Result) -> None:
        now_ms = moment.steady_ms
        if not self._to_abort and not self._to_expire:
            if self._abort_ms is not None and self._abort_ms <= now_ms:
                self._abort_ms = now_ms + self._settings.abort_timed_out_interval_ms
                self._to_abort.extend(self._ongoing)
            if self._expire_ms is not None and self._expire_ms <= now_ms:
                self._expire_ms = now_ms + self._settings.remove_expired_interval_ms
                self._to_expire.extend(self._transactions)
        for _ in range(PORTION_IDS_MAX):
            if len(result.records) >= PORTION_RECORDS_MAX or _size(result) >= PORTION_BYTES_MAX:
                break
            if self._to_abort:
                transaction = self._transactions.get(self._to_abort.popleft())
                if transaction is not None:
                    transaction.abort_timed_out(moment, result)
            elif self._to_expire:
                self._expire(self._to_expire.popleft(), moment, result)
            else:
                break
        self._resume_ms = now_ms + PAUSE_MS

    def _expire(self, transactional_id: str, moment: Moment, result: Result) -> None:
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.standing.state is State.ONGOING or transaction.standing.state.is_prepared:
            return
        if transaction.standing.update_ms <= moment.wall_ms - self._settings.transactional_id_expiration_ms:
            result.records.append(encode_record(transactional_id, None, 0))


def _size(result: Result) -> int:
    return sum(len(key) + len(value or b"") for key, value in result.records)
