"""The topic with the state of webhooks: it is created, or one that exists is checked. It is never changed."""

from typing import Final

from kwire.errors import ErrorCode, KafkaError
from kwire.streams.remote.agreement import agreement
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs

PARTITION: Final = 0
# All changes of one webhook are one batch. The largest has ten thousand dead letters, which are a few MiB.
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
SEGMENT_BYTES: Final = 16 * 1024 * 1024
CLEANUP, BATCH_LIMIT = "cleanup.policy", "max.message.bytes"
NEW_TOPIC_CONFIGS: Final = {
    CLEANUP: "compact",
    BATCH_LIMIT: str(BATCH_BYTES_MAX),
    "compression.type": "producer",
    "segment.bytes": str(SEGMENT_BYTES),
}


async def create_state_topic(logs: RemoteLogs, name: str) -> RemoteLog:
    """Create the topic if it does not exist, and return its log. Raises KafkaError."""
    try:
        await logs.admin.create_topic(name, 1, NEW_TOPIC_CONFIGS)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    found: RemoteLog | None = None

    async def is_found() -> bool:
        nonlocal found
        found = await find_state_topic(logs, name)
        return found is not None

    # The brokers may not know the new topic yet, or one of this name is being deleted.
    await agreement(logs.cluster, is_found)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} was not created in time")
    return found


async def find_state_topic(logs: RemoteLogs, name: str) -> RemoteLog | None:
    """Return the log of the topic; None if it does not exist. Raises KafkaError, also if the topic cannot be used."""
    try:
        log = await logs.open(name, PARTITION)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise
    known = logs.cluster.metadata.topics.get(name)
    problem = f"{len(known.leaders)} partitions" if known is not None and len(known.leaders) != 1 else ""
    configs = await logs.admin.topic_configs(name, (CLEANUP, BATCH_LIMIT))
    if configs.get(CLEANUP) != "compact":
        problem = f"{CLEANUP}={configs.get(CLEANUP)}"
    elif int(configs.get(BATCH_LIMIT) or 0) < BATCH_BYTES_MAX:
        problem = f"{BATCH_LIMIT}={configs.get(BATCH_LIMIT)}"
    if problem:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"topic {name!r} cannot store webhooks: it has {problem}, and it needs one partition, {CLEANUP}=compact "
            f"and {BATCH_LIMIT} of at least {BATCH_BYTES_MAX}",
        )
    return log
