"""Publish, read and follow, in a program that uses asyncio: a room, then the event store.

.venv/bin/python docs/examples/first_steps/with_asyncio.py [--url http://127.0.0.1:8082]
"""

import argparse
import asyncio
import time

from kwire.client import AsyncClient, GapFound, Position, Unreachable, WrongExpectedVersion


async def use_a_room(client: AsyncClient, room: str) -> None:
    await client.stream.publish(room, "message", {"user": "alice", "text": "Hello!"})
    await client.stream.publish(room, "message", {"user": "bob", "text": "Hello, Alice!"})

    # Leaving the loop ends the subscription.
    async for event in client.stream.subscribe(room, from_offset=0):
        print(f"{event.offset} {event.data['user']}: {event.data['text']}")
        if event.data["user"] == "bob":
            break

    # With `async with`, events that are published inside the block are not missed.
    async with client.stream.subscribe(room) as subscription:
        await client.stream.publish(room, "message", {"user": "carol", "text": "Am I late?"})
        event = await subscription.next_event(timeout_s=10)
        print(f"{event.offset} {event.data['user']}: {event.data['text']}")


async def use_the_event_store(client: AsyncClient, topic: str) -> None:
    schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    await client.events.create_topic(topic, {"order.placed": schema, "order.paid": schema})
    await client.events.publish(topic, "order.placed", {"total": 12.5})
    last = await client.events.last(topic)
    assert last is not None
    await client.events.publish(topic, "order.paid", {"total": 12.5}, expected_version=last.version)
    try:
        await client.events.publish(topic, "order.paid", {"total": 12.5}, expected_version=last.version)
    except WrongExpectedVersion as error:
        print(f"not paid twice: the last version is {error.actual}")

    position: Position | None = None
    try:
        async with client.events.subscribe_stream(topic, from_version=0) as orders:
            async for order in orders:
                print(f"{order.version} {order.type}: {order.payload}")
                position = orders.position
                if order.type == "order.paid":
                    break
    except GapFound as found:
        print(f"events are missing: {found}")
    print(f"another process continues with resume={position}")


async def run(url: str, name: str) -> None:
    async with AsyncClient(url, timeout_s=5.0) as client:
        await use_a_room(client, f"{name}-room")
        await use_the_event_store(client, f"{name}-orders")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default=f"first-steps-{time.time_ns()}", help="the names of room and topic begin so")
    parser.add_argument("--url", default="http://127.0.0.1:8082")
    options = parser.parse_args()
    try:
        asyncio.run(run(options.url, options.name))
    except Unreachable as error:
        raise SystemExit(f"is a server running? {error}") from None


if __name__ == "__main__":
    main()
