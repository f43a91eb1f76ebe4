"""A partition's share of the offset marks: how far its high watermark may rise (`offset_marks.py` writes the marks)."""

from collections.abc import Callable
from typing import Any

from kwire.broker.partition.waiting import Waiting
from kwire.errors import ErrorCode, KafkaError

# Called with the partition.
OnMarkDue = Callable[[Any], None]

# Offsets that are reserved at once. The first block needs no entry in the metadata store.
MARK_BLOCK = 2**20
UNLIMITED = 2**63 - 1


class ReservedOffsets(Waiting):
    """The part of a partition that keeps the high watermark at or below the offset mark.

    The next block is asked for when the high watermark is within half a block of the mark: on the way of a record this
    costs one comparison.
    """

    __slots__ = (
        "_is_reserving",
        "_on_mark_due",
        "_refused_high_watermark",
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
        # No record at or above this offset is acknowledged. Unlimited until the log is open.
        self.offset_mark = UNLIMITED
        self._on_mark_due = on_mark_due
        self._reserve_from = UNLIMITED
        self._is_reserving = False
        # What the high watermark is to become once the next block is reserved.
        self._refused_high_watermark = 0

    def take_mark(self, mark: int) -> None:
        """The log was opened, with its offsets reserved up to here. If it ends beyond, it is older than the marks."""
        self._set_mark(mark)
        if self.high_watermark > self._reserve_from:
            self._ask()

    def raise_mark(self, mark: int) -> None:
        """The next block is reserved: what waited for it may be read and acknowledged."""
        self._is_reserving = False
        self._set_mark(mark)
        refused, self._refused_high_watermark = self._refused_high_watermark, 0
        if refused > self.high_watermark:
            self.advance(refused)

    def refuse_mark(self, error: KafkaError) -> None:
        """It could not be reserved: what waits above the mark is not acknowledged. The next append asks again."""
        self._is_reserving = False
        mark = self.offset_mark
        self._give_up(lambda one: one.offset > mark, error)

    def _may_show(self, high_watermark: int) -> bool:
        """Called near the mark: asks for the next block. False if this offset has to wait for it."""
        if high_watermark <= self.high_watermark:
            return True
        self._ask()
        if high_watermark > self.offset_mark:
            self._refused_high_watermark = high_watermark
            return False
        return True

    def _check_mark(self) -> None:
        """Refuse records that would be acknowledged before they are shown, while earlier ones wait for the mark."""
        if self._refused_high_watermark > self.high_watermark:
            self._ask()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the next offsets are being reserved, try again")

    def _ask(self) -> None:
        if not self._is_reserving and self._on_mark_due is not None:
            self._is_reserving = True
            self._on_mark_due(self)

    def _set_mark(self, mark: int) -> None:
        self.offset_mark = mark
        self._reserve_from = mark - MARK_BLOCK // 2

    def advance(self, high_watermark: int) -> None:
        raise NotImplementedError
