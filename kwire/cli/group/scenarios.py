"""The scenarios of a reset: which offset each partition gets."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kwire.cli.connection.kafka_client import KafkaClient, TopicPartition
from kwire.cli.connection.offsets import EARLIEST, LATEST, clamped, offsets_at, or_end
from kwire.cli.framework.errors import UsageError
from kwire.cli.values.times import now_ms, parse_duration, parse_time

TO_EARLIEST, TO_LATEST, TO_CURRENT, TO_OFFSET, SHIFT_BY, TO_TIME, FILE = (
    *("earliest", "latest", "current"),
    *("offset", "shift", "time", "file"),
)


class Scenario(NamedTuple):
    """A scenario. `number` is the offset, the distance or the time in milliseconds, `offsets` are those of a file."""

    kind: str
    number: int = 0
    offsets: Mapping[TopicPartition, int] = {}


def scenario_of(options: argparse.Namespace) -> Scenario:
    """Return the scenario that the options name. That of a file has no offsets yet. Raises UsageError."""
    if options.to_earliest:
        return Scenario(TO_EARLIEST)
    if options.to_latest:
        return Scenario(TO_LATEST)
    if options.to_current:
        return Scenario(TO_CURRENT)
    if options.to_offset is not None:
        return Scenario(TO_OFFSET, options.to_offset)
    if options.shift_by is not None:
        return Scenario(SHIFT_BY, options.shift_by)
    if options.to_datetime is not None:
        return Scenario(TO_TIME, _parsed("--to-datetime", parse_time, options.to_datetime))
    if options.by_duration is not None:
        return Scenario(TO_TIME, now_ms() - _parsed("--by-duration", parse_duration, options.by_duration))
    if options.from_file is not None:
        return Scenario(FILE)
    return _position(options.to)


def new_offsets(
    client: KafkaClient,
    scenario: Scenario,
    committed: Mapping[TopicPartition, int],
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, between the first offset and the end. Raises Refused."""
    first = offsets_at(client, dict.fromkeys(partitions, EARLIEST))
    ends = offsets_at(client, dict.fromkeys(partitions, LATEST))
    wanted: Mapping[TopicPartition, int]
    if scenario.kind == TO_EARLIEST:
        wanted = first
    elif scenario.kind == TO_LATEST:
        wanted = ends
    elif scenario.kind == TO_CURRENT:
        wanted = {one: committed.get(one, ends[one]) for one in partitions}
    elif scenario.kind == SHIFT_BY:
        missing = [one for one in partitions if one not in committed]
        if missing:
            raise ValueError(f"--shift-by needs a committed offset, but {missing[0]} has none")
        wanted = {one: committed[one] + scenario.number for one in partitions}
    elif scenario.kind == TO_TIME:
        wanted = or_end(offsets_at(client, dict.fromkeys(partitions, max(0, scenario.number))), ends)
    elif scenario.kind == FILE:
        wanted = scenario.offsets
    else:
        wanted = dict.fromkeys(partitions, scenario.number)
    return clamped({one: wanted[one] for one in partitions}, first, ends)


def _position(text: str) -> Scenario:
    if text in (TO_EARLIEST, TO_LATEST, TO_CURRENT):
        return Scenario(text)
    if text.isascii() and text.isdecimal():
        return Scenario(TO_OFFSET, int(text))
    try:
        return Scenario(TO_TIME, parse_time(text))
    except ValueError:
        raise UsageError(f"--to: expected earliest, latest, current, an offset or a time, got {text!r}") from None


def _parsed(option: str, parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except ValueError as problem:
        raise UsageError(f"{option}: {problem}") from None
