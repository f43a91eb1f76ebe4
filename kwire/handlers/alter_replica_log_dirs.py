"""AlterReplicaLogDirs 1-2: partitions move to another data directory; answered when their moves have begun.

- Each partition is judged on its own; one that is named twice goes to the directory that was named last, as in Kafka.
- A directory that is not configured is LOG_DIR_NOT_FOUND, one that is offline KAFKA_STORAGE_ERROR, one that is cordoned
  INVALID_REPLICA_ASSIGNMENT. While any directory is offline nothing moves: KAFKA_STORAGE_ERROR.
- A partition that is on its way elsewhere changes its mind; one that is asked to be where it is stays, and what was
  copied of it is removed. A topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.
- DescribeLogDirs shows how far a move is. After a restart it is begun anew.
- Version 2 is flexible.
"""

from kwire.broker.chunking import next_turn, spread, spread_nested
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

# To judge one that is where it should be takes some microseconds.
PARTITIONS_PER_TURN = 200


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
        if number % PARTITIONS_PER_TURN == 0:
            await next_turn()
    return AlterReplicaLogDirsResponse(results=list(results.values()))


async def _begin(context: Context, name: str, index: int, path: str) -> None:
    services = context.services
    services.moves.check_directory(path)
    topic = services.topics.get(name)
    partition = topic.partition(index) if topic is not None else None
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    await services.moves.begin(topic, partition, path)
