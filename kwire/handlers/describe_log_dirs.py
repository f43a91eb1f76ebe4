"""DescribeLogDirs 1-5: the data directories, the sizes of the partitions in them, and the free space of the volumes.

- The request needs DESCRIBE on the cluster. Without it the response has no directories, and from version 3 on an error.
- Null topics request all partitions, and an empty list requests none. Partitions that do not exist are left out, as in
  Kafka.
- A directory that cannot be used has KAFKA_STORAGE_ERROR and no partitions.
- A partition that is being moved is listed in two directories: in its current directory, and in the target directory as
  a future replica with its lag.
- Version 2 is flexible. Version 3 adds an error for the whole response. Version 4 adds the total and usable bytes of
  the volume. Version 5 adds whether a directory is cordoned, which means that it gets no new partitions.
"""

import asyncio

from kwire.access.acl import Operation
from kwire.broker.admin.log_dirs import LogDirFacts
from kwire.broker.chunked_answers import WEIGHT_PER_CHUNK
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not context.cluster.permits(Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    found = await context.services.log_dirs.describe(await _wanted(request))
    weight = sum(len(partitions) for one in found for partitions in one.topics.values())
    if weight <= WEIGHT_PER_CHUNK:
        return DescribeLogDirsResponse(results=[_result(one) for one in found])
    # A thread encodes the directories. They cannot be encoded in chunks, because one directory is one array element.
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
