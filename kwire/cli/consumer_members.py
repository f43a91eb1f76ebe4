"""Describes the members of a consumer-protocol group (KIP-848) with kwire's own codec.

The other commands use kafka-python, which does not support ConsumerGroupDescribe. Each request uses its own connection.
"""

import socket
import struct

from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)

VERSION = 1
CLIENT_ID = b"kwire"
TIMEOUT_SECONDS = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
# The header of a flexible response: the correlation id, and the number of tagged fields, which is 0.
_ANSWER_HEAD = struct.Struct(">ib")


def consumer_members(bootstrap: str, group_id: str) -> list[Member]:
    """Return the members of one group. Raises ValueError if the server does not answer or answers with an error."""
    host, _, port = bootstrap.rpartition(":")
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    key = CONSUMER_GROUP_DESCRIBE.key
    body = _HEAD.pack(key, VERSION, 1, len(CLIENT_ID)) + CLIENT_ID + b"\x00" + encode_message(request, VERSION)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS) as connection:
            connection.sendall(_SIZE.pack(len(body)) + body)
            (size,) = _SIZE.unpack(_received(connection, _SIZE.size))
            if not _ANSWER_HEAD.size <= size <= ANSWER_BYTES_MAX:
                raise ValueError(f"{bootstrap} answered with a frame of invalid size: {size} bytes")
            answer = _received(connection, size)
    except OSError as error:
        raise ValueError(f"no answer from {bootstrap}: {error}") from error
    (group,) = decode_message(ConsumerGroupDescribeResponse, VERSION, answer[_ANSWER_HEAD.size :]).groups
    if group.error_code:
        raise ValueError(f"{group_id}: {group.error_message or f'error {group.error_code}'}")
    return group.members


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise OSError("the connection was closed")
        data += more
    return bytes(data)
