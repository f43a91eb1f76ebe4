"""A crash at any call to the operating system, by kill or by power cut: every commit is wholly there or wholly absent.

The runs are random and named by a seed; KWIRE_TEST_SEED repeats them. That the check can
fail is shown by planting the mistakes it is there for.
"""

import time
from collections.abc import Callable
from random import Random

import pytest

import kwire.broker.store.committing
import kwire.broker.store.journal
import kwire.broker.store.repair
import kwire.broker.store.sync_mark
import storage.log
from kwire.broker.partition import Partition
from kwire.broker.store.commit import Plan
from kwire.broker.store.committing import Committing
from kwire.broker.store.journal import batches_from
from kwire.broker.store.repair import Repaired
from kwire.broker.topics import Topic, Topics
from kwire.errors import KafkaError
from storage.format import MAGIC
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
    """Let a few kilobytes do what takes megabytes otherwise."""
    monkeypatch.setattr(storage.log, "CHECKPOINT_INTERVAL_BYTES", 3_000)
    monkeypatch.setattr(kwire.broker.store.sync_mark, "MARK_BYTES", 4_000)
    monkeypatch.setattr(kwire.broker.store.sync_mark.SyncMark.begin_if_due, "__defaults__", (4_000,))


def run_seeds(first: int, crashes: int, plan: EventPlan) -> None:
    started_at = time.monotonic()
    crash_count = call_count = repaired_count = acknowledged_count = 0
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
        repaired_count += world.repaired_count
        acknowledged_count += sum(one.is_acknowledged for one in world.asked.values())
        seed += 1
    assert repaired_count
    print(
        f"{crash_count} crashes in {seed - first} runs, {call_count} calls, {acknowledged_count} acknowledged commits, "
        f"{repaired_count} events repaired, none lost; {time.monotonic() - started_at:.1f} s"
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
    """Topics get their events before the journal is on disk."""
    write = Committing._write

    def hasty(self: Committing, plan: Plan, journal: Partition) -> None:
        write(self, plan, journal)
        if self._group is plan:
            self._written(None)
            self._group = plan

    def written(self: Committing, error: KafkaError | None) -> None:
        if self._group is not None and not self._group.commits[0].left:
            self._group = None
            self._begin_soon()
        else:
            real(self, error)

    real = Committing._written
    monkeypatch.setattr(Committing, "_write", hasty)
    monkeypatch.setattr(Committing, "_written", written)


def repairs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> Repaired:
        return Repaired(0, {})

    monkeypatch.setattr(kwire.broker.store.committing, "repair", nothing)


def marks_without_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark says that topics are on disk which are not."""
    monkeypatch.setattr(kwire.broker.store.sync_mark, "_is_synced", lambda partition, end: True)
    # Else the whole journal would be read for those that are short.
    monkeypatch.setattr(
        kwire.broker.store.repair, "batches_from", lambda journal, at: batches_from(journal, at) if at else ()
    )


def forgets_topic_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that was made again gets the events of the one before."""
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
    raise AssertionError(f"nobody noticed in {PLANTED_RUNS_MAX} runs")


def test_batches_that_can_be_recognised_in_a_torn_record_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kwire.broker.store.journal, "_HIDDEN_MAGIC", MAGIC)
    with pytest.raises(KafkaError, match="cannot be read"):
        crash_everywhere(is_power_cut=False)
