"""One publisher, many readers, some quick and some slow: each gets every event once and in order.

.venv/bin/python docs/examples/broadcast/broadcast.py [--readers 20] [--events 500] [--url http://127.0.0.1:8082]
"""

import argparse
import asyncio
import time

from kwire.client import AsyncClient, NewEvent, Subscription, Unreachable

BATCH_EVENTS = 50
SLOW_EVERY = 5
SLOW_PAUSE_S = 0.001


async def read(subscription: Subscription, event_count: int, pause_s: float) -> float:
    """The seconds since the epoch when the last event came; raises if one is missing or comes twice."""
    for number in range(event_count):
        event = await subscription.next_event()
        if event.data != {"number": number}:
            raise AssertionError(f"expected number {number}, got {event.data} at offset {event.offset}")
        if pause_s:
            await asyncio.sleep(pause_s)
    return time.time()


async def broadcast(url: str, room: str, reader_count: int, event_count: int) -> None:
    async with AsyncClient(url, timeout_s=10.0) as client:
        subscriptions = [await client.stream.subscribe(room) for _ in range(reader_count)]
        readers = [
            asyncio.create_task(read(subscription, event_count, 0.0 if index % SLOW_EVERY else SLOW_PAUSE_S))
            for index, subscription in enumerate(subscriptions)
        ]
        began_at = time.time()
        numbers = range(event_count)
        for first in range(0, event_count, BATCH_EVENTS):
            batch = [NewEvent("tick", {"number": number}) for number in numbers[first : first + BATCH_EVENTS]]
            await client.stream.publish_many(room, batch)
        stored_at = time.time()
        ended_at = await asyncio.gather(*readers)
        print(
            f"{event_count} events stored in {stored_at - began_at:.2f} s, "
            f"{event_count * reader_count} deliveries: first reader done after {min(ended_at) - began_at:.2f} s, "
            f"last after {max(ended_at) - began_at:.2f} s; nothing missed, nothing twice"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--room", default=f"broadcast-{time.time_ns()}")
    parser.add_argument("--url", default="http://127.0.0.1:8082")
    options = parser.parse_args()
    try:
        asyncio.run(broadcast(options.url, options.room, options.readers, options.events))
    except KeyboardInterrupt:
        pass
    except Unreachable as error:
        raise SystemExit(f"is a server running? {error}") from None


if __name__ == "__main__":
    main()
