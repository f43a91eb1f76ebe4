"""The work `key-publish`: clients with one key publish to `/db/api/v1/events` and to `/rooms/{room}/events`, in turns.

The key has a limit of events that is not reached, so that its events are counted.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import aiohttp

from benchmark.access.keyed_servers import KeyedKwire
from benchmark.access.measures import ROOMS
from benchmark.access.options import KEY_PUBLISH
from benchmark.access.stage import AccessWork, Stage, running
from benchmark.options import WARM_UP_SHARE
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import KWIRE, LOOPBACK
from benchmark.works import Outcome

CONNECTIONS = 16
DATA = {"text": "x" * 100}
ESTIMATE_SECONDS = 25.0


class Path(NamedTuple):
    """A path to publish to. `name` is that of its samples."""

    name: str
    path: str
    body: object
    status: int


PATHS = (
    Path(KWIRE, "/db/api/v1/events", {"topic": "measured", "data": DATA}, 200),
    Path(ROOMS, "/rooms/measured/events", {"event_type": "event", "data": DATA}, 201),
)


def _run(stage: Stage, round_number: int, _names: Sequence[str]) -> Iterator[Sample]:
    product = KeyedKwire({}, KWIRE, 1)
    with running(stage, product) as server:
        (credentials,) = product.credentials
        url = f"http://{LOOPBACK}:{server.http_port}"
        for turn in range(1 + stage.options.turns):
            seconds = stage.options.sizes.request_seconds * (1 if turn else WARM_UP_SHARE)
            for path in PATHS if turn % 2 else PATHS[::-1]:
                publish = partial(_publish, url, credentials.token, path, seconds)
                sample = observe(server, round_number if turn else WARM_UP_ROUND, KEY_PUBLISH, publish)
                server.check_alive()
                yield replace(sample, server=path.name)


def _publish(url: str, token: str, path: Path, seconds: float) -> Outcome:
    return asyncio.run(_publish_for(url, token, path, seconds))


async def _publish_for(url: str, token: str, path: Path, seconds: float) -> Outcome:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    encoded, count = json.dumps(path.body).encode(), 0
    began = time.perf_counter()

    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session:

        async def publish() -> None:
            nonlocal count
            while time.perf_counter() - began < seconds:
                async with session.post(url + path.path, data=encoded) as answer:
                    if answer.status != path.status:
                        raise OSError(f"{path.path} was answered {answer.status}: {await answer.text()}")
                    await answer.read()
                count += 1

        await asyncio.gather(*(publish() for _ in range(CONNECTIONS)))
    return Outcome({"events_per_s": count / (time.perf_counter() - began)}, requests=count)


WORK = AccessWork(KEY_PUBLISH, ESTIMATE_SECONDS, _run, takes_turns=True, servers=(KWIRE,))
