"""The settings of a room as configs that every Kafka cluster accepts. The number of events is not one of them."""

from collections.abc import Mapping
from typing import Final

from kwire.streams.rooms.settings import RoomRetention, as_hours, retention_configs, retention_mode

MESSAGES_CONFIG: Final = "kwire.retention.messages"
# Retention by time frees whole segments, so the segments of rooms are small.
SEGMENT_BYTES: Final = 16 * 1024 * 1024


def storable(retention: RoomRetention) -> RoomRetention:
    """Return a retention as it is after it was stored: in whole milliseconds."""
    if retention.hours is None:
        return retention
    return retention._replace(hours=as_hours(int(retention_configs(retention)["retention.ms"])))


def new_topic_configs(retention: RoomRetention) -> dict[str, str]:
    configs = {"cleanup.policy": "delete", "segment.bytes": str(SEGMENT_BYTES)}
    return configs | {key: value for key, value in changed_configs(retention).items() if value is not None}


def changed_configs(retention: RoomRetention) -> dict[str, str | None]:
    """Return the configs to set for another retention. None removes one."""
    configs: dict[str, str | None] = {"segment.ms": None, **retention_configs(retention)}
    del configs[MESSAGES_CONFIG]
    return configs


def retention_of_topic(configs: Mapping[str, str | None]) -> RoomRetention:
    """Return the retention of an ordinary topic, as far as the cluster shows it."""
    retention_ms = int(configs.get("retention.ms") or -1)
    is_deleted = "delete" in (configs.get("cleanup.policy") or "delete")
    hours = as_hours(retention_ms) if is_deleted and retention_ms >= 0 else None
    return RoomRetention(retention_mode(hours, None), hours, None)
