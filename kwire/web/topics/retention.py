"""How long a topic keeps its records: the retention policies of POST /topics/{topic}, as settings of the topic.

The limits are Kafka's (`retention.ms`, `retention.bytes`) and one of ours (`kwire.retention.messages`), each for every
partition. Age and size take whole segments, so a limit is only as fine as the segments are: unless the request says
another size, a segment holds at most a quarter of what the topic may hold, in time and in bytes. The number of records
is held to the record.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from kwire.config.bridge import StreamsConfig

LONG_MAX = 2**63 - 1
SEGMENT_BYTES_MIN = 1024 * 1024
SEGMENT_BYTES_MAX = 2**31 - 1
SEGMENT_MS_MIN = 1000
SEGMENTS_PER_LIMIT = 4
NO_LIMIT = -1

Seconds = Annotated[int, msgspec.Meta(ge=1, le=LONG_MAX // 1000, description="Age at which records go.")]
Bytes = Annotated[
    int, msgspec.Meta(ge=1, le=LONG_MAX, description="Size of a partition beyond which the oldest records go.")
]
Messages = Annotated[int, msgspec.Meta(ge=1, le=LONG_MAX, description="Newest records that a partition keeps.")]


class Time(msgspec.Struct, tag_field="type", tag="Time", forbid_unknown_fields=True):
    """Records go when they are this old."""

    retention_secs: Seconds


class Size(msgspec.Struct, tag_field="type", tag="Size", forbid_unknown_fields=True):
    """The oldest records go when a partition has more bytes than this."""

    max_bytes: Bytes


class Count(msgspec.Struct, tag_field="type", tag="Messages", forbid_unknown_fields=True):
    """The oldest record goes when a partition has more than this many."""

    max_messages: Messages


class Combined(msgspec.Struct, tag_field="type", tag="Combined", forbid_unknown_fields=True):
    """All three limits; the tightest one wins."""

    retention_secs: Seconds
    max_bytes: Bytes
    max_messages: Messages


class Infinite(msgspec.Struct, tag_field="type", tag="Infinite", forbid_unknown_fields=True):
    """Nothing goes."""


RetentionPolicy = Time | Size | Count | Combined | Infinite


def default_policy(config: StreamsConfig) -> RetentionPolicy:
    """What a topic gets that was made without a policy."""
    facts = {
        "type": config.retention_type,
        "retention_secs": config.retention_secs,
        "max_bytes": config.retention_bytes,
        "max_messages": config.retention_messages,
    }
    fields = {"Time": {"retention_secs"}, "Size": {"max_bytes"}, "Messages": {"max_messages"}, "Infinite": set[str]()}
    wanted = fields.get(config.retention_type, facts.keys()) | {"type"}
    policy: Any = msgspec.convert({name: facts[name] for name in wanted}, RetentionPolicy)
    return policy  # type: ignore[no-any-return]


def configs_of(policy: RetentionPolicy, segment_bytes: int | None, segment_bytes_default: int) -> Mapping[str, str]:
    """The topic's settings. All limits are written down, so that those of the broker do not count."""
    retention_ms = policy.retention_secs * 1000 if isinstance(policy, Time | Combined) else NO_LIMIT
    retention_bytes = policy.max_bytes if isinstance(policy, Size | Combined) else NO_LIMIT
    retention_messages = policy.max_messages if isinstance(policy, Count | Combined) else NO_LIMIT
    if segment_bytes is None:
        segment_bytes = segment_bytes_default
        if retention_bytes != NO_LIMIT:
            segment_bytes = min(segment_bytes, max(SEGMENT_BYTES_MIN, retention_bytes // SEGMENTS_PER_LIMIT))
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "retention.bytes": str(retention_bytes),
        "kwire.retention.messages": str(retention_messages),
        "segment.bytes": str(segment_bytes),
    }
    if retention_ms != NO_LIMIT:
        configs["segment.ms"] = str(max(SEGMENT_MS_MIN, retention_ms // SEGMENTS_PER_LIMIT))
    return configs
