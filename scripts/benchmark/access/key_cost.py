"""The work `keys`: the start of a server with many API keys, beside one with a single key, and the time of a login."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmark.access.keyed_servers import KeyedKwire
from benchmark.access.measures import ONE_KEY
from benchmark.access.options import KEYS
from benchmark.access.stage import AccessWork, Stage
from benchmark.samples import MEGABYTE, WARM_UP_ROUND, Sample, anonymous_mb
from benchmark.servers import KWIRE, RunningServer
from kwire.access.keys.key_format import Credentials
from kwire.access.keys.keys import Keys
from kwire.clock import SystemClock
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.metastore import EmbeddedMetaStore
from storage.disk.files import Files

LOGINS = 20_000
# A step through the keys that visits most of them: prime, and no divisor of usual numbers of keys.
KEY_STEP = 7919
ESTIMATE_SECONDS = 10.0


def _run(stage: Stage, round_number: int, _names: Sequence[str]) -> Iterator[Sample]:
    with stage.folder("one") as one, stage.folder("many") as many:
        servers = [
            RunningServer(KeyedKwire({}, name, count), folder / "server")
            for name, count, folder in ((ONE_KEY, 1, one), (KWIRE, stage.options.keys, many))
        ]
        for server in servers:
            server.stop()
        product = servers[-1].product
        assert isinstance(product, KeyedKwire)
        login_us = _login_us(many / "server" / "data", product.credentials)
        for turn in range(1 + stage.options.turns):
            figures = [_start(server) for server in (servers if turn % 2 else servers[::-1])]
            few, some = figures if turn % 2 else figures[::-1]
            some["key_bytes"] = (some["memory_mb"] - few["memory_mb"]) * MEGABYTE / stage.options.keys
            some["login_us"] = login_us
            number = round_number if turn else WARM_UP_ROUND
            yield Sample(ONE_KEY, number, KEYS, few)
            yield Sample(KWIRE, number, KEYS, some)


def _start(server: RunningServer) -> dict[str, float]:
    """Start a server again, and stop it when it is ready."""
    server.start()
    try:
        assert server.start_up.ready_seconds is not None
        return {"ready_ms": server.start_up.ready_seconds * 1000, "memory_mb": anonymous_mb(server)}
    finally:
        server.stop()


def _login_us(data_dir: Path, credentials: Sequence[Credentials]) -> float:
    """Return the microseconds of one login, without HTTP."""
    lanes = DiskLanes()
    metastore = EmbeddedMetaStore.open(str(data_dir), Files(), lanes)
    try:
        keys = Keys(metastore, SystemClock())
        began = time.perf_counter()
        for number in range(LOGINS):
            if keys.log_in(credentials[number * KEY_STEP % len(credentials)]) is None:
                raise OSError("a key cannot log in")
        return (time.perf_counter() - began) / LOGINS * 1e6
    finally:
        metastore.close()
        lanes.close()


WORK = AccessWork(KEYS, ESTIMATE_SECONDS, _run, takes_turns=True, servers=(KWIRE,))
