"""The retention modes of rooms, and the topic configs that store them.

The configs are set when a room is created. A change of the server's defaults affects only rooms that are created later.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kwire.broker.topics.catalogue import ROOM_CONFIG
from kwire.config import RoomsConfig
from kwire.config.resources.topic import TopicSettings
from kwire.errors import ErrorCode, KafkaError

TIME, COUNT, HYBRID, INFINITE = "time", "count", "hybrid", "infinite"
NO_BOUND = -1

_HOUR_MS = 3_600_000
# Retention by time deletes whole segments. A room begins this many segments per retention time, but not more than one
# per _SEGMENT_MS_MIN. So events are kept longer by at most a twelfth of the retention time, or by _SEGMENT_MS_MIN if
# that is more.
_SEGMENTS_PER_TIME = 12
_SEGMENT_MS_MIN = 60_000
# Retention by count frees disk space in whole segments, so the segments of rooms are small.
_SEGMENT_BYTES = 16 * 1024 * 1024


class RoomOverrides(NamedTuple):
    """The settings that a client requests for one room.

    None keeps the current value. For a new room, None selects the server's default.
    """

    retention_mode: str | None = None
    retention_hours: float | None = None
    max_events: int | None = None

    @property
    def is_empty(self) -> bool:
        return self == NO_OVERRIDES


NO_OVERRIDES = RoomOverrides()


class RoomRetention(NamedTuple):
    """The retention limits of a room. None stands for no limit."""

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
    """The current retention limits of a room, or of a topic that is used as a room."""
    hours = as_hours(settings.retention_ms) if settings.has_delete_policy and settings.retention_ms >= 0 else None
    max_events = settings.retention_messages if settings.retention_messages >= 0 else None
    return RoomRetention(retention_mode(hours, max_events), hours, max_events)


def as_hours(retention_ms: int) -> float:
    """Return `retention.ms` in hours, as a whole number if it is one."""
    hours = retention_ms / _HOUR_MS
    return int(hours) if hours.is_integer() else hours


def retention_mode(hours: float | None, max_events: int | None) -> str:
    if hours is not None:
        return HYBRID if max_events is not None else TIME
    return COUNT if max_events is not None else INFINITE


def changed_retention(now: RoomRetention, overrides: RoomOverrides, config: RoomsConfig) -> RoomRetention:
    """Return the retention limits after `overrides` are applied to `now`. Raises KafkaError if they are invalid.

    If `overrides` has a limit but no mode, the limit replaces the current one of its kind, and the other limit is kept.
    """
    hours, max_events = overrides.retention_hours, overrides.max_events
    if hours is not None and not 0 < hours <= _HOURS_MAX:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"retention_hours must be more than 0 and at most {_HOURS_MAX}")
    if max_events is not None and not 0 < max_events <= _EVENTS_MAX:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"max_events must be from 1 to {_EVENTS_MAX}")
    hours = now.hours if hours is None else hours
    max_events = now.max_events if max_events is None else max_events
    mode = overrides.retention_mode or retention_mode(hours, max_events)
    if mode not in (TIME, COUNT, HYBRID, INFINITE):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"retention_mode must be {TIME}, {COUNT}, {HYBRID} or {INFINITE}, not {mode!r}"
        )
    # If the mode needs a limit that neither the request nor the room has, the server's default is used.
    return RoomRetention(
        mode,
        (config.retention_hours if hours is None else hours) if mode in (TIME, HYBRID) else None,
        (config.events_max if max_events is None else max_events) if mode in (COUNT, HYBRID) else None,
    )


def retention_configs(retention: RoomRetention) -> dict[str, str]:
    """The topic configs that store `retention`."""
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
    """The topic configs of a new room."""
    return {
        ROOM_CONFIG: "true",
        "cleanup.policy": "delete",
        "kwire.log.sync": config.log_sync,
        "segment.bytes": str(_SEGMENT_BYTES),
        **retention_configs(retention),
    }


_HOURS_MAX = (2**63 - 1) // _HOUR_MS
_EVENTS_MAX = 2**63 - 1
