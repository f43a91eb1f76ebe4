"""Relocations between data directories, concurrent with producers, readers, parking and deletion."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kwire.broker.maintenance import relocation as moves_module
from kwire.broker.maintenance.relocation import Relocations
from kwire.broker.partition import Partition
from kwire.broker.partition.sync_rounds import SyncRounds
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.errors import ErrorCode, KafkaError
from storage.batch.record_batch import check_batch
from storage.disk.files import Files
from storage.errors import DiskFailure
from storage.log.log import Log
from storage.relocation import copy_round
from storage.relocation import relocation as moving
from storage.relocation.relocation import FUTURE_SUFFIX, MOVED_NOTE, LogMove
from tests.support.batches import headers, make_batch
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

WAIT_SECONDS = 20.0
# Before the time at which the node's clock stands.
THEN_MS = 1_600_000_000_000


@asynccontextmanager
async def started(tmp_path: Path, *settings: str, files: Files | None = None) -> AsyncIterator[QuietNode]:
    """A node with the directories a and b, whose partitions are synced by real rounds."""
    files = files or Files()
    rounds = SyncRounds(files, [str(tmp_path / "a"), str(tmp_path / "b")], DiskLanes().sync)
    with QuietNode(tmp_path / "a", *settings, files=files, syncs=rounds, more_dirs=[tmp_path / "b"]) as node:
        yield node
        await node.relocations.close()
        await asyncio.wait_for(rounds.idle(), WAIT_SECONDS)
        rounds.close()


def place(partition: Partition) -> str:
    return Path(log_of(partition).directory).parent.name


def other(node: QuietNode, partition: Partition) -> str:
    return str(node.directory.parent / ("b" if place(partition) == "a" else "a"))


def put(partition: Partition, size_bytes: int = 10) -> int:
    batch = make_batch(timestamp_ms=THEN_MS, value=bytes(size_bytes))
    return partition.append(batch, check_batch(batch)).last_offset + 1


async def reached(partition: Partition, offset: int) -> None:
    done = asyncio.get_running_loop().create_future()

    def call(error: KafkaError | None) -> None:
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    partition.on_reached(offset, call)
    await asyncio.wait_for(done, WAIT_SECONDS)


async def begin(node: QuietNode, partition: Partition) -> None:
    topic = node.topics.get(partition.topic_name)
    assert topic is not None
    await node.relocations.begin(topic, partition, other(node, partition))


async def idle(moves: Relocations) -> None:
    await asyncio.wait_for(moves.idle(), WAIT_SECONDS)


def offsets(partition: Partition) -> list[int]:
    found: list[int] = []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        read = partition.read(offset, 1_000_000)
        found.extend(header.base_offset for header in headers(read.view))
        offset = read.next_offset
    return found


@pytest.mark.parametrize("sync", ["group", "os"])
@in_loop
async def test_producers_and_readers_go_on_through_a_move(tmp_path: Path, sync: str) -> None:
    async with started(tmp_path) as node:
        partition = await node.create_partition("t", segment_bytes="1048576", kwire_log_sync=sync)
        end = 0
        for _ in range(60):
            end = put(partition, 50_000)
        await reached(partition, end)
        is_over = False
        watermarks = []

        async def produce() -> int:
            end = 0
            while not is_over:
                end = put(partition, 5_000)
                await reached(partition, end)
                await asyncio.sleep(0.001)  # the way to a client and back
            return end

        def note(changed: Partition) -> None:
            watermarks.append(changed.high_watermark)

        partition.watch(note)
        producers = [asyncio.ensure_future(produce()) for _ in range(4)]
        before = place(partition)
        for _ in range(4):
            await begin(node, partition)
            await idle(node.relocations)
        is_over = True
        ends = await asyncio.wait_for(asyncio.gather(*producers), WAIT_SECONDS)
        assert node.relocations.moved_count == 4
        assert node.relocations.failures == 0
        assert place(partition) == before
        assert watermarks == sorted(watermarks)
        assert partition.high_watermark == max(ends)
        assert offsets(partition) == list(range(max(ends)))


@in_loop
async def test_a_switch_waits_for_the_end_of_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds follow each other without a pause: the switch is made in the callback in which one ends."""
    switches = []
    switch = Relocations._switch

    def noted(self: Relocations, entry: object) -> bool:
        is_made = switch(self, entry)  # type: ignore[arg-type]
        switches.append(is_made)
        return is_made

    monkeypatch.setattr(Relocations, "_switch", noted)
    async with started(tmp_path) as node:
        partition = await node.create_partition("t")
        await reached(partition, put(partition))
        is_over = False

        def keep_dirty(_: Partition) -> None:
            if not is_over:
                asyncio.get_running_loop().call_soon(put, partition)

        partition.watch(keep_dirty)
        put(partition)
        for _ in range(3):
            before = place(partition)
            await begin(node, partition)
            await idle(node.relocations)
            assert place(partition) != before
        is_over = True
        await reached(partition, put(partition))
        assert switches.count(True) == 3
        assert offsets(partition) == list(range(partition.high_watermark))


@in_loop
async def test_the_old_folder_stays_for_a_while(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        partition = await node.create_partition("t", file_delete_delay_ms="1000")
        await reached(partition, put(partition))
        old = Path(log_of(partition).directory)
        await begin(node, partition)
        await idle(node.relocations)
        assert (old / MOVED_NOTE).exists()
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while old.exists():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        assert offsets(partition) == [0]


@in_loop
async def test_what_a_stop_interrupts_is_begun_anew(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        partition = await node.create_partition("t")
        put(partition, 900_000)
        await reached(partition, put(partition, 900_000))
        node.relocations.bytes_per_second_max = 1
        there = other(node, partition)
        await begin(node, partition)
        assert node.relocations.moving_count == 1
        await node.relocations.close()
        assert [name for name in os.listdir(there) if name.endswith(FUTURE_SUFFIX)]
        del partition
        node.restart()
        assert node.store.unfinished_moves == {"t-0": there}
        node.relocations.resume_soon()
        await asyncio.sleep(0)
        topic = node.topics.get("t")
        assert topic is not None
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while not node.relocations.moved_count:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        assert log_of(topic.partitions[0]).directory == os.path.join(there, "t-0")
        assert offsets(topic.partitions[0]) == [0, 1]


@in_loop
async def test_only_a_few_move_at_once_and_all_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running_max = 0
    copy = Relocations._copy

    async def counted(self: Relocations, entry: object) -> bool:
        nonlocal running_max
        running_max = max(running_max, self._running)
        return await copy(self, entry)  # type: ignore[arg-type]

    monkeypatch.setattr(Relocations, "_copy", counted)
    async with started(tmp_path) as node:
        topic = await node.create("t", 9)
        before = {}
        for partition in topic.partitions:
            await reached(partition, put(partition, 1000))
            before[partition.index] = place(partition)
            await begin(node, partition)
        await idle(node.relocations)
        assert all(place(partition) != before[partition.index] for partition in topic.partitions)
        assert 1 <= running_max <= moves_module.MOVES_AT_ONCE_MAX


@in_loop
async def test_more_moves_than_there_may_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves_module, "MOVES_MAX", 1)
    async with started(tmp_path) as node:
        topic = await node.create("t", 2)
        for partition in topic.partitions:
            put(partition, 900_000)
            await reached(partition, put(partition, 900_000))
        node.relocations.bytes_per_second_max = 1
        await begin(node, topic.partitions[0])
        with pytest.raises(KafkaError) as caught:
            await begin(node, topic.partitions[1])
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_a_topic_that_is_deleted_takes_its_move_along(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        partition = await node.create_partition("t")
        put(partition, 900_000)
        await reached(partition, put(partition, 900_000))
        node.relocations.bytes_per_second_max = 100_000
        await begin(node, partition)
        topic = node.topics.get("t")
        assert topic is not None
        await node.topics.delete(topic)
        await idle(node.relocations)
        assert node.relocations.moved_count == 0
        for name in ("a", "b"):
            assert not [one for one in os.listdir(tmp_path / name) if one.startswith("t-0")]
        again = await node.create_partition("t")
        await reached(again, put(again))
        assert offsets(again) == [0]


class Stopped:
    """Stands before a function that threads call: each call waits until it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self._come = threading.Event()
        self._free = threading.Event()
        inner = getattr(owner, name)

        def call(*args: object, **kwargs: object) -> object:
            self._come.set()
            assert self._free.wait(WAIT_SECONDS)
            return inner(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    async def come(self) -> None:
        assert await asyncio.to_thread(self._come.wait, WAIT_SECONDS)

    def let_go(self) -> None:
        self._free.set()


def leftovers(tmp_path: Path) -> list[str]:
    return [name for where in ("a", "b") for name in os.listdir(tmp_path / where) if name.endswith(FUTURE_SUFFIX)]


@in_loop
async def test_a_client_that_goes_away_does_not_stop_its_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(tmp_path) as node:
        partition = await node.create_partition("t")
        await reached(partition, put(partition))
        before = place(partition)
        stopped = Stopped(monkeypatch, moving.LogMove, "prepare")
        asked = asyncio.create_task(begin(node, partition))
        await stopped.come()
        asked.cancel()
        await asyncio.wait([asked], timeout=WAIT_SECONDS)
        assert asked.cancelled()
        stopped.let_go()
        await begin(node, partition)  # behind the first one, and with the same wish
        await idle(node.relocations)
        assert place(partition) != before
        assert node.relocations.moved_count == 1


@in_loop
async def test_a_topic_that_is_deleted_while_its_move_begins_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path) as node:
        partition = await node.create_partition("t")
        await reached(partition, put(partition))
        stopped = Stopped(monkeypatch, moving.LogMove, "prepare")
        asked = asyncio.create_task(begin(node, partition))
        await stopped.come()
        topic = node.topics.get("t")
        assert topic is not None
        await node.topics.delete(topic)
        stopped.let_go()
        with pytest.raises(KafkaError) as caught:
            await asyncio.wait_for(asked, WAIT_SECONDS)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert node.relocations.moving_count == 0
        assert leftovers(tmp_path) == []


@in_loop
async def test_a_topic_made_anew_does_not_take_the_move_of_the_old_one_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path) as node:
        old = await node.create_partition("t")
        put(old, 900_000)
        await reached(old, put(old, 900_000))
        target = other(node, old)
        stopped = Stopped(monkeypatch, moving.CopyRound, "_remove_stale")
        await begin(node, old)
        await stopped.come()
        topic = node.topics.get("t")
        assert topic is not None
        await node.topics.delete(topic)
        new = await node.create_partition("t")
        await reached(new, put(new))
        topic = node.topics.get("t")
        assert topic is not None
        if str(Path(log_of(new).directory).parent) == target:
            target = other(node, new)
        asked = asyncio.create_task(node.relocations.begin(topic, new, target))
        await asyncio.sleep(0)
        stopped.let_go()
        await asyncio.wait_for(asked, WAIT_SECONDS)
        await idle(node.relocations)
        assert str(Path(log_of(new).directory).parent) == target
        assert leftovers(tmp_path) == []


@in_loop
async def test_a_switch_in_the_turn_in_which_its_time_is_up_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves_module, "SWITCH_WAIT_SECONDS", 0.01)
    make = Relocations._switch

    def make_unseen(self: Relocations, entry: moves_module._Relocation) -> bool:
        make(self, entry)
        return False

    monkeypatch.setattr(Relocations, "_switch", make_unseen)
    async with started(tmp_path) as node:
        partition = await node.create_partition("t")
        await reached(partition, put(partition))
        before = place(partition)
        await begin(node, partition)
        await idle(node.relocations)
        assert place(partition) != before
        assert (node.relocations.moved_count, node.relocations.failures) == (1, 0)


@in_loop
async def test_a_partition_that_could_not_be_settled_does_not_move_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path) as node:
        partition = await node.create_partition("t", kwire_log_sync="os")
        put(partition)
        here = log_of(partition).directory
        with monkeypatch.context() as patch:

            def fail(self: moving.MoveCommit) -> None:
                raise DiskFailure("no room", errno.ENOSPC)

            patch.setattr(moving.MoveCommit, "run", fail)
            await begin(node, partition)
            await idle(node.relocations)
            assert node.relocations.failures == 1
            with pytest.raises(KafkaError) as caught:
                await begin(node, partition)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert os.path.exists(here)  # it may still be the one that counts
        await begin(node, partition)
        await idle(node.relocations)
        assert log_of(partition).directory == here
        assert offsets(partition) == [0]


@in_loop
async def test_a_log_that_was_put_away_meanwhile_is_copied_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_round, "PIECE_BYTES", 400_000)
    async with started(tmp_path) as node:
        partition = await node.create_partition("t")
        for _ in range(6):
            await reached(partition, put(partition, 400_000))
        before = place(partition)
        node.relocations.bytes_per_second_max = 40_000_000
        await begin(node, partition)
        for _ in range(3):
            await asyncio.sleep(0.01)
            node.topics.park(partition)
        await idle(node.relocations)
        assert place(partition) != before
        assert offsets(partition) == list(range(6))


@in_loop
async def test_a_disk_that_is_full_leaves_the_partition_where_it_is(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with started(tmp_path, files=files) as node:
        partition = await node.create_partition("t")
        put(partition, 900_000)
        await reached(partition, put(partition, 900_000))
        here, there = log_of(partition).directory, other(node, partition)
        moves = node.relocations
        moves.bytes_per_second_max = 1_000_000_000
        copy_files = moving.CopyRound._copy

        def full(self: moving.CopyRound, *args: object, **kwargs: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(moving.CopyRound, "_copy", full)
            await begin(node, partition)
            await idle(moves)
        assert moving.CopyRound._copy is copy_files
        assert moves.failures == 1
        assert "No space left" in next(iter(moves.last_errors.values()))
        assert log_of(partition).directory == here
        assert not [one for one in os.listdir(there) if one.startswith("t-0")]
        await reached(partition, put(partition))
        # The next try goes through.
        await begin(node, partition)
        await idle(moves)
        assert log_of(partition).directory == os.path.join(there, "t-0")
        assert offsets(partition) == [0, 1, 2]


@in_loop
async def test_files_that_go_while_they_are_copied_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path) as node:
        partition = await node.create_partition("t", segment_bytes="1048576")
        for _ in range(8):
            await reached(partition, put(partition, 900_000))
        copy = moving.CopyRound._copy
        left = 2

        def gone(self: moving.CopyRound, *args: object, **kwargs: object) -> int:
            nonlocal left
            if left:
                left -= 1
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return copy(self, *args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(moving.CopyRound, "_copy", gone)
        await begin(node, partition)
        await idle(node.relocations)
        assert node.relocations.moved_count == 1
        left = moves_module.MISSING_FILES_MAX + 1
        await begin(node, partition)
        await idle(node.relocations)
        assert (node.relocations.moved_count, node.relocations.failures) == (1, 1)
        assert offsets(partition) == list(range(8))


@in_loop
async def test_a_log_that_has_failed_does_not_move(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        partition = await node.create_partition("t")
        await reached(partition, put(partition))
        opened: Log = log_of(partition)
        opened.close(is_clean=False)
        with pytest.raises(KafkaError) as caught:
            await begin(node, partition)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_idle_waits_for_a_move_whose_folder_is_being_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, may_prepare = LogMove.prepare, threading.Event()

    def prepare_slowly(move: LogMove) -> None:
        assert may_prepare.wait(WAIT_SECONDS)
        prepare(move)

    monkeypatch.setattr(LogMove, "prepare", prepare_slowly)
    async with started(tmp_path) as node:
        partition = await node.create_partition("t")
        await reached(partition, put(partition))
        before = place(partition)
        beginning = asyncio.ensure_future(begin(node, partition))
        while not node.relocations.moving_count:
            await asyncio.sleep(0)
        waiting = asyncio.ensure_future(idle(node.relocations))
        await asyncio.sleep(0)
        may_prepare.set()
        await waiting
        await beginning
        assert place(partition) != before
