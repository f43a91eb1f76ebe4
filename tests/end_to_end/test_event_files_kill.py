"""SIGKILL at any moment while files are written: afterwards each event has its file, whole, and none is of nobody."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

from kwire.cli.connection.http_client import HttpClient
from kwire.cli.connection.settings import HttpSettings
from kwire.streams.event_store.files.layout import NotAnEventFile, parse_event
from storage.disk.files import Files
from tests.end_to_end.seeds import announced_seed
from tests.support.clients import unique_name
from tests.support.effort import repetitions
from tests.support.event_files import found_events
from tests.support.event_store import events_of
from tests.support.event_writer import TOPICS
from tests.support.node import running_node
from tests.support.server import KwireProcess

KILLS = repetitions(quick=3, full=5)
# A check takes as long as several lives; the last one is always followed by one.
CHECKED_EVERY = 5
READY_TIMEOUT_S = 30.0
EXPORTED = 4000
EXPORT_KILLS = repetitions(quick=3, full=6)
LIFE_S_MAX = 0.3


def live_and_die(directory: Path, life: int, output: Path, setting: str, seconds: float) -> None:
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.event_writer", str(directory), str(life), setting],
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + READY_TIMEOUT_S
    try:
        while b"ready\n" not in output.read_bytes():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline, f"not ready: {output.read_text()}"
            time.sleep(0.01)
        time.sleep(seconds)  # not a wait for anything: the moment of the kill
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(READY_TIMEOUT_S)


def check_whole(out: Path) -> int:
    """Before the next start: what has its name is whole; how many there are."""
    count = 0
    for path in (out / "data").glob("*/*/[!.]*/*.json"):
        try:
            event = parse_event(path.parts[-4], path.read_bytes())
        except NotAnEventFile as error:
            raise AssertionError(f"{path}: {error}") from error
        assert path.stem == f"{path.parts[-4]}-{event.sequence}"
        count += 1
    return count


async def check_caught_up(directory: Path, out: Path, setting: str) -> int:
    async with running_node(directory, setting) as node:
        assert node.event_files is not None
        await asyncio.wait_for(node.event_files.sink.caught_up(), 60)
        commits: dict[str, set[int]] = defaultdict(set)
        sizes: dict[str, int] = {}
        count = 0
        for name in TOPICS:
            topic = node._shared.services.topics.get(name)
            assert topic is not None
            found = found_events(Files(), str(out), name)
            count += len(found)
            assert [(one.sequence, one.payload) for one in found] == [
                (event.offset + 1, event.data) for event in events_of(topic)
            ]
            assert json.loads((out / "config" / f"{name}.json").read_text())["sequence"] == len(found)
            for one in found:
                said = json.loads(one.payload)
                commits[said["commit"]].add(said["at"])
                sizes[said["commit"]] = said["of"]
        assert all(commits[name] == set(range(sizes[name])) for name in commits), "a commit is there in part"
    assert not list((out / "data").rglob(".*.new"))
    return count


@pytest.mark.timeout(500 + 20 * KILLS)
@pytest.mark.proves("S2-7", "C-23")
def test_each_event_has_its_file_after_kill_dash_nine(tmp_path: Path) -> None:
    chance, directory, out = random.Random(announced_seed()), tmp_path / "data", tmp_path / "out"
    setting = f"kwire.events.files.dir={out}"
    behind = 0
    for life in range(KILLS):
        seconds = chance.uniform(0.0, LIFE_S_MAX)
        live_and_die(directory, life, tmp_path / f"life-{life}.txt", setting, seconds)
        if (life + 1) % CHECKED_EVERY == 0 or life + 1 == KILLS:
            whole = check_whole(out)
            count = asyncio.run(check_caught_up(directory, out, setting))
            assert whole <= count
            behind += count - whole
    print(f"{KILLS} kills, {count} events have their files, {behind} of them written after a kill")


@pytest.mark.timeout(240 + 10 * EXPORT_KILLS)
@pytest.mark.proves("S2-7")
def test_an_export_that_is_killed_goes_on(kwire: KwireProcess, tmp_path: Path) -> None:
    client, name, out = HttpClient(HttpSettings(kwire.http_url)), unique_name("events"), tmp_path / "out"
    chance = random.Random(announced_seed())
    client.request("POST", "/topics", {"name": name, "schemas": [{"eventType": "made"}]})
    for first in range(0, EXPORTED, 1000):
        events = [{"topic": name, "type": "made", "payload": n} for n in range(first, first + 1000)]
        client.request("POST", "/events", events)
    client.close()
    command = [sys.executable, "-m", "kwire", "event", "export", "--http", kwire.http_url, "--to", str(out), name]
    for _ in range(EXPORT_KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.1, 1.0))
        process.kill()
        process.wait(READY_TIMEOUT_S)
        check_whole(out)
    assert subprocess.run([*command, "--verify"], stdout=subprocess.DEVNULL, timeout=120).returncode == 0
    assert [int(one.payload) for one in found_events(Files(), str(out), name)] == [*range(EXPORTED)]
    assert not list((out / "data").rglob(".*"))
