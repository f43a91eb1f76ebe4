"""How a connection is closed whose client may no longer use it."""

import asyncio
from typing import TYPE_CHECKING

from kwire.wire.messages.fetch import FETCH

if TYPE_CHECKING:
    from kwire.server.kafka.connection import KafkaConnection

# A connection whose user was changed is closed when its requests are answered, at the latest after this time.
REVOKED_SECONDS_MAX = 2.0


def revoke(connection: "KafkaConnection") -> None:
    """Close a connection, because its user was changed or deleted, its key is not valid, or it is one too many.

    Accepted requests are answered first. If only Fetches wait, it is closed immediately: their responses could have
    records that were written after the user was deleted.
    """
    if connection.is_closing:
        return
    if connection.waits_only_for(FETCH):
        connection.close()
    else:
        connection.drain()
        asyncio.get_running_loop().call_later(REVOKED_SECONDS_MAX, connection.abort)
