"""DescribeLogDirs 1-5: the data directories, the partitions in them with their sizes, and how full the volumes are.

- Null topics asks for all partitions, an empty list for none; what does not exist is left out, as in Kafka.
- A directory that cannot be used has KAFKA_STORAGE_ERROR and nothing else. Its partitions are in no answer.
- A partition that is moving is in two directories: where it is, and as a future one where it is going, with its lag.
- Version 2 is flexible, version 3 has an error for the whole answer, version 4 the bytes of the volume and those that
  are free, version 5 whether a directory is cordoned, that is: gets no new partitions.
"""

import asyncio

from kwire.broker.chunking import spread
from kwire.broker.log_dirs import LogDirFacts
from kwire.broker.turns import WEIGHT_PER_TURN
from kwire.errors import ErrorCode
from kwire.handlers.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    found = await context.services.log_dirs.describe(await _wanted(request))
    weight = sum(len(partitions) for one in found for partitions in one.topics.values())
    if weight <= WEIGHT_PER_TURN:
        return DescribeLogDirsResponse(results=[_result(one) for one in found])
    # One directory is one element, however much is in it: a thread makes it, and the loop goes on between its steps.
    encoded = await asyncio.to_thread(_encode, found, context.api_version)
    response = DescribeLogDirsResponse(results=[])
    response.results = EncodedElements(len(found), encoded)  # type: ignore[assignment]
    return response


async def _wanted(request: DescribeLogDirsRequest) -> dict[str, set[int]] | None:
    if request.topics is None:
        return None
    wanted: dict[str, set[int]] = {}
    async for topic in spread(request.topics):
        wanted.setdefault(topic.topic, set()).update(topic.partitions)
    return wanted


def _encode(found: list[LogDirFacts], version: int) -> bytes:
    return elements_encoder(DescribeLogDirsResponse, "results", version)([_result(one) for one in found])


def _result(one: LogDirFacts) -> DescribeLogDirsResult:
    if one.error is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=one.path, topics=[])
    topics = [
        DescribeLogDirsTopic(
            name=name,
            partitions=[
                DescribeLogDirsPartition(
                    partition_index=replica.partition_index,
                    partition_size=replica.size_bytes,
                    offset_lag=replica.offset_lag,
                    is_future_key=replica.is_future,
                )
                for replica in replicas
            ],
        )
        for name, replicas in one.topics.items()
    ]
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=one.path,
        topics=topics,
        total_bytes=one.total_bytes,
        usable_bytes=one.usable_bytes,
        is_cordoned=one.is_cordoned,
    )
