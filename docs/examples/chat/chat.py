"""A chat in the terminal: the last 50 messages, then live. Every line you type is a message; Ctrl-D or Ctrl-C ends it.

.venv/bin/python docs/examples/chat/chat.py alice [--room chat-room-1] [--url http://127.0.0.1:8082]
"""

import argparse
import asyncio
import sys
from datetime import UTC, datetime

from kwire.client import AsyncClient, CaughtUp, ClientError, Event, Gap, PublishUncertain, Subscription, Unreachable


async def show(subscription: Subscription) -> None:
    async for item in subscription.items():
        match item:
            case Event(data={"user": user, "text": text}):
                print(f"{user}: {text}", flush=True)
            case Gap():
                print(f"-- messages are missing here ({item.reason})", flush=True)
            case CaughtUp():
                print(f"-- live in {item.room}", flush=True)


async def lines_of_standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def chat(url: str, room: str, user: str) -> None:
    async with AsyncClient(url, timeout_s=5.0) as client:
        subscription = await client.stream.subscribe(room, from_offset=-50, replay=True)
        showing = asyncio.create_task(show(subscription))
        reader = await lines_of_standard_input()
        while line := await reader.readline():
            message = {"user": user, "text": line.decode().rstrip("\n"), "timestamp": datetime.now(UTC).isoformat()}
            try:
                await client.stream.publish(room, "message", message)
            except PublishUncertain:
                print("-- the connection was lost: it is not known whether that was sent", flush=True)
            except ClientError as error:
                print(f"-- not sent: {error}", flush=True)
        await subscription.close()
        await showing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("user")
    parser.add_argument("--room", default="chat-room-1")
    parser.add_argument("--url", default="http://127.0.0.1:8082")
    options = parser.parse_args()
    try:
        asyncio.run(chat(options.url, options.room, options.user))
    except KeyboardInterrupt:
        pass
    except Unreachable as error:
        raise SystemExit(f"is a server running? {error}") from None


if __name__ == "__main__":
    main()
