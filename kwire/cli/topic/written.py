"""Reports what a producer has written."""

import argparse
import sys
from typing import Any

from kwire.cli.framework.output import is_data, print_data
from kwire.cli.kafka.producer import UNKNOWN_OFFSET, Producer


def print_written(producer: Producer, options: argparse.Namespace) -> None:
    """Print the number of records to stderr, or the offsets of each partition as JSON or YAML."""
    if is_data(options):
        print_data(_fields(producer), options)
    else:
        print(f"kwire: {records_text(producer.written_count)} written to {producer.topic}", file=sys.stderr)


def print_unfinished(producer: Producer) -> None:
    """Say how many records are written for certain when an error ends the command."""
    print(f"kwire: {records_text(producer.written_count)} written to {producer.topic} before that", file=sys.stderr)


def after_bad_input(producer: Producer) -> str:
    """Write what was read before bad input, and return the number of records for its message."""
    producer.flush()
    return f"{records_text(producer.written_count)} before it written to {producer.topic}"


def records_text(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


def _fields(producer: Producer) -> dict[str, Any]:
    partitions = [
        {
            "partition": partition,
            "records": written.records,
            "first_offset": None if written.first_offset == UNKNOWN_OFFSET else written.first_offset,
            "last_offset": None if written.last_offset == UNKNOWN_OFFSET else written.last_offset,
        }
        for partition, written in sorted(producer.written.items())
    ]
    return {"topic": producer.topic, "records": producer.written_count, "partitions": partitions}
