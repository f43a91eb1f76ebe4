"""Opens the logs of partitions, and writes a message to the server's log for each damage that is found."""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kwire.broker.partition.log_settings import log_settings
from kwire.config.resources.topic import TopicSettings
from storage.data_directory.directories import LogDirectories
from storage.errors import PartitionOffline
from storage.log.log import Log

if TYPE_CHECKING:
    from kwire.broker.partition.partition import Partition

log = logging.getLogger("kwire.broker")

# The maximum number of quarantined ranges that are reported one by one. A log may have up to QUARANTINES_MAX.
RANGES_SHOWN_MAX = 20


class OwningTopic(Protocol):
    """The topic of a partition. An open log holds a reference to this object, which therefore stays in memory."""

    name: str
    topic_id: bytes


def open_log(
    store: LogDirectories,
    report_offline: Callable[[str, PartitionOffline], None],
    topic: OwningTopic,
    index: int,
    settings: TopicSettings,
) -> Log:
    """Open the log of a partition. Raises StorageError.

    If the folder or its metadata file is lost, `report_offline` is called with the folder's name and the error.
    """
    try:
        opened = store.open_log(topic.name, index, topic.topic_id, log_settings(settings))
    except PartitionOffline as error:
        report_offline(f"{topic.name}-{index}", error)
        raise
    _report_damage(opened)
    return opened


def cut_damaged_end(store: LogDirectories, partition: "Partition", topic_id: bytes) -> None:
    """Truncate the damaged end of a log that has no readers yet, and open the log again. Raises StorageError.

    The caller has another copy of the truncated records.
    """
    settings = log_settings(partition.settings)
    partition._log = store.truncate_damage(partition.topic_name, partition.index, topic_id, settings)
    partition.commit_all()


def _report_damage(found: Log) -> None:
    """Write the damage of a newly opened partition log to the server's log.

    The metrics report the damage as long as the log is open.
    """
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
            "%s: damaged from offset %d on: %s. Records below this offset are served. The log accepts no records, "
            "because it is not known which offsets were already assigned. To continue without the damaged records, "
            "stop the server and run: kwire log adopt %s --accept-loss %s",
            *(folder, found.damage.offset, found.damage.reason, os.path.dirname(found.directory), folder),
        )
