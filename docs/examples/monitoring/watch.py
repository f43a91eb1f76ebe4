"""Watch the machines on which `kwire example monitoring` runs: only new events, pulled one at a time.

.venv/bin/python docs/examples/monitoring/watch.py [--count 0] [--types load.high] [--room system-events] [--url http://127.0.0.1:8082]
"""

import argparse
import asyncio

from kwire.client import AsyncClient, GapFound, Unreachable


async def watch(url: str, room: str, types: list[str] | None, count: int) -> None:
    async with (
        AsyncClient(url, timeout_s=5.0) as client,
        client.stream.subscribe(room, types=types) as subscription,
    ):
        print(f"watching {room}", flush=True)
        seen = 0
        while not count or seen < count:
            try:
                event = await subscription.next_event()
            except GapFound as found:
                print(f"events were missed: {found}", flush=True)
                continue
            print(f"{event.timestamp} {event.type}: {event.data}", flush=True)
            seen += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=0, help="0: without end")
    parser.add_argument("--types", nargs="*", help="only events of these types")
    parser.add_argument("--room", default="system-events")
    parser.add_argument("--url", default="http://127.0.0.1:8082")
    options = parser.parse_args()
    try:
        asyncio.run(watch(options.url, options.room, options.types, options.count))
    except KeyboardInterrupt:
        pass
    except Unreachable as error:
        raise SystemExit(f"is a server running? {error}") from None


if __name__ == "__main__":
    main()
