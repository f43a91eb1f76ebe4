"""The memory of a hundred thousand rooms. A room without clients is only an entry in the catalogue.

Nothing here looks at a watch: it counts objects, files, tasks and bytes.
"""

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest

from kwire.broker.topics.topics import NewTopic
from kwire.streams.rooms.settings import default_retention, new_room_configs
from tests.support.node import in_loop
from tests.support.rooms import RoomsNode

FEW, MANY = 20, 3000
# Key and packed value with the room's settings and its time, and an entry in the store's table and in two indexes.
BYTES_PER_ROOM_MAX = 800


def objects_and_bytes(node: RoomsNode) -> tuple[int, int]:
    tracemalloc.start()
    try:
        node.restart()
        gc.collect()
        return len(gc.get_objects()), tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


async def make(node: RoomsNode, first: int, count: int) -> None:
    configs = new_room_configs(default_retention(node.config.rooms), node.config.rooms)
    names = [f"notifications-user-{number:06}" for number in range(first, first + count)]
    await node.topics.create([NewTopic(name, 1, configs) for name in names])


@pytest.mark.proves("S0-2", "S0-41")
@in_loop
async def test_idle_room_costs_some_hundred_bytes_and_nothing_else(tmp_path: Path) -> None:
    with RoomsNode(tmp_path) as node:
        await make(node, 0, FEW)
        await asyncio.sleep(0)
        before = objects_and_bytes(node)
        tasks = len(asyncio.all_tasks())
        await make(node, FEW, MANY)
        await asyncio.sleep(0)
        after = objects_and_bytes(node)
        assert node.rooms.count == FEW + MANY
        assert node.topics.live_count == len(node.topics.open_partitions) == 0
        assert len(asyncio.all_tasks()) == tasks
        # Strings and bytes are no business of the garbage collector: only a handful of containers may be new.
        assert after[0] - before[0] < MANY / 10
        assert (after[1] - before[1]) / MANY < BYTES_PER_ROOM_MAX
        assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.name.startswith("notifications")]


@in_loop
async def test_listing_and_finding_rooms_opens_no_log(tmp_path: Path) -> None:
    with RoomsNode(tmp_path) as node:
        await make(node, 0, MANY)
        node.restart()
        assert len(node.rooms.list(limit=1000).names) == 1000
        assert node.rooms.get("notifications-user-000007").name == "notifications-user-000007"
        assert node.rooms.summary("notifications-user-000008") is not None
        gc.collect()
        assert node.topics.live_count == len(node.topics.open_partitions) == 0
