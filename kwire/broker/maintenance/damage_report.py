"""Log messages about damaged batches that readers have found."""

import logging

log = logging.getLogger("kwire.broker")

# The size of the set of batches that were logged. When the set is full, it is cleared, and batches may be logged again.
REPORTED_MAX = 1000

_reported: set[tuple[str, int, int]] = set()


def report_unreadable(topic: str, partition: int, offset: int, reason: str) -> None:
    """Log that a reader found a damaged batch. Each offset is logged only once, although readers retry."""
    damaged = topic, partition, offset
    if damaged in _reported:
        return
    if len(_reported) >= REPORTED_MAX:
        _reported.clear()
    _reported.add(damaged)
    log.error("%s-%d: the records at offset %d cannot be read: %s", topic, partition, offset, reason)
