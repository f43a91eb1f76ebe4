"""A crash at any call to the operating system, by kill or by power cut: what was acknowledged is there, once, in order.

The runs are random and named by a seed; KWIRE_TEST_SEED repeats them. That the check can
fail is shown by planting the mistakes it is there for.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import storage.log.log
import storage.log.syncing
import storage.segment.scan
import storage.segment.txn_index
from storage.disk.files import BytesLike
from tests.end_to_end.seeds import announced_seed
from tests.support.crash_world import CrashWorld, Plan
from tests.support.effort import repetitions
from tests.support.simulated_disk import Crashed, SimulatedFiles

CRASHES = repetitions(quick=400, full=2000)
CRASHES_WITH_FAULTS = CRASHES // 4
# Enough to meet each of the planted mistakes; the first seed that finds it ends the search.
PLANTED_RUNS_MAX = 1500
# Runs that once found something.
KEPT_SEEDS = (
    18,
    31,
    70,
    84,
    187,
    232,
    260,
    321,
    334,
    430,
    591,
    878,
    737254655,
    887662831,
    1763907240,
    2607227324,
    4044939758,
)
KEPT_SEEDS_WITH_FAULTS = (
    26,
    146,
    326,
    476,
    605,
    806,
    100150,
    102446,
    103067,
    104324,
    300825,
    303263,
    1139252825,
    2301788487,
    1000535,
)
KEPT_SEEDS_WITH_LIES = (2215605058, 2563049131)
KEPT_SEEDS_WITH_TRANSACTIONS = (2424298243,)
LIES = Plan(has_sync_failures=True, has_restarts_on_lies=True)
TRANSACTIONS = Plan(has_transactions=True)
TRACE_SEED = 7
TRACE_PLAN = Plan(steps=60, lives=1)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few kilobytes do what takes megabytes otherwise."""
    monkeypatch.setattr(storage.log.log, "CHECKPOINT_INTERVAL_BYTES", 3_000)
    monkeypatch.setattr(storage.log.syncing, "FILES_ONE_BY_ONE_MAX", 6)
    monkeypatch.setattr(storage.segment.txn_index, "ENTRIES_MAX", 5)


def run_seeds(first: int, crashes: int, plan: Plan) -> None:
    started_at = time.monotonic()
    crash_count = call_count = acknowledged_count = 0
    seed = first
    while crash_count < crashes:
        world = CrashWorld(seed, plan)
        try:
            world.run()
        except BaseException as error:
            error.add_note(f"seed {seed}: repeat with KWIRE_TEST_SEED={seed}, after {world.crash_count} crashes")
            raise
        crash_count += world.crash_count
        call_count += world.call_count
        acknowledged_count += world.acknowledged_count
        seed += 1
    print(
        f"{crash_count} crashes in {seed - first} runs, {call_count} calls, {acknowledged_count} acknowledged batches "
        f"found at the end, none lost; {time.monotonic() - started_at:.1f} s"
    )


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_runs_that_once_failed_hold(seed: int) -> None:
    CrashWorld(seed).run()


@pytest.mark.parametrize("seed", KEPT_SEEDS_WITH_FAULTS)
def test_runs_with_faults_that_once_failed_hold(seed: int) -> None:
    CrashWorld(seed, Plan(has_sync_failures=True, has_restarts_on_lies=True, has_full_disks=True)).run()


@pytest.mark.parametrize("seed", KEPT_SEEDS_WITH_TRANSACTIONS)
def test_runs_with_transactions_that_once_failed_hold(seed: int) -> None:
    CrashWorld(seed, TRANSACTIONS).run()


@pytest.mark.parametrize("seed", KEPT_SEEDS_WITH_LIES)
def test_runs_on_a_cache_that_lied_and_once_failed_hold(seed: int) -> None:
    CrashWorld(seed, LIES).run()


@pytest.mark.timeout(120 + CRASHES // 10)
def test_what_was_acknowledged_survives_a_crash_anywhere() -> None:
    run_seeds(announced_seed(), CRASHES, Plan())


@pytest.mark.timeout(120 + CRASHES // 10)
def test_what_was_acknowledged_survives_failed_syncs_too() -> None:
    plan = Plan(has_sync_failures=True)
    for seed in (3590896512, 1002130):  # they once failed
        CrashWorld(seed, plan).run()
    run_seeds(announced_seed(), CRASHES_WITH_FAULTS, plan)


@pytest.mark.timeout(120 + CRASHES // 10)
def test_what_was_acknowledged_survives_a_restart_on_a_cache_that_lies_after_a_failed_sync() -> None:
    run_seeds(announced_seed(), CRASHES_WITH_FAULTS, LIES)


@pytest.mark.timeout(120 + CRASHES // 10)
def test_what_was_acknowledged_survives_all_of_it_together() -> None:
    plan = Plan(has_sync_failures=True, has_restarts_on_lies=True, has_full_disks=True)
    run_seeds(announced_seed(), CRASHES_WITH_FAULTS, plan)


@pytest.mark.timeout(120 + CRASHES // 10)
def test_what_was_acknowledged_survives_full_disks_and_short_writes_too() -> None:
    run_seeds(announced_seed(), CRASHES_WITH_FAULTS, Plan(has_full_disks=True))


@pytest.mark.timeout(120 + CRASHES // 10)
def test_transactions_are_known_after_a_crash_anywhere() -> None:
    run_seeds(announced_seed(), CRASHES // 2, TRANSACTIONS)


@pytest.mark.timeout(120 + CRASHES // 10)
def test_transactions_are_known_after_crashes_with_all_faults_together() -> None:
    plan = replace(TRANSACTIONS, has_sync_failures=True, has_restarts_on_lies=True, has_full_disks=True)
    run_seeds(announced_seed(), CRASHES_WITH_FAULTS, plan)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("has_transactions", [False, True], ids=["plain", "with transactions"])
@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_every_crash_point_of_one_history_holds(is_power_cut: bool, has_transactions: bool) -> None:
    plan = replace(TRACE_PLAN, has_transactions=has_transactions)
    whole = CrashWorld(TRACE_SEED, plan)
    whole.live()
    for number in range(1, whole.disk.call_count + 1):
        world = CrashWorld(TRACE_SEED, plan)
        world.disk.crash_at = number
        with pytest.raises(Crashed):
            world.live()
        world.chance = Random(number)
        try:
            world.crash(is_power_cut=is_power_cut)
            world.finish()
        except Exception as error:
            error.add_note(f"crashed in call {number}")
            raise
    print(f"{whole.disk.call_count} crash points of one history, none lost anything")


def test_a_changed_bit_costs_its_own_batch_and_nothing_else() -> None:
    first = announced_seed()
    spoiled_count = 0
    for seed in range(first, first + CRASHES // 10):
        world = CrashWorld(seed, Plan(lives=1))
        world.live()
        try:
            spoiled_count += world.spoil()
        except Exception as error:
            error.add_note(f"repeat with KWIRE_TEST_SEED={seed}")
            raise
    print(f"{spoiled_count} bits changed")


def test_a_new_data_directory_survives_with_what_was_acknowledged_in_it() -> None:
    plan = Plan(lives=1, is_data_dir_made=False)
    for seed in (2869424305, 4086615893):  # they once failed
        CrashWorld(seed, plan).run()
    run_seeds(announced_seed(), CRASHES // 20, plan)


# --- the check can fail


class NamesAreNotSynced(SimulatedFiles):
    """The folder is never synced."""

    def fsync_dir(self, path: str, fd: int | None = None) -> None:
        pass


class BytesAreNotSynced(SimulatedFiles):
    """The bytes of segments are never synced."""

    def fdatasync(self, fd: int) -> None:
        pass


class SwapHasNoManifest(SimulatedFiles):
    """The list of what a swap is about to do is not written."""

    def replace_file(self, path: str, data: BytesLike, *, sync: bool, sync_content: bool = False) -> None:
        if not path.endswith("/replacement"):
            super().replace_file(path, data, sync=sync, sync_content=sync_content)

    def unlink(self, path: str) -> None:
        if not path.endswith("/replacement"):
            super().unlink(path)


class CheckpointsAreNotSynced(SimulatedFiles):
    """A file goes before the statement that it may go is safe."""

    def replace_file(self, path: str, data: BytesLike, *, sync: bool, sync_content: bool = False) -> None:
        is_other = not path.endswith("/checkpoint")
        super().replace_file(path, data, sync=sync and is_other, sync_content=sync_content and is_other)


class RenamesComeBeforeSyncs(SimulatedFiles):
    """A small file is renamed into its place before its bytes are safe."""

    def replace_file(self, path: str, data: BytesLike, *, sync: bool, sync_content: bool = False) -> None:
        super().replace_file(path, data, sync=False)
        if sync:
            self.fsync_dir(os.path.dirname(path))


class CacheIsBelieved(SimulatedFiles):
    """What the cache shows after a failed sync is not read from the disk again."""

    def drop_cached_pages(self, fd: int, start: int, end: int) -> None:
        pass


def do_not_note_failed_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.log.durability.mark_sync_failed", lambda *args: None)
    monkeypatch.setattr("storage.log.syncing.mark_sync_failed", lambda *args: None)
    monkeypatch.setattr(CrashWorld, "is_lie_known", lambda self: True)


def believe_the_second_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(self: Any, what: str, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except OSError:
            call(*args)

    monkeypatch.setattr(storage.log.syncing.SyncGate, "sync", sync)


def acknowledge_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync_all(files: Any, data_dirs: Any, syncs: Any) -> list[None]:
        for sync in syncs:
            sync.close()
        return [None] * len(syncs)

    monkeypatch.setattr("tests.support.crash_world.sync_all", sync_all)


class AnyChecksum(int):
    """Fits whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


def trust_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.segment.scan, "crc32c", lambda *args: AnyChecksum())


def forget_the_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.log.producers.ProducerStates.record", lambda *args: None)


def forget_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.log.producers.ProducerStates.restore_transactions", lambda *args: None)


def leave_no_file_of_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.segment.segment.LogSegment._write_aborted", lambda *args: None)
    monkeypatch.setattr("storage.recovery.replay.find_aborted", lambda segments: [])
    monkeypatch.setattr("storage.log.reading.find_aborted", lambda segments: [])


def leave_aborted_transactions_out_of_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.log.log.Log._aborted_without_file", lambda *args: [])


PLANTED: dict[str, tuple[Plan, Callable[[pytest.MonkeyPatch], None] | None]] = {
    "names are not synced": (Plan(make_files=NamesAreNotSynced), None),
    "bytes are not synced": (Plan(make_files=BytesAreNotSynced), None),
    "a swap has no manifest": (Plan(make_files=SwapHasNoManifest), None),
    "checkpoints are not synced": (Plan(make_files=CheckpointsAreNotSynced), None),
    "renames come before syncs": (Plan(make_files=RenamesComeBeforeSyncs), None),
    "a second sync is believed": (Plan(has_sync_failures=True), believe_the_second_sync),
    "the cache is believed after a failed sync": (replace(LIES, make_files=CacheIsBelieved), None),
    "failed syncs are not noted": (LIES, do_not_note_failed_syncs),
    "acknowledged before the sync": (Plan(), acknowledge_before_the_sync),
    "every batch is trusted": (Plan(), trust_every_batch),
    "producers are forgotten": (Plan(), forget_the_producers),
    "a cut opens no transactions": (TRANSACTIONS, forget_open_transactions),
    "aborted transactions have no file": (TRANSACTIONS, leave_no_file_of_aborted_transactions),
    "aborted transactions are not in checkpoints": (TRANSACTIONS, leave_aborted_transactions_out_of_checkpoints),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, plant = PLANTED[mistake]
    if plant is not None:
        plant(monkeypatch)
    for seed in range(PLANTED_RUNS_MAX):
        try:
            CrashWorld(seed, replace(plan, lives=2)).run()
        except Exception as error:
            print(f"found by seed {seed}: {type(error).__name__}: {str(error).splitlines()[0]}")
            return
    raise AssertionError(f"{PLANTED_RUNS_MAX} runs did not notice that {mistake}")
