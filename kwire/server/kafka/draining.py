"""Closes the connections of Kafka clients when the server stops."""

import asyncio

from kwire.server.kafka.shared import Shared

POLL_SECONDS = 0.02


async def drain_connections(shared: Shared, drain_ms: int) -> int:
    """Wait up to `kwire.shutdown.drain.ms` until all connections are closed. Then abort those that are open.

    Returns the number of aborted connections.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + drain_ms / 1000
    while shared.connections and loop.time() < deadline:
        await asyncio.sleep(POLL_SECONDS)
    return abort_connections(shared)


def abort_connections(shared: Shared) -> int:
    """Close all connections without answers. Returns their number."""
    open_connections = tuple(shared.connections)
    for connection in open_connections:
        connection.abort()
    return len(open_connections)
