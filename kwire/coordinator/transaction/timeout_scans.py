"""Periodic scans of a shard: one aborts transactions that timed out, the other removes expired transactional ids.

A shard can have 100,000 transactional ids, so a scan runs in chunks. Between two chunks, clients are served. Each chunk
uses the state at its start. If the append of a chunk's records fails, the next scan handles the same ids again.
"""

from collections import deque
from collections.abc import Collection, Mapping

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.transaction.records import encode_record
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.coordinator.transaction.states import State
from kwire.coordinator.transaction.transaction import Transaction

# The limits of one chunk. A chunk takes a few milliseconds.
CHUNK_IDS_MAX = 1_000
CHUNK_RECORDS_MAX = 100
# A chunk ends when its records have this size. So they fit into one batch, even if transactions have many partitions.
CHUNK_BYTES_MAX = 256 * 1024
# The pause between two chunks. Because of it, a long scan takes at most about half of the event loop's time.
PAUSE_MS = 5


class TimeoutScans:
    """Runs the two scans of one shard, each with its own interval. New scans start only when no scan is in progress."""

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
        """Schedule the first scans. Called when the shard has been loaded."""
        self._abort_ms = moment.steady_ms + self._settings.abort_timed_out_interval_ms
        self._expire_ms = moment.steady_ms + self._settings.remove_expired_interval_ms

    def run_chunk(self, moment: Moment, result: Result) -> None:
        now_ms = moment.steady_ms
        if not self._to_abort and not self._to_expire:
            if self._abort_ms is not None and self._abort_ms <= now_ms:
                self._abort_ms = now_ms + self._settings.abort_timed_out_interval_ms
                self._to_abort.extend(self._ongoing)
            if self._expire_ms is not None and self._expire_ms <= now_ms:
                self._expire_ms = now_ms + self._settings.remove_expired_interval_ms
                self._to_expire.extend(self._transactions)
        for _ in range(CHUNK_IDS_MAX):
            if len(result.records) >= CHUNK_RECORDS_MAX or _size(result) >= CHUNK_BYTES_MAX:
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
        if transaction is None or transaction.metadata.state is State.ONGOING or transaction.metadata.state.is_prepared:
            return
        if transaction.metadata.update_ms <= moment.wall_ms - self._settings.transactional_id_expiration_ms:
            result.records.append(encode_record(transactional_id, None, 0))


def _size(result: Result) -> int:
    return sum(len(key) + len(value or b"") for key, value in result.records)
