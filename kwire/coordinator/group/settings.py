"""What an operator can set about groups; defaults are Kafka's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 50
    # How long a group without members and offsets is kept (offsets.retention.check.interval.ms).
    empty_group_keep_ms: int = 600_000
