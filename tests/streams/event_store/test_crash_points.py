"""A crash at any system call, by kill or power failure: every commit is either complete or absent.

The runs are random and named by a seed; KWIRE_TEST_SEED repeats them. Planted mistakes show that the check can fail.
"""

import time
from collections.abc import Callable
from random import Random

import pytest

import kwire.streams.event_store.commit_pipeline
import kwire.streams.event_store.journal
import kwire.streams.event_store.recovery
import kwire.streams.event_store.sync_checkpoint
import storage.log.log
from kwire.broker.partition import Partition
from kwire.broker.topics.topics import Topic, Topics
from kwire.errors import KafkaError
from kwire.streams.event_store.commit_pipeline import CommitPipeline
from kwire.streams.event_store.journal import batches_from
from kwire.streams.event_store.pending_commit import CommitGroup
from kwire.streams.event_store.recovery import RecoveryResult
from storage.batch.format import MAGIC
from tests.end_to_end.seeds import announced_seed
from tests.support.effort import repetitions
from tests.support.event_world import EventPlan, EventWorld

CRASHES = repetitions(quick=80, full=400)
CRASHES_WITH_FAULTS = CRASHES // 4
# Enough to meet each of the planted mistakes; the first seed that finds it ends the search.
PLANTED_RUNS_MAX = 400
TRACE_SEED = 7
TRACE_PLAN = EventPlan(steps=25, lives=1)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the bounds from megabytes to kilobytes."""
    monkeypatch.setattr(storage.log.log, "CHECKPOINT_INTERVAL_BYTES", 3_000)
    monkeypatch.setattr(kwire.streams.event_store.sync_checkpoint, "CHECKPOINT_BYTES", 4_000)
    monkeypatch.setattr(
        kwire.streams.event_store.sync_checkpoint.SyncCheckpoint.request_syncs_if_due, "__defaults__", (4_000,)
    )


def run_seeds(first: int, crashes: int, plan: EventPlan) -> None:
    started_at = time.monotonic()
    crash_count = call_count = recovered_count = acknowledged_count = 0
    seed = first
    while crash_count < crashes:
        world = EventWorld(seed, plan)
        try:
            world.run()
        except BaseException as error:
            error.add_note(f"seed {seed}: repeat with KWIRE_TEST_SEED={seed}, after {world.crash_count} crashes")
            raise
        crash_count += world.crash_count
        call_count += world.call_count
        recovered_count += world.recovered_count
        acknowledged_count += sum(one.is_acknowledged for one in world.asked.values())
        seed += 1
    assert recovered_count
    print(
        f"{crash_count} crashes in {seed - first} runs, {call_count} calls, {acknowledged_count} acknowledged commits, "
        f"{recovered_count} events repaired, none lost; {time.monotonic() - started_at:.1f} s"
    )


@pytest.mark.timeout(120 + CRASHES // 5)
@pytest.mark.proves("S2-1", "C-24")
def test_commits_are_whole_after_a_crash_anywhere() -> None:
    EventWorld(5000084, EventPlan()).run()  # it once failed
    run_seeds(announced_seed(), CRASHES, EventPlan())


@pytest.mark.timeout(120 + CRASHES // 5)
def test_commits_are_whole_after_failed_syncs_too() -> None:
    plan = EventPlan(has_sync_failures=True)
    for seed in (1367599495, 58156692, 5000132, 5000239):  # they once failed
        EventWorld(seed, plan).run()
    run_seeds(announced_seed(), CRASHES_WITH_FAULTS, plan)


@pytest.mark.timeout(120 + CRASHES // 5)
def test_commits_are_whole_on_full_disks_too() -> None:
    plan = EventPlan(has_full_disks=True)
    for seed in (3867528742, 1840134262):
        EventWorld(seed, plan).run()  # it once failed
    run_seeds(announced_seed(), CRASHES_WITH_FAULTS, plan)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_every_crash_point_of_one_history_holds(is_power_cut: bool) -> None:
    print(f"{crash_everywhere(is_power_cut)} crash points of one history, none lost anything")


def crash_everywhere(is_power_cut: bool) -> int:
    whole = EventWorld(TRACE_SEED, TRACE_PLAN)
    whole.in_loop(whole.live())
    for number in range(1, whole.disk.call_count + 1):
        world = EventWorld(TRACE_SEED, TRACE_PLAN)
        world.disk.crash_at = number
        world.in_loop(world.live())
        world.chance = Random(number)
        try:
            world.crash(is_power_cut=is_power_cut)
            world.in_loop(world.finish())
        except Exception as error:
            error.add_note(f"crashed in call {number}")
            raise
    return whole.disk.call_count


# --- the check can fail


def applies_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are appended to topics before the journal is on disk."""
    write = CommitPipeline._write

    def hasty(self: CommitPipeline, plan: CommitGroup, journal: Partition) -> None:
        write(self, plan, journal)
        if self._group is plan:
            self._on_journal_synced(None)
            self._group = plan

    def written(self: CommitPipeline, error: KafkaError | None) -> None:
        if self._group is not None and not self._group.commits[0].left:
            self._group = None
            self._schedule_group()
        else:
            real(self, error)

    real = CommitPipeline._on_journal_synced
    monkeypatch.setattr(CommitPipeline, "_write", hasty)
    monkeypatch.setattr(CommitPipeline, "_on_journal_synced", written)


def repairs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> RecoveryResult:
        return RecoveryResult(0, {})

    monkeypatch.setattr(kwire.streams.event_store.commit_pipeline, "recover_topics", nothing)


def marks_without_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint covers events that are not on disk in their topics."""
    monkeypatch.setattr(kwire.streams.event_store.sync_checkpoint, "_is_synced", lambda partition, end: True)
    # Otherwise the whole journal would be read for topics that are too short.
    monkeypatch.setattr(
        kwire.streams.event_store.recovery, "batches_from", lambda journal, at: batches_from(journal, at) if at else ()
    )


def forgets_topic_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that was created again gets the events of the deleted one."""
    get_by_id = Topics.get_by_id
    names: dict[bytes, str] = {}

    def by_name(self: Topics, topic_id: bytes) -> Topic | None:
        topic = get_by_id(self, topic_id)
        if topic is not None:
            names[topic_id] = topic.name
        return topic or self.get(names.get(topic_id, "a"))

    monkeypatch.setattr(Topics, "get_by_id", by_name)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "plant",
    [applies_before_the_sync, repairs_nothing, marks_without_a_sync, forgets_topic_ids],
)
def test_planted_mistakes_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(PLANTED_RUNS_MAX):
        try:
            EventWorld(seed).run()
        except (AssertionError, KafkaError) as error:
            print(f"{plant.__name__}: seed {seed}: {error}")
            return
    raise AssertionError(f"the mistake was not detected in {PLANTED_RUNS_MAX} runs")


def test_batches_that_can_be_recognised_in_a_torn_record_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kwire.streams.event_store.journal, "_HIDDEN_MAGIC", MAGIC)
    with pytest.raises(KafkaError, match="cannot be read"):
        crash_everywhere(is_power_cut=False)
