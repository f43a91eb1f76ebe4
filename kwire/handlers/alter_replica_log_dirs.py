"""AlterReplicaLogDirs 1-2: move partitions to another data directory; the response is sent when the moves have begun.

- The request needs ALTER on the cluster. Otherwise every partition is CLUSTER_AUTHORIZATION_FAILED.
- Each partition has its own result. A repeated partition moves to the last directory that the request names for it, as
  in Kafka.
- A directory that is not configured is LOG_DIR_NOT_FOUND, an offline one is KAFKA_STORAGE_ERROR, and a cordoned one is
  INVALID_REPLICA_ASSIGNMENT. While any directory is offline, every move is KAFKA_STORAGE_ERROR.
- A new target replaces the target of a move in progress. If the new target is the current directory, the move is
  cancelled and its copy is removed.
- A topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.
- DescribeLogDirs shows the progress of a move. After a restart the move begins again.
- Version 2 is flexible.
"""

from kwire.access.acl import Operation
from kwire.concurrency.chunking import spread, spread_nested, yield_to_loop
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

# Partitions that are checked between two yields to the event loop. A check takes some microseconds.
PARTITIONS_PER_CHUNK = 200


async def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    wanted: dict[tuple[str, int], str] = {}
    async for directory, topic in spread_nested(request.dirs, lambda directory: directory.topics):
        async for index in spread(topic.partitions):
            wanted[topic.name, index] = directory.path
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for number, ((name, index), path) in enumerate(wanted.items(), start=1):
        code = ErrorCode.NONE
        try:
            await _begin(context, name, index, path)
        except KafkaError as error:
            code = error.code
        one = results.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name, partitions=[]))
        one.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
        if number % PARTITIONS_PER_CHUNK == 0:
            await yield_to_loop()
    return AlterReplicaLogDirsResponse(results=list(results.values()))


async def _begin(context: Context, name: str, index: int, path: str) -> None:
    services = context.services
    topics = context.cluster.topics(Operation.ALTER)
    services.relocations.check_directory(path)
    topic = topics.get(name)
    partition = topic.partition(index) if topic is not None else None
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    await services.relocations.begin(topic, partition, path)
