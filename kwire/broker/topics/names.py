"""The rules for topic names and partition counts."""

import re

from kwire.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raise KafkaError unless this is a valid topic name in Kafka."""
    if not name or name in (".", "..") or len(name) > NAME_LENGTH_MAX or not _LEGAL_NAME.fullmatch(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: '{name[:NAME_LENGTH_MAX]}'; a name has at most {NAME_LENGTH_MAX} "
            "characters, which are letters, digits, '.', '_' or '-', and is not '.' or '..'.",
        )


def check_partition_count(count: int) -> None:
    """Raise KafkaError unless a topic may have this many partitions. Kafka itself has no upper bound."""
    if not 1 <= count <= PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be from 1 to {PARTITIONS_MAX}, not {count}."
        )
