"""Reads the subscribed topics from the member metadata of a classic group.

The expiration of offsets uses this to find the topics that are still in use. Every version of a subscription begins
with the version and the topic names. The other fields are not read here.
"""

import struct
from collections.abc import Iterable

from kwire.access.scope import prefix_of

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(group_id: str, subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all members; None if the metadata of any member is not a consumer subscription.

    Members of a group in a scope use plain names of the scope. The result has full names.
    """
    prefix = prefix_of(group_id)
    topics: set[str] = set()
    try:
        for data in subscriptions:
            topics.update(prefix + name for name in _topics(data))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _topics(data: bytes) -> Iterable[str]:
    version, count = _HEAD.unpack_from(data)
    position = _HEAD.size
    if version < 0 or not 0 <= count <= (len(data) - position) // _LENGTH.size:
        raise ValueError
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise ValueError
        yield data[position : position + length].decode()
        position += length
