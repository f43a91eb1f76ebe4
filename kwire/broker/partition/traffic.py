"""The traffic of a partition or a topic, for metrics."""

from typing import NamedTuple


class Traffic(NamedTuple):
    """Bytes and records that were appended to logs, and that were sent to Kafka consumers."""

    appended_bytes: int = 0
    appended_records: int = 0
    fetched_bytes: int = 0
    fetched_records: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        return Traffic(*map(int.__add__, self, other))
