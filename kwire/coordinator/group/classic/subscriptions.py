"""Which topics the members of a classic group want, read out of what they tell their leader.

To the server these are opaque bytes, but whether an offset is still in use depends on them. Every version of a
subscription begins like the first: a version, then the names of the topics; more is not read here.
"""

import struct
from collections.abc import Iterable

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None if one of them does not speak the consumers' language."""
    topics: set[str] = set()
    try:
        for data in subscriptions:
            topics.update(_topics(data))
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
