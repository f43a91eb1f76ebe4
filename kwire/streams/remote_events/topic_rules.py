"""What must not be changed about an event topic of a cluster: its one partition, and how its batches are stored."""

from collections.abc import Mapping
from typing import Final

from kwire.errors import ErrorCode, KafkaError

FIXED_CONFIGS: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "compression.type": "producer"}


def event_topic_partitions(name: str) -> KafkaError:
    """Return the error of a request for more partitions."""
    return KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic '{name}' of the event store must have one partition.")


def check_configs(changes: Mapping[str, str | None]) -> None:
    """Raise KafkaError if a setting that is fixed gets another value, or is removed (None)."""
    for fixed, value in FIXED_CONFIGS.items():
        if changes.get(fixed, value) != value:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{fixed} of a topic of the event store must be {value}.")
