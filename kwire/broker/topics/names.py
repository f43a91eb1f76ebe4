"""The rules for topic names and partition counts.

The name of a topic of a scope begins with the prefix of the scope. The rules apply to the rest of it, the plain name,
which clients of the scope use. The whole name must not be longer than other names.
"""

import re

from kwire.access.scope import prefix_of
from kwire.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000

# Plain names that begin like the names of internal topics.
RESERVED_PREFIX = "__"

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raise KafkaError unless this is a valid topic name in Kafka, and a plain name is not reserved."""
    prefix = prefix_of(name)
    plain, length_max = name[len(prefix) :], NAME_LENGTH_MAX - len(prefix)
    if not plain or plain in (".", "..") or len(plain) > length_max or not _LEGAL_NAME.fullmatch(plain):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: '{name[:NAME_LENGTH_MAX]}'; a name has at most {length_max} "
            "characters, which are letters, digits, '.', '_' or '-', and is not '.' or '..'.",
        )
    if prefix and plain.startswith(RESERVED_PREFIX):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: '{name}'; names starting with __ are reserved.",
        )


def check_partition_count(count: int) -> None:
    """Raise KafkaError unless a topic may have this many partitions. Kafka itself has no upper bound."""
    if not 1 <= count <= PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be from 1 to {PARTITIONS_MAX}, not {count}."
        )
