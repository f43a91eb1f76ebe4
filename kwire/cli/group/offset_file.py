"""Committed offsets in a file: CSV as kafka-consumer-groups exports and imports it.

A line is `topic,partition,offset`, or `group,topic,partition,offset` if the file has several groups.
"""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.framework.errors import UsageError

FILE_BYTES_MAX = 64 * 1024 * 1024


def write_offsets(rows: Iterable[tuple[str, TopicPartition, int]], file: TextIO, *, with_group: bool) -> None:
    """Write the offsets of groups."""
    writer = csv.writer(file, lineterminator="\n")
    for group_id, partition, offset in rows:
        line = (partition.topic, partition.partition, offset)
        writer.writerow((group_id, *line) if with_group else line)


def read_offsets(path: Path, group_id: str) -> dict[TopicPartition, int]:
    """Return the offsets of a group in a file. Lines of other groups are left out. Raises UsageError."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        with path.open(newline="") as file:
            rows = list(csv.reader(file, strict=True))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a CSV file: {error}") from None
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        if len(row) not in (3, 4) or not all(_is_number(text) for text in row[-2:]):
            raise UsageError(
                f"{path}, line {number}: expected topic,partition,offset or group,topic,partition,offset, "
                f"got {','.join(row)!r}"
            )
        if len(row) == 4 and row[0] != group_id:
            continue
        offsets[TopicPartition(row[-3], int(row[-2]))] = int(row[-1])
    return offsets


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
