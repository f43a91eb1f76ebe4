"""The master on its metadata store: terms, conflicts, commits with an unknown outcome, restarts on the real store."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kwire.cluster.core.control import (
    CloseSegment,
    CreateStream,
    Describe,
    Described,
    Granted,
    Heartbeat,
    NotLeader,
    OpenSegment,
    SegmentChanged,
    SegmentState,
    StoreAccepted,
    StoreHeartbeat,
    Unavailable,
)
from kwire.cluster.core.messages import Copied, Copy, Incarnation, SegmentId
from kwire.cluster.master import Master, MasterSettings, NotMaster
from kwire.cluster.master.master import ATTEMPTS_MAX
from kwire.metastore.interface import Change, Condition, Conflict
from tests.cluster.master.world import SETTINGS, World, finish, names
from tests.metastore.implementations import Embedded
from tests.support.node import in_loop


@pytest.fixture
def world() -> World:
    made = World()
    made.create()
    return made


def test_a_master_that_was_replaced_answers_nothing(world: World) -> None:
    first = world.master
    epoch = world.elect()
    world.new_master("second")
    for request in (Heartbeat("s", "c", epoch), Describe("s"), OpenSegment("s", epoch, 1), world.heartbeat_of("A")):
        with pytest.raises(NotMaster, match="master is not the master"):
            finish(first.handle(request, world.now))
    with pytest.raises(NotMaster):
        finish(first.tick(world.now))
    finish(first.start(world.now))
    assert isinstance(finish(first.handle(Describe("s"), world.now)).answer, Described)
    with pytest.raises(NotMaster):
        world.ask(Describe("s"))


def test_a_master_that_has_not_started_answers_nothing(world: World) -> None:
    with pytest.raises(NotMaster):
        finish(Master(world.metastore, "other").handle(Describe("s"), world.now))


class FailingCommits:
    """Replaces the commits of a world: the next ones fail, before or after they take effect."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self._commit = world.metastore.commit
        self.error: Exception | None = None
        self.takes_effect = False
        self.count = 0
        patch.setattr(world.metastore, "commit", self.commit)

    async def commit(self, changes: Sequence[Change], conditions: Sequence[Condition] = ()) -> int:
        if self.error is None:
            return await self._commit(changes, conditions)
        self.count += 1
        if self.takes_effect:
            await self._commit(changes, conditions)
        raise self.error


@pytest.mark.parametrize("takes_effect", [False, True])
def test_after_a_commit_with_an_unknown_outcome_the_master_takes_over_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    epoch = world.elect()
    failing = FailingCommits(world, monkeypatch)
    failing.error, failing.takes_effect = OSError("the disk failed"), takes_effect
    with pytest.raises(OSError, match="the disk failed"):
        world.ask(OpenSegment("s", epoch, 1))
    failing.error = None
    with pytest.raises(NotMaster):
        world.ask(Describe("s"))
    finish(world.master.start(world.now))
    for store in "ABC":
        world.hear(store)
    # The leader repeats its request, and gets its segment in both cases.
    assert world.open(epoch, 1).opened_by_epoch == epoch
    assert len(world.records()) == 1


def test_conflicts_without_end_are_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = world.elect()
    failing = FailingCommits(world, monkeypatch)
    failing.error = Conflict("a key")
    assert isinstance(world.ask(OpenSegment("s", epoch, 1)), Unavailable)
    assert failing.count == ATTEMPTS_MAX
    world.incarnations["A"] = world.incarnations["A"]._replace(start=2)
    assert world.hear("A") is None
    with pytest.raises(NotMaster, match="could not take over"):
        finish(world.master.start(world.now))


@pytest.mark.parametrize(
    "fields",
    [{"lease_ttl_ms": 0}, {"copies_max": 0}, {"learner_wait_ms": -1}, {"store_timeout_ms": 10, "store_replace_ms": 9}],
)
def test_impossible_settings_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        MasterSettings(**fields)


# --- the real metadata store


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    made = Embedded(tmp_path)
    yield made
    made.close()


@pytest.mark.proves("S4-4")
@in_loop
async def test_the_decisions_survive_a_restart_of_the_real_store(embedded: Embedded) -> None:
    incarnations = {name: Incarnation(100 + number, 1) for number, name in enumerate("ABCD")}
    now = 0
    master = Master(embedded.store, "first", SETTINGS)
    await master.start(now)

    async def hear_all(stores: str) -> None:
        for name in stores:
            heartbeat = StoreHeartbeat(name, incarnations[name], 10**9)
            assert (await master.handle(heartbeat, now)).answer == StoreAccepted(name, heartbeat.incarnation)

    await hear_all("ABC")
    await master.handle(CreateStream("s", 3, 2), now)
    granted = (await master.handle(Heartbeat("s", "c", 0), now)).answer
    assert isinstance(granted, Granted)
    await master.handle(OpenSegment("s", granted.epoch, 1), now)
    closed = (await master.handle(CloseSegment("s", granted.epoch, 1, 8), now)).answer
    assert isinstance(closed, SegmentChanged)

    embedded.restart()
    with pytest.raises(NotMaster):
        await Master(embedded.store, "first", SETTINGS).handle(Describe("s"), now)
    master = Master(embedded.store, "second", SETTINGS)
    await master.start(now)
    await hear_all("ABD")
    assert (await master.handle(Heartbeat("s", "other", 0), now)).answer == NotLeader("s", granted.epoch)
    # C never comes back: its copy is replaced by one on D.
    for _ in range(20):
        now += SETTINGS.store_timeout_ms // 2
        await hear_all("ABD")
        for message in (await master.tick(now)).messages:
            if isinstance(message.body, Copy):
                report = Copied(SegmentId("s", 1), 8, incarnations[message.target], 7)
                await master.handle_copied(message.target, report, now)
    elected = (await master.handle(Heartbeat("s", "other", 0), now)).answer
    assert isinstance(elected, Granted)
    assert elected.epoch == granted.epoch + 1
    (record,) = elected.segments
    assert (record.state, record.end_index, names(record)) == (SegmentState.SEALED, 8, {"A", "B", "D"})
