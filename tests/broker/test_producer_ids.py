"""Producer ids: never the same twice."""

import asyncio
import errno
from pathlib import Path

import pytest

from kwire.broker.admin import producer_ids
from kwire.broker.admin.producer_ids import BLOCK_SIZE, ProducerIds
from storage.errors import DiskFailure
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop


@in_loop
async def test_ids_rise_through_many_blocks(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "BLOCK_SIZE", 3)
    taken = [await node.services.producer_ids.take() for _ in range(10)]
    assert taken == list(range(10))


@in_loop
async def test_restart_gives_no_id_again(node: QuietNode) -> None:
    taken: list[int] = []
    for _ in range(4):
        taken += [await node.services.producer_ids.take() for _ in range(3)]
        node.restart()
    assert len(set(taken)) == len(taken)
    assert taken == sorted(taken)
    assert taken[3] == BLOCK_SIZE


@in_loop
async def test_restart_at_the_end_of_a_block_skips_nothing(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "BLOCK_SIZE", 2)
    assert [await node.services.producer_ids.take() for _ in range(2)] == [0, 1]
    node.restart()
    assert await node.services.producer_ids.take() == 2


@in_loop
async def test_everyone_who_asks_at_the_same_time_gets_another(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_ids, "BLOCK_SIZE", 7)
    ids = node.services.producer_ids
    taken = await asyncio.gather(*(ids.take() for _ in range(100)))
    assert sorted(taken) == list(range(100))


@in_loop
async def test_two_that_share_a_store_give_different_ids(node: QuietNode) -> None:
    several = [ProducerIds(node.metastore) for _ in range(4)]
    first = await asyncio.gather(*(ids.take() for ids in several))
    assert sorted(first) == [0, BLOCK_SIZE, 2 * BLOCK_SIZE, 3 * BLOCK_SIZE]
    assert await several[0].take() == first[0] + 1


@in_loop
async def test_block_that_could_not_be_reserved_gives_no_id(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        files.break_down("pwrite", errno.ENOSPC)
        for _ in range(2):
            with pytest.raises(DiskFailure):
                await node.services.producer_ids.take()
        files.repair()
        assert await node.services.producer_ids.take() == 0


@in_loop
async def test_one_who_went_away_takes_no_turn_from_the_others(node: QuietNode) -> None:
    ids = node.services.producer_ids
    takers = [asyncio.ensure_future(ids.take()) for _ in range(5)]
    await asyncio.sleep(0)
    takers[0].cancel()
    taken = await asyncio.gather(*takers[1:])
    assert len(set(taken)) == 4
    assert isinstance((await asyncio.gather(takers[0], return_exceptions=True))[0], asyncio.CancelledError)
