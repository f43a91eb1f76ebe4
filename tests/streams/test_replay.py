"""What is read from a log whose records are state: all committed ones, or an error."""

from pathlib import Path

import pytest

from kwire.errors import KafkaError
from kwire.streams.events.replay import KeyValue, replay_records
from kwire.streams.log import StreamLog
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from tests.support.memory_log import MemoryLog
from tests.support.node import in_loop
from tests.support.remote_worlds import WORLDS, make_world
from tests.support.stream_worlds import MAX_BATCH_BYTES, NOW_MS, Appends, StreamWorld, in_world


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> StreamWorld:
    return make_world(request.param, request, tmp_path)


async def replayed(log: StreamLog) -> list[KeyValue]:
    return [one async for one in replay_records(log)]


@in_world
async def test_records_of_aborted_and_open_transactions_are_not_state(world: StreamWorld) -> None:
    log, appends = await world.create(), Appends()
    assert await replayed(log) == []
    bodies = [encode_record_body(b"k", b"old", 0, b""), encode_record_body(b"k", None, 0, b"")]
    log.append(*build_batch_from_bodies(bodies, NOW_MS), appends.append)
    await world.send(log, 7, b"aborted")
    await world.end(log, 7, is_commit=False)
    await world.send(log, 8, b"committed")
    await world.end(log, 8, is_commit=True)
    await world.send(log, 7, b"open")
    appends.send(log, b"after the open one")
    await world.settle()
    assert await replayed(log) == [(b"k", b"old"), (b"k", None), (None, b"committed")]


@in_loop
async def test_state_with_a_damaged_record_is_an_error() -> None:
    log, appends = MemoryLog("state", 0, "one", MAX_BATCH_BYTES), Appends()
    for value in (b"a", b"b", b"c"):
        appends.send(log, value)
    damaged = log._batches[1]
    log._batches[1] = damaged._replace(data=damaged.data[:-1] + b"x")
    with pytest.raises(KafkaError, match=r"^state-0: .*CRC"):
        await replayed(log)
