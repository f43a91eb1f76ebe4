"""Log lines about damaged batches that readers have met."""

import logging

log = logging.getLogger("kwire.broker")

# Damaged places that are remembered as logged. Beyond this number all are forgotten, and may be logged again.
PLACES_KEPT_MAX = 1000

_reported: set[tuple[str, int, int]] = set()


def report_unreadable(topic: str, partition: int, offset: int, reason: str) -> None:
    """Log that a reader met a damaged batch, once for each place: readers come back to it."""
    place = topic, partition, offset
    if place in _reported:
        return
    if len(_reported) >= PLACES_KEPT_MAX:
        _reported.clear()
    _reported.add(place)
    log.error("%s-%d: the records at offset %d cannot be read: %s", topic, partition, offset, reason)
