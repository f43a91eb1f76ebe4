"""Admission: all checks of a client's batch before it is appended.

Every Produce request passes these checks in this order, and no other code checks them. Each check raises KafkaError or
StorageError:

1. The request: `admit_request` checks its version and its acks.
2. The partition: `admit` checks that it exists, that clients may write to it and that this node leads it.
3. The batch: `admit` checks that there is exactly one, that its header and CRC are valid, and that this version
   allows its codec.

A transactional batch must also be admitted by the transaction coordinator (see `transactions.py`).

A check of something that can change (leadership, permissions, quotas) belongs in step 1 or 2. Then `Admitted` must
contain the revision of the checked thing, because a template skips steps 1 and 2 until a revision changes. Step 3 runs
for every batch.
"""

from msgspec import Struct

from kwire.broker.topics.topics import Topic
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.produce.append import PartitionAppend
from storage.batch.format import ZSTD
from storage.batch.record_batch import check_batch

FIRST_SERVED_VERSION = 3
FIRST_ZSTD_VERSION = 7
FIRST_TOPIC_ID_VERSION = 13
ALL, NONE = -1, 0
ACKS = (ALL, NONE, 1)


class Admitted(Struct, frozen=True, eq=False):
    """A topic that passed steps 1 and 2, and the revisions of everything that was checked.

    A template compares these revisions for each request (`ProduceTemplateCache.answer`).
    """

    topic: Topic
    topic_revision: int


def admit_request(version: int, acks: int) -> None:
    if version < FIRST_SERVED_VERSION:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if acks not in ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)


def admit(topic: Topic | None, index: int, batch: memoryview, version: int) -> PartitionAppend:
    """Check the partition and the batch (steps 2 and 3). Raises KafkaError or StorageError."""
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
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd requires version 7 or later.")
    return PartitionAppend(index, batch, partition, header)


# Step 3 for a template. Templates exist only in versions that allow every codec, and a partition without a batch does
# not fit a template.
admit_repeated_batch = check_batch
