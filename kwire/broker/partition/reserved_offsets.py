"""The offset mark of a partition is the upper limit of its high watermark. `offset_marks.py` writes the marks."""

from collections.abc import Callable
from typing import Any

from kwire.broker.partition.waiting import Waiting
from kwire.errors import ErrorCode, KafkaError

# Called with the partition.
OnMarkDue = Callable[[Any], None]

# The number of offsets in a reserved block. The first block needs no entry in the metadata store.
MARK_BLOCK = 2**20
UNLIMITED = 2**63 - 1


class ReservedOffsets(Waiting):
    """The part of a partition that keeps the high watermark at or below the offset mark.

    The next block is requested when less than half a block remains between the high watermark and the mark. For most
    appends, the check is only one comparison.
    """

    __slots__ = (
        "_is_reserving",
        "_on_mark_due",
        "_pending_high_watermark",
        "_reserve_from",
        "high_watermark",
        "index",
        "offset_mark",
        "topic_name",
    )

    topic_name: str
    index: int

    def __init__(self, on_mark_due: OnMarkDue | None) -> None:
        super().__init__()
        self.high_watermark = 0
        # No record at or above this offset is acknowledged. There is no limit until the log is open.
        self.offset_mark = UNLIMITED
        self._on_mark_due = on_mark_due
        self._reserve_from = UNLIMITED
        self._is_reserving = False
        # The high watermark to set once the next block is reserved.
        self._pending_high_watermark = 0

    def take_mark(self, mark: int) -> None:
        """Set the mark after the log was opened, and request the next block if necessary.

        The log may end above the mark, if it was written by a version of kwire without marks.
        """
        self._set_mark(mark)
        if self.high_watermark > self._reserve_from:
            self._request_block()

    def raise_mark(self, mark: int) -> None:
        """Raise the mark after the next block was reserved. Records that waited for the mark become readable."""
        self._is_reserving = False
        self._set_mark(mark)
        refused, self._pending_high_watermark = self._pending_high_watermark, 0
        if refused > self.high_watermark:
            self.advance(refused)

    def refuse_mark(self, error: KafkaError) -> None:
        """Pass `error` to the calls that wait for an offset above the mark, because no block could be reserved.

        The next append requests the block again.
        """
        self._is_reserving = False
        mark = self.offset_mark
        self._give_up(lambda one: one.offset > mark, error)

    def _may_advance(self, high_watermark: int) -> bool:
        """Return whether the high watermark may rise to this value now. False if the value is above the mark.

        Requests the next block. If the result is False, the high watermark rises when the block is reserved.
        """
        if high_watermark <= self.high_watermark:
            return True
        self._request_block()
        if high_watermark > self.offset_mark:
            self._pending_high_watermark = high_watermark
            return False
        return True

    def _check_mark(self) -> None:
        """Raise KafkaError while earlier records wait for the mark.

        Later records must not be acknowledged before them.
        """
        if self._pending_high_watermark > self.high_watermark:
            self._request_block()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the next offsets are being reserved, try again")

    def _request_block(self) -> None:
        if not self._is_reserving and self._on_mark_due is not None:
            self._is_reserving = True
            self._on_mark_due(self)

    def _set_mark(self, mark: int) -> None:
        self.offset_mark = mark
        self._reserve_from = mark - MARK_BLOCK // 2

    def advance(self, high_watermark: int) -> None:
        raise NotImplementedError
