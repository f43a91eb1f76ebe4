"""Publish, read and follow, in a program without an event loop: a room, then the event store.

.venv/bin/python docs/examples/first_steps/without_asyncio.py [--url http://127.0.0.1:8082]
"""

import argparse
import time

from kwire.client import Client, GapFound, Position, Unreachable, WrongExpectedVersion


def use_a_room(client: Client, room: str) -> None:
    client.stream.publish(room, "message", {"user": "alice", "text": "Hello!"})
    client.stream.publish(room, "message", {"user": "bob", "text": "Hello, Alice!"})

    # Leaving the loop ends the subscription.
    for event in client.stream.subscribe(room, from_offset=0):
        print(f"{event.offset} {event.data['user']}: {event.data['text']}")
        if event.data["user"] == "bob":
            break

    # With `with`, events that are published inside the block are not missed.
    with client.stream.subscribe(room) as subscription:
        client.stream.publish(room, "message", {"user": "carol", "text": "Am I late?"})
        event = subscription.next_event(timeout_s=10)
        print(f"{event.offset} {event.data['user']}: {event.data['text']}")


def use_the_event_store(client: Client, topic: str) -> None:
    schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    client.events.create_topic(topic, {"order.placed": schema, "order.paid": schema})
    client.events.publish(topic, "order.placed", {"total": 12.5})
    last = client.events.last(topic)
    assert last is not None
    client.events.publish(topic, "order.paid", {"total": 12.5}, expected_version=last.version)
    try:
        client.events.publish(topic, "order.paid", {"total": 12.5}, expected_version=last.version)
    except WrongExpectedVersion as error:
        print(f"not paid twice: the last version is {error.actual}")

    position: Position | None = None
    try:
        with client.events.subscribe_stream(topic, from_version=0) as orders:
            for order in orders:
                print(f"{order.version} {order.type}: {order.payload}")
                position = orders.position
                if order.type == "order.paid":
                    break
    except GapFound as found:
        print(f"events are missing: {found}")
    print(f"another process continues with resume={position}")


def run(url: str, name: str) -> None:
    with Client(url, timeout_s=5.0) as client:
        use_a_room(client, f"{name}-room")
        use_the_event_store(client, f"{name}-orders")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default=f"first-steps-{time.time_ns()}", help="the names of room and topic begin so")
    parser.add_argument("--url", default="http://127.0.0.1:8082")
    options = parser.parse_args()
    try:
        run(options.url, options.name)
    except Unreachable as error:
        raise SystemExit(f"is a server running? {error}") from None


if __name__ == "__main__":
    main()
