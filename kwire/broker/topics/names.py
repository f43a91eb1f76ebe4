"""The rules for topic names and partition counts."""

import re

from kwire.access.scope import prefix_of
from kwire.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raise KafkaError unless this is a valid topic name in Kafka. The plain part of a full name must be one, too."""
    prefix_length = len(prefix_of(name))
    plain, length_max = name[prefix_length:], NAME_LENGTH_MAX - prefix_length
    if not plain or plain in (".", "..") or len(plain) > length_max or not _LEGAL_NAME.fullmatch(plain):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: '{name[:NAME_LENGTH_MAX]}'; a name has at most {length_max} "
            "characters, which are letters, digits, '.', '_' or '-', and is not '.' or '..'.",
        )


def check_partition_count(count: int) -> None:
    """Raise KafkaError unless a topic may have this many partitions. Kafka itself has no upper bound."""
    if not 1 <= count <= PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be from 1 to {PARTITIONS_MAX}, not {count}."
        )
