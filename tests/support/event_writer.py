"""A server that publishes to itself: `python -m tests.support.event_writer DIRECTORY LIFE [SETTING=VALUE]…`.

It makes the topics that are missing, then commits events over several of them, from several writers, as fast as it can,
and prints a line for each commit that was answered. It ends when somebody kills it.
"""

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from kwire.broker.topics.topics import Topics
from kwire.config import load
from kwire.node import Node
from tests.support.event_store import draft
from tests.support.open_topics import create_open

TOPICS = ("orders", "users", "audit", "stock")
WRITERS = 8
EVENTS_MAX = 40


async def make_topics(topics: Topics) -> None:
    for name in TOPICS:
        if topics.get(name) is None:
            await create_open(topics, name)


async def write(node: Node, life: int, writer: int) -> None:
    chance, number = random.Random(f"{life}.{writer}"), 0
    while True:
        number += 1
        name = f"{life}.{writer}.{number}"
        count = chance.randint(2, EVENTS_MAX)
        events = [
            draft(
                chance.choice(TOPICS), {"commit": name, "at": at, "of": count, "padding": "x" * chance.randint(0, 2000)}
            )
            for at in range(count)
        ]
        await node.event_store.publish(events)
        sys.stdout.write(json.dumps([name, count]) + "\n")
        sys.stdout.flush()


async def serve(directory: str, life: int, settings: Sequence[str] = ()) -> None:
    node = Node(load(data_dir=directory, kafka="127.0.0.1:0", http="", settings=settings))
    await node.start()
    await make_topics(node._shared.services.topics)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(*(write(node, life, writer) for writer in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(serve(str(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3:]))
