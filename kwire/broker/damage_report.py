"""Log lines about what the opening of a log met: what was cut, what cannot be read, and what an operator can do."""

import logging
import os

from storage.log import Log

log = logging.getLogger("kwire.broker")

# Ranges that are logged one by one; a log may have up to QUARANTINES_MAX of them.
RANGES_SHOWN_MAX = 20


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


def report_damage(found: Log) -> None:
    """Log what was lost in a log that was opened just now; the metrics go on reporting it."""
    folder = os.path.basename(found.directory)
    if found.torn_bytes:
        log.warning("%s: %d bytes of an unfinished write were cut off its end", folder, found.torn_bytes)
    for range_ in found.quarantined[:RANGES_SHOWN_MAX]:
        log.error(
            "%s: offsets %d to %d cannot be read (CORRUPT_MESSAGE): %s; all others are served",
            *(folder, range_.start_offset, range_.end_offset - 1, range_.reason),
        )
    if len(found.quarantined) > RANGES_SHOWN_MAX:
        log.error("%s: %d more ranges cannot be read", folder, len(found.quarantined) - RANGES_SHOWN_MAX)
    if found.damage is not None:
        log.error(
            "%s: damaged from offset %d on: %s. It is served up to there and takes no records, because the offsets "
            "that were given out after it are not known. To continue without them, stop the server and run: "
            "kwire log adopt %s --accept-loss %s",
            *(folder, found.damage.offset, found.damage.reason, os.path.dirname(found.directory), folder),
        )
