"""Which producer ids and epochs follow one another.

Kafka's rule: an epoch is bumped to keep an earlier producer out. The last one is never given to a producer, so that
whoever has an epoch can still be kept out; a producer whose epochs are used up gets another id.
"""

from kwire.coordinator.transaction.states import NO_PRODUCER_EPOCH

LAST_EPOCH = 32_767
# The last epoch that a producer may have.
LAST_USABLE_EPOCH = LAST_EPOCH - 1
FIRST_EPOCH = 0


def is_exhausted(producer_epoch: int) -> bool:
    return producer_epoch >= LAST_USABLE_EPOCH


def bumped(producer_epoch: int) -> int:
    return min(producer_epoch + 1, LAST_EPOCH)


class EpochNote:
    """The epoch before the present one, while the producer that had it may still ask for the present one again.

    It is noted when the present one is decided and counts only if that came to be. A restart forgets it, as in Kafka.
    """

    __slots__ = ("_before", "_present")

    def __init__(self) -> None:
        self._present = (0, NO_PRODUCER_EPOCH)
        self._before = NO_PRODUCER_EPOCH

    def note(self, producer_id: int, producer_epoch: int, before: int) -> None:
        self._present = (producer_id, producer_epoch)
        self._before = before

    def before(self, producer_id: int, producer_epoch: int) -> int:
        return self._before if self._present == (producer_id, producer_epoch) else NO_PRODUCER_EPOCH
