"""What an operator can set about groups; defaults are Kafka's."""

from enum import Enum

from msgspec import Struct


class GroupSettings(Struct, frozen=True, kw_only=True):
    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 50
    # How long offsets are kept that nobody uses, and how often it is looked which these are.
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000


class MigrationPolicy(Enum):
    """Which groups with members may change their protocol; a group without members always may."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def is_disabled(self) -> bool:
        return self is MigrationPolicy.DISABLED

    @property
    def has_upgrades(self) -> bool:
        """From classic to consumer."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def has_downgrades(self) -> bool:
        """From consumer to classic."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """Of consumer groups (KIP-848). A group may have its own; the coordinator is given a function that knows them."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2_147_483_647
    # In this order: the first is used when no member asks for one.
    assignors: tuple[str, ...] = ("uniform", "range")
    # Who reads what is computed no more often than this in a group of many partitions or members: many members that
    # join one after the other share one computation. Up to so many of both together it is computed at once.
    assignment_interval_ms: int = 1_000
    assigned_at_once_max: int = 1_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    # Somebody defined the group: it stays when its last member and its last offset have gone.
    is_kept: bool = False


DEFAULT_CONSUMER_SETTINGS = ConsumerSettings()
