"""Functions that find the topic and the partition named by a request's path, or raise an error with status 404."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire.errors import ErrorCode
from kwire.streams.log import StreamLog
from kwire.streams.topic_directory import StreamTopic, TopicDirectory
from kwire.web.answers.errors import Refusal

# The maximum number of digits of a partition in a path.
_DIGITS_MAX = 9
_SHOWN_MAX = 249
# The number of logs that are made ready at the same time. Those of a cluster need requests.
READY_AT_ONCE = 50

TOPIC_PATTERN = r"^(?!__)(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}$"
# The types of path parameters, for the documentation.
TOPIC: Any = Annotated[
    str,
    msgspec.Meta(
        pattern=TOPIC_PATTERN,
        description="A valid Kafka topic name that does not start with `__`.",
    ),
]
PARTITION: Any = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class TopicNotFound(Refusal):
    """The topic does not exist, or is internal: internal topics cannot be accessed over HTTP."""

    status = 404
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name


class PartitionNotFound(Refusal):
    status = 404
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name


async def find_topic(topics: TopicDirectory, request: web.Request) -> StreamTopic:
    name = request.match_info["topic"]
    topic = await topics.find(name)
    if topic is None:
        raise TopicNotFound(f"topic {name[:_SHOWN_MAX]!r} does not exist")
    return topic


def find_log(topic: StreamTopic, request: web.Request) -> StreamLog:
    """Return the log of the partition in the path; raises PartitionNotFound."""
    index = partition_index(request)
    if not 0 <= index < topic.partition_count:
        raise no_partition(topic.name, topic.partition_count, request.match_info["partition"])
    return topic.stream(index)


async def make_ready(logs: Sequence[StreamLog]) -> None:
    """Wait until the bounds of all logs are known. Raises KafkaError."""
    for first in range(0, len(logs), READY_AT_ONCE):
        await asyncio.gather(*(log.ready() for log in logs[first : first + READY_AT_ONCE]))


def partition_index(request: web.Request) -> int:
    """Return the partition in the path; -1 if the text in the path is not a number or has too many digits."""
    text = request.match_info["partition"]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else -1


def no_partition(topic: str, count: int, asked: object) -> PartitionNotFound:
    return PartitionNotFound(f"topic {topic} has partitions 0 to {count - 1}, not {str(asked)[:_SHOWN_MAX]}")
