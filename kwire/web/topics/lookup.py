"""The topic and the partition that a path names, or a refusal that says what there is."""

from typing import Annotated, Any

import msgspec
from aiohttp import web

from kwire.broker.topics import Topic
from kwire.errors import ErrorCode
from kwire.streams.log import StreamLog
from kwire.web.errors import Refusal
from kwire.web.services import WebServices

# More digits than any partition has.
_DIGITS_MAX = 9
_SHOWN_MAX = 249

TOPIC_PATTERN = r"^(?!__)(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}$"
# What the parameters of paths may be, for the documentation.
TOPIC: Any = Annotated[
    str,
    msgspec.Meta(
        pattern=TOPIC_PATTERN,
        description="A legal topic name of Kafka's that is not internal.",
    ),
]
PARTITION: Any = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class TopicNotFound(Refusal):
    """Internal topics are not found either: no HTTP door leads to them."""

    status = 404
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name


class PartitionNotFound(Refusal):
    status = 404
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name


def find_topic(services: WebServices, request: web.Request) -> Topic:
    name = request.match_info["topic"]
    topic = services.topics.get(name)
    if topic is None or topic.is_internal:
        raise TopicNotFound(f"there is no topic {name[:_SHOWN_MAX]!r}")
    return topic


def find_log(topic: Topic, request: web.Request) -> StreamLog:
    """The log of the partition that the path names."""
    index = partition_index(request)
    if not 0 <= index < len(topic.partitions):
        raise no_partition(topic.name, len(topic.partitions), request.match_info["partition"])
    return topic.stream(index)


def partition_index(request: web.Request) -> int:
    """-1 if it is no number; no partition has that."""
    text = request.match_info["partition"]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else -1


def no_partition(topic: str, count: int, asked: object) -> PartitionNotFound:
    return PartitionNotFound(f"topic {topic} has partitions 0 to {count - 1}, not {str(asked)[:_SHOWN_MAX]}")
