"""What bounds a room's history: the modes of rooms, and the topic settings that they are stored as.

They are written down in the topic when the room is made: a change of the server's defaults is for rooms made later.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kwire.broker.catalogue import ROOM_CONFIG
from kwire.config import RoomsConfig
from kwire.errors import ErrorCode, KafkaError
from kwire.topic_config import TopicSettings

TIME, COUNT, HYBRID, INFINITE = "time", "count", "hybrid", "infinite"
NO_BOUND = -1

_HOUR_MS = 3_600_000
# Time bounds whole segments, so a room closes its segments often: events stay for a twelfth of the time longer at most.
_SEGMENTS_PER_TIME = 12
_SEGMENT_MS_MIN = 60_000
# The disk space of events beyond the count is given back by the segment.
_SEGMENT_BYTES = 16 * 1024 * 1024


class RoomOverrides(NamedTuple):
    """What somebody wants of one room; None is as it is, or the server's default where there is no room yet."""

    retention_mode: str | None = None
    retention_hours: float | None = None
    max_events: int | None = None

    @property
    def is_empty(self) -> bool:
        return self == NOTHING_ELSE


NOTHING_ELSE = RoomOverrides()


class RoomRetention(NamedTuple):
    """The bounds of a room; None is no bound of that kind."""

    mode: str
    hours: float | None
    max_events: int | None


def default_retention(config: RoomsConfig) -> RoomRetention:
    return RoomRetention(
        config.retention_mode,
        config.retention_hours if config.retention_mode != COUNT else None,
        config.events_max if config.retention_mode != TIME else None,
    )


def retention_of(settings: TopicSettings) -> RoomRetention:
    """The bounds in force of a room, or of any topic that is used as one."""
    hours = settings.retention_ms / _HOUR_MS if settings.is_deleted and settings.retention_ms >= 0 else None
    max_events = settings.retention_messages if settings.retention_messages >= 0 else None
    if hours is not None and hours.is_integer():
        hours = int(hours)
    return RoomRetention(_mode(hours, max_events), hours, max_events)


def changed_retention(now: RoomRetention, overrides: RoomOverrides, config: RoomsConfig) -> RoomRetention:
    """The bounds that somebody wants. A bound given without a mode comes to those there are."""
    hours, max_events = overrides.retention_hours, overrides.max_events
    if hours is not None and not 0 < hours <= _HOURS_MAX:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"retention_hours must be more than 0 and at most {_HOURS_MAX}")
    if max_events is not None and not 0 < max_events <= _EVENTS_MAX:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"max_events must be from 1 to {_EVENTS_MAX}")
    hours = now.hours if hours is None else hours
    max_events = now.max_events if max_events is None else max_events
    mode = overrides.retention_mode or _mode(hours, max_events)
    if mode not in (TIME, COUNT, HYBRID, INFINITE):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"retention_mode must be {TIME}, {COUNT}, {HYBRID} or {INFINITE}, not {mode!r}"
        )
    # What a mode needs and nobody has said is the server's default.
    return RoomRetention(
        mode,
        (config.retention_hours if hours is None else hours) if mode in (TIME, HYBRID) else None,
        (config.events_max if max_events is None else max_events) if mode in (COUNT, HYBRID) else None,
    )


def retention_configs(retention: RoomRetention) -> dict[str, str]:
    """The topic settings that say so."""
    configs = {
        "retention.ms": str(NO_BOUND),
        "kwire.retention.messages": str(NO_BOUND if retention.max_events is None else retention.max_events),
    }
    if retention.hours is not None:
        retention_ms = max(1, round(retention.hours * _HOUR_MS))
        configs["retention.ms"] = str(retention_ms)
        configs["segment.ms"] = str(max(_SEGMENT_MS_MIN, retention_ms // _SEGMENTS_PER_TIME))
    return configs


def new_room_configs(retention: RoomRetention, config: RoomsConfig) -> Mapping[str, str]:
    """All that a new room says for itself."""
    return {
        ROOM_CONFIG: "true",
        "cleanup.policy": "delete",
        "kwire.log.sync": config.log_sync,
        "segment.bytes": str(_SEGMENT_BYTES),
        **retention_configs(retention),
    }


_HOURS_MAX = (2**63 - 1) // _HOUR_MS
_EVENTS_MAX = 2**63 - 1


def _mode(hours: float | None, max_events: int | None) -> str:
    if hours is not None:
        return HYBRID if max_events is not None else TIME
    return COUNT if max_events is not None else INFINITE
