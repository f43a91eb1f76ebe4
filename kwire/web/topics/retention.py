"""Retention policies of POST /topics/{topic}, converted to topic settings.

The limits are `retention.ms` and `retention.bytes` as in Kafka, and `kwire.retention.messages`. Each limit applies per
partition. The limit on the number of records is exact. Retention by age and by size deletes whole segments, so a
partition may exceed these limits by one segment. Therefore a segment covers at most a quarter of `retention.ms`, and
has at most a quarter of `retention.bytes` unless the request sets `segment_bytes`. The derived `segment.ms` and
`segment.bytes` are never below SEGMENT_MS_MIN and SEGMENT_BYTES_MIN.
"""

from typing import Annotated, Any

import msgspec

from kwire.config.http_api import StreamsConfig

LONG_MAX = 2**63 - 1
SEGMENT_BYTES_MIN = 1024 * 1024
SEGMENT_BYTES_MAX = 2**31 - 1
SEGMENT_MS_MIN = 1000
SEGMENTS_PER_LIMIT = 4
NO_LIMIT = -1
MESSAGES_CONFIG = "kwire.retention.messages"

Seconds = Annotated[int, msgspec.Meta(ge=1, le=LONG_MAX // 1000, description="The age at which records are deleted.")]
Bytes = Annotated[
    int,
    msgspec.Meta(ge=1, le=LONG_MAX, description="The size of a partition above which the oldest records are deleted."),
]
Messages = Annotated[
    int, msgspec.Meta(ge=1, le=LONG_MAX, description="The number of newest records that a partition keeps.")
]


class Time(msgspec.Struct, tag_field="type", tag="Time", forbid_unknown_fields=True):
    """Records are deleted when they reach this age."""

    retention_secs: Seconds


class Size(msgspec.Struct, tag_field="type", tag="Size", forbid_unknown_fields=True):
    """The oldest records are deleted when a partition has more bytes than this."""

    max_bytes: Bytes


class Count(msgspec.Struct, tag_field="type", tag="Messages", forbid_unknown_fields=True):
    """The oldest records are deleted when a partition has more records than this."""

    max_messages: Messages


class Combined(msgspec.Struct, tag_field="type", tag="Combined", forbid_unknown_fields=True):
    """All three limits. A record is deleted when one of them requires it."""

    retention_secs: Seconds
    max_bytes: Bytes
    max_messages: Messages


class Infinite(msgspec.Struct, tag_field="type", tag="Infinite", forbid_unknown_fields=True):
    """Records are never deleted."""


RetentionPolicy = Time | Size | Count | Combined | Infinite


def default_policy(config: StreamsConfig) -> RetentionPolicy:
    """Return the policy for topics that are created without a retention policy."""
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


def configs_of(policy: RetentionPolicy, segment_bytes: int | None, segment_bytes_default: int) -> dict[str, str]:
    """Return the topic settings for a policy. All limits are set, so that the broker's defaults do not apply."""
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
        MESSAGES_CONFIG: str(retention_messages),
        "segment.bytes": str(segment_bytes),
    }
    if retention_ms != NO_LIMIT:
        configs["segment.ms"] = str(max(SEGMENT_MS_MIN, retention_ms // SEGMENTS_PER_LIMIT))
    return configs
