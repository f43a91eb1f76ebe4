"""The program of a test server: `python -m kwire.testing.serve OPTIONS`. `KwireServer` starts it.

OPTIONS is JSON: the descriptor of the control connection, addresses, data directory and settings. The server runs
until SIGTERM, or until the control connection is closed because the test process has ended.
"""

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from kwire.config import load
from kwire.handlers import HANDLERS
from kwire.node import Node
from kwire.testing.api_faults import ApiFaults
from kwire.testing.control import LINE_BYTES_MAX
from kwire.testing.disk_faults import FaultyFiles

Action = Callable[..., Any]


async def serve(options: Mapping[str, Any]) -> None:
    config = load(
        files=(),
        environment={},
        kafka=options["kafka"],
        http=options["http"],
        data_dir=options["data_dir"],
        settings=options["settings"],
    )
    stop_requested = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop_requested.set)
    apis, files = ApiFaults(HANDLERS), FaultyFiles()
    node = Node(config, files, apis.handlers)
    await node.start()
    control = asyncio.create_task(answer_calls(options["control"], actions_of(node, apis, files)))
    control.add_done_callback(lambda done: stop_requested.set())
    await stop_requested.wait()
    # The disk must not fail or delay the stop.
    files.repair()
    control.cancel()
    await node.stop()
    if not control.cancelled() and control.done():
        control.result()  # an error of the control connection ends the process with an error


def actions_of(node: Node, apis: ApiFaults, files: FaultyFiles) -> Mapping[str, Action]:
    def clear_faults() -> None:
        apis.clear()
        files.repair()

    return {
        "add_fault": apis.add,
        "fault_hits": apis.hits,
        "remove_fault": apis.remove,
        "clear_faults": clear_faults,
        "drop_connections": node.drop_connections,
        "slow_disk": files.slow_down,
        "failing_disk": files.fail,
    }


async def answer_calls(descriptor: int, actions: Mapping[str, Action]) -> None:
    """Say that the server is ready, and answer the calls of the test until it closes the connection."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor), limit=LINE_BYTES_MAX)
    writer.write(b'{"ready": true}\n')
    while line := await reader.readline():
        call = json.loads(line)
        try:
            answer = {"result": actions[call["call"]](**call["arguments"])}
        except ValueError as error:
            answer = {"error": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
    writer.close()


def main() -> None:
    import uvloop

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    uvloop.run(serve(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
