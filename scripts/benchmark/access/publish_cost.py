"""Publishing with a key: `PYTHONPATH=scripts python -m benchmark.access.publish_cost [--seconds S] [--turns N]`.

One server, one key: clients publish to `POST /db/api/v1/events` and `POST /rooms/{room}/events` in alternating turns.
The key has a limit of events that is not reached, so that its events are counted. The medians of both are printed.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

SECONDS_DEFAULT, TURNS_DEFAULT, SECONDS_MAX, TURNS_MAX = 5.0, 5, 60.0, 100
CONNECTIONS = 16
READY_SECONDS_MAX = 60
MAX_EVENTS = 10**9
DATA = {"text": "x" * 100}
PATHS = {
    "POST /db/api/v1/events": ("/db/api/v1/events", {"topic": "measured", "data": DATA}, 200),
    "POST /rooms/measured/events": ("/rooms/measured/events", {"event_type": "event", "data": DATA}, 201),
}


def kwire(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("kwire")), *arguments]


async def rate_of(url: str, token: str, name: str, seconds: float) -> float:
    """Return the events per second of a turn."""
    path, body, status = PATHS[name]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    encoded, count = json.dumps(body).encode(), 0
    began = time.perf_counter()

    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session:

        async def publish() -> None:
            nonlocal count
            while time.perf_counter() - began < seconds:
                async with session.post(url + path, data=encoded) as answer:
                    if answer.status != status:
                        raise RuntimeError(f"{name} was answered {answer.status}: {await answer.text()}")
                    await answer.read()
                count += 1

        await asyncio.gather(*(publish() for _ in range(CONNECTIONS)))
    return count / (time.perf_counter() - began)


def measure(data_dir: Path, seconds: float, turns: int) -> dict[str, list[float]]:
    command = kwire("key", "create", "--scope", "acme", "--max-events", str(MAX_EVENTS), "--data-dir", str(data_dir))
    created = subprocess.run([*command, "-o", "json"], check=True, capture_output=True, text=True)
    token = json.loads(created.stdout)["token"]
    command = kwire("serve", "--data-dir", str(data_dir), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
    command += ["--set", "kwire.http.authentication=key"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            if not ready.startswith("ready"):
                raise RuntimeError(f"the server did not start: {ready}")
            url = f"http://{ready.partition('http=')[2].strip()}"
            rates: dict[str, list[float]] = {name: [] for name in PATHS}
            for turn in range(turns):
                for name in PATHS if turn % 2 == 0 else reversed(PATHS):
                    rates[name].append(asyncio.run(rate_of(url, token, name, seconds)))
            return rates
        finally:
            process.terminate()
            process.wait(READY_SECONDS_MAX)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what publishing with the limits of a key costs.")
    parser.add_argument("--seconds", type=float, default=SECONDS_DEFAULT, help="how long a turn takes")
    parser.add_argument("--turns", type=int, default=TURNS_DEFAULT)
    options = parser.parse_args()
    if not 0 < options.seconds <= SECONDS_MAX or not 0 < options.turns <= TURNS_MAX:
        parser.error(f"at most {SECONDS_MAX:.0f} seconds, 1 to {TURNS_MAX} turns")
    with tempfile.TemporaryDirectory(prefix="kwire-publish-") as folder:
        data_dir = Path(folder) / "data"
        data_dir.mkdir()
        rates = measure(data_dir, options.seconds, options.turns)
    for name, found in rates.items():
        print(f"{name:32}{statistics.median(found):>10,.0f} events/s   ({min(found):,.0f} to {max(found):,.0f})")
    ours, rooms = (statistics.median(found) for found in rates.values())
    print(f"{'the first beside the second':32}{ours / rooms:>10.2f}")


if __name__ == "__main__":
    main()
