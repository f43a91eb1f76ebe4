"""Tell how this machine is: its load and free memory, every few seconds.

.venv/bin/python docs/examples/monitoring/report.py [--every 2] [--count 0] [--room system-events] [--url http://127.0.0.1:8082]
"""

import argparse
import contextlib
import os
import platform
import time

from kwire.client import Client, ClientError

LOAD_HIGH = 2.0


def state() -> tuple[str, dict[str, object]]:
    """What kind of event it is, and its data."""
    load = os.getloadavg()[0]
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    facts: dict[str, object] = {"host": platform.node(), "load": round(load, 2), "free_bytes": free_bytes}
    return ("load.high" if load > LOAD_HIGH * (os.cpu_count() or 1) else "load"), facts


def report(client: Client, room: str, count: int, every_s: float) -> None:
    sent = 0
    while not count or sent < count:
        kind, facts = state()
        try:
            client.stream.publish(room, kind, facts)
        except ClientError as error:
            # The next report says what matters by then; this one is not worth keeping.
            print(f"not reported: {error}", flush=True)
        sent += 1
        if sent != count:
            time.sleep(every_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float, default=2.0, help="seconds")
    parser.add_argument("--count", type=int, default=0, help="0: without end")
    parser.add_argument("--room", default="system-events")
    parser.add_argument("--url", default="http://127.0.0.1:8082")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt), Client(options.url, timeout_s=5.0) as client:
        report(client, options.room, options.count, options.every)


if __name__ == "__main__":
    main()
