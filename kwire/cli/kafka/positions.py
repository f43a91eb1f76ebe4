"""The positions in a log that users name: earliest, latest, an offset, -N, a time, or a time before now."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.connection.offsets import EARLIEST, LATEST, clamped, or_end
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.offsets import list_offsets
from kwire.cli.values.times import now_ms, parse_time

EXPECTED = (
    "earliest, latest, an offset, -N (N records before the end), a time such as 2026-01-31T12:00:00Z, "
    "or an age such as 10m"
)
OFFSET_MAX = (1 << 63) - 1


class Position(NamedTuple):
    """A position. `kind` is earliest, latest, offset, before_end or time, and `amount` is its number."""

    kind: str
    amount: int = 0


BEGIN = Position("earliest")
END = Position("latest")


def parse_position(text: str, option: str, now: Callable[[], int] = now_ms) -> Position:
    """Return the position that a text names. Raises ValueError. `option` is the option in its message."""
    word = text.strip().lower()
    if word in ("earliest", "beginning", "start"):
        return BEGIN
    if word in ("latest", "end"):
        return END
    if re.fullmatch(r"-?\d{1,19}", word) and abs(int(word)) <= OFFSET_MAX:
        number = int(word)
        return Position("offset", number) if not word.startswith("-") else Position("before_end", -number)
    try:
        return Position("time", parse_time(text, now))
    except ValueError:
        raise ValueError(f"{option}: expected {EXPECTED}, got {text!r}") from None


class Bounds(NamedTuple):
    """The first offset and the end of each partition when the command began."""

    first: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]

    @classmethod
    def of(cls, cluster: Cluster, partitions: Iterable[TopicPartition], *, is_committed: bool) -> "Bounds":
        wanted = list(partitions)
        end = list_offsets(cluster, wanted, LATEST, is_committed=is_committed)
        return cls(list_offsets(cluster, wanted, EARLIEST), end)


def offsets_at(cluster: Cluster, bounds: Bounds, position: Position) -> dict[TopicPartition, int]:
    """Return the offset of a position in each partition, between the first offset and the end."""
    first, end = bounds
    kind, amount = position
    if kind == "earliest":
        return dict(first)
    if kind == "latest":
        return dict(end)
    if kind == "offset":
        wanted = dict.fromkeys(end, amount)
    elif kind == "before_end":
        wanted = {partition: offset - amount for partition, offset in end.items()}
    else:
        wanted = or_end(list_offsets(cluster, end, amount), end)
    return clamped(wanted, first, end)
