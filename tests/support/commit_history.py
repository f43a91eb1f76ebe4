"""Every commit of a group in the order the server stored it: read from `__consumer_offsets`, as any client can."""

import struct

from kwire.wire.codec import decode_message
from kwire.wire.records.offsets import OffsetCommitKey, OffsetCommitValue
from tests.support.clients import read_topic

OFFSETS_TOPIC = "__consumer_offsets"
OFFSET_COMMIT = 1


def commit_history(bootstrap: str, group: str, topic: str) -> dict[int, list[int]]:
    """Committed offsets by partition of the topic. True to the order as long as nothing was compacted away."""
    history: dict[int, list[int]] = {}
    for records in read_topic(bootstrap, OFFSETS_TOPIC).values():
        for record in records:
            (kind,) = struct.unpack_from(">h", record.key)
            if kind != OFFSET_COMMIT or record.value is None:
                continue
            key = decode_message(OffsetCommitKey, 0, record.key[2:])
            if (key.group, key.topic) != (group, topic):
                continue
            (version,) = struct.unpack_from(">h", record.value)
            value = decode_message(OffsetCommitValue, version, record.value[2:])
            history.setdefault(key.partition, []).append(value.offset)
    return history
