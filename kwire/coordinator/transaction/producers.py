"""The sequence of producer epochs.

As in Kafka, an increase of the epoch fences the earlier producer. A producer never gets LAST_EPOCH, so every producer
can still be fenced. A producer whose epochs are exhausted gets another producer id.
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


class PreviousEpoch:
    """The previous epoch of a producer.

    A producer that did not receive its new epoch sends InitProducerId with its previous epoch. The previous epoch is
    recorded when the coordinator decides to increase the epoch. It is valid only if this decision was stored. As in
    Kafka, it is lost in a restart.
    """

    __slots__ = ("_current", "_previous")

    def __init__(self) -> None:
        self._current = (0, NO_PRODUCER_EPOCH)
        self._previous = NO_PRODUCER_EPOCH

    def record(self, producer_id: int, producer_epoch: int, previous_epoch: int) -> None:
        self._current = (producer_id, producer_epoch)
        self._previous = previous_epoch

    def get(self, producer_id: int, producer_epoch: int) -> int:
        return self._previous if self._current == (producer_id, producer_epoch) else NO_PRODUCER_EPOCH
