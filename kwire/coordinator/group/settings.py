"""The settings of the group coordinator, with Kafka's defaults."""

from enum import Enum

from msgspec import Struct

from kwire.broker.topics.topics import Topic
from kwire.config.tree import GroupsConfig


class GroupSettings(Struct, frozen=True, kw_only=True):
    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 50
    # The time for which unused offsets are kept, and the time between two removals of expired offsets.
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000


def settings_of(groups: GroupsConfig, offsets: Topic | None) -> GroupSettings:
    """Return the settings for a configuration. `offsets` is the topic `__consumer_offsets`, if it exists."""
    return GroupSettings(
        initial_rebalance_delay_ms=groups.initial_rebalance_delay_ms,
        min_session_timeout_ms=groups.session_timeout_ms_min,
        max_session_timeout_ms=groups.session_timeout_ms_max,
        max_size=groups.member_count_max,
        offset_metadata_max_bytes=groups.offset_metadata_bytes_max,
        offsets_retention_ms=groups.offsets_retention_ms,
        offsets_retention_check_interval_ms=groups.offsets_retention_check_interval_ms,
        # The partition of a group is its hash modulo the partition count. The existing topic's count applies, even if
        # another count is configured.
        offsets_topic_num_partitions=len(offsets.partitions) if offsets else groups.offsets_partition_count,
    )


class MigrationPolicy(Enum):
    """The protocol migrations that are allowed for groups with members. Empty groups may always be migrated."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def is_disabled(self) -> bool:
        return self is MigrationPolicy.DISABLED

    @property
    def has_upgrades(self) -> bool:
        """Whether groups may be migrated from the classic to the consumer protocol."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def has_downgrades(self) -> bool:
        """Whether groups may be migrated from the consumer to the classic protocol."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """Settings of a consumer group (KIP-848). Each group may have its own."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2_147_483_647
    # The supported assignors. The first one is used if no member requests an assignor.
    assignors: tuple[str, ...] = ("uniform", "range")
    # If the number of partitions plus the number of members is at most `assigned_at_once_max`, a new assignment is
    # computed immediately. In larger groups, it is computed at most once per `assignment_interval_ms`. So one
    # computation is enough for many members that join one after the other.
    assignment_interval_ms: int = 1_000
    assigned_at_once_max: int = 1_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    # Whether the group is kept without members and offsets until it is deleted. True for groups created over HTTP.
    is_retained_when_empty: bool = False


DEFAULT_CONSUMER_SETTINGS = ConsumerSettings()
