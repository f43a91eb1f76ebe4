"""Opens the logs of partitions, and reports in the server's log what the opening has found."""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kwire.broker.partition.log_settings import log_settings
from kwire.topic_config import TopicSettings
from storage.directories import LogDirectories
from storage.errors import PartitionOffline
from storage.log import Log

if TYPE_CHECKING:
    from kwire.broker.partition.partition import Partition

log = logging.getLogger("kwire.broker")

# Ranges that are logged one by one; a log may have up to QUARANTINES_MAX of them.
RANGES_SHOWN_MAX = 20


class OwningTopic(Protocol):
    """The topic of a partition, which holds it: a topic lives at least as long as one of its logs is open."""

    name: str
    topic_id: bytes


def open_log(
    store: LogDirectories,
    report_offline: Callable[[str, PartitionOffline], None],
    topic: OwningTopic,
    index: int,
    settings: TopicSettings,
) -> Log:
    """Open the log of a partition; raises StorageError.

    `report_offline` is called with the name of the folder, and the error, if the folder or its metadata is lost.
    """
    try:
        opened = store.open_log(topic.name, index, topic.topic_id, log_settings(settings))
    except PartitionOffline as error:
        report_offline(f"{topic.name}-{index}", error)
        raise
    _report_damage(opened)
    return opened


def cut_damaged_end(store: LogDirectories, partition: "Partition", topic_id: bytes) -> None:
    """Continue a log that is damaged at its end without that end; raises StorageError. It has no readers yet."""
    settings = log_settings(partition.settings)
    partition._log = store.cut_damage(partition.topic_name, partition.index, topic_id, settings)
    partition.commit_all()


def _report_damage(found: Log) -> None:
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
