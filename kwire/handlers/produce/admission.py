"""Admission: everything that must hold before a client's batch is appended.

Every Produce request passes these checks, in this order and only here. Each raises KafkaError or StorageError:

1. The request: `admit_request` checks its version and its acks.
2. The partition: `admit` checks that it exists, that clients may write to it and that this node leads it.
3. The batch: `admit` checks that there is exactly one, intact and in a codec of this version.

Transactional batches need the consent of the transaction coordinator besides: `transactions.py` asks for it.

A check of something that can change (leadership, permissions, quotas) belongs into step 1 or 2, and its revision into
`Admitted`: a template takes the outcome of these steps for granted until a revision changes. Step 3 runs for every
batch.
"""

from msgspec import Struct

from kwire.broker.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.produce.append import PartitionAppend
from storage.batch import check_batch
from storage.format import ZSTD

FIRST_SERVED_VERSION = 3
FIRST_ZSTD_VERSION = 7
FIRST_TOPIC_ID_VERSION = 13
ALL, NONE = -1, 0
ACKS = (ALL, NONE, 1)


class Admitted(Struct, frozen=True, eq=False):
    """A topic that passed steps 1 and 2, and the revision of everything that these were based on.

    A template that holds one compares the revisions for each request (`RepeatedProduce.answer`).
    """

    topic: Topic
    topic_revision: int


def admit_request(version: int, acks: int) -> None:
    if version < FIRST_SERVED_VERSION:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if acks not in ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)


def admit(topic: Topic | None, index: int, batch: memoryview, version: int) -> PartitionAppend:
    """A batch for a partition of a topic, if there is one."""
    # --- step 2: the partition
    if topic is None:
        if version < FIRST_TOPIC_ID_VERSION:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients cannot append to the internal topic {topic.name}."
        )
    partition.check_leader()
    # --- step 3: the batch
    if not batch:
        raise KafkaError(ErrorCode.INVALID_RECORD, "A produce request must carry exactly one batch per partition.")
    header = check_batch(batch)
    if version < FIRST_ZSTD_VERSION and header.compression == ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 or later.")
    return PartitionAppend(index, batch, partition, header)


# Step 3 for a template: its version takes every codec, and records that are not a batch do not fit it.
admit_repeated_batch = check_batch
