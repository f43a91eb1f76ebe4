"""The world of one schedule: a master, stores, leaders, readers and the bag of messages between them."""

from typing import Any

from tests.cluster.model.checks import History, Violation
from tests.cluster.model.entries import MATCHED, STORE, Message
from tests.cluster.model.leader import Job, Leader
from tests.cluster.model.master import SEALED, Master, Segment
from tests.cluster.model.mistakes import Mistake
from tests.cluster.model.settings import Setting
from tests.cluster.model.store import Replica, Store

# What happens to a message: it arrives, arrives and stays for another delivery, is lost, or arrives at a store that
# drops all entries but the first, or cannot sync.
ARRIVES, STAYS, LOST, SHORTENED, NOT_SYNCED = range(5)
FATES = ("arrives", "stays", "lost", "shortened", "not synced")

# One step of a schedule: the name of a method of World and its arguments.
Step = tuple[Any, ...]


class World:
    """Applies steps. A step says everything that chance decided, so that steps alone repeat a schedule.

    `strict` also checks the invariants of the state (I5, I6, I9, I11, I12, I13); without it, only what users and later
    leaders can see is checked, which is how mistakes must be found.
    """

    __slots__ = (
        "ack_sets",
        "bag",
        "closed",
        "completed",
        "history",
        "leaders",
        "losses",
        "master",
        "mistake",
        "recoveries",
        "seal_sets",
        "setting",
        "steps",
        "stores",
        "strict",
    )

    def __init__(self, setting: Setting, mistake: Mistake | None, *, strict: bool) -> None:
        self.setting = setting
        self.mistake = mistake
        self.strict = strict
        self.steps: list[Step] = []
        self.bag: list[Message] = []
        self.history = History(prefix=not setting.sparse)
        self.master = Master(mistake)
        self.stores = [
            Store(number, relaxed=setting.relaxed, mistake=mistake, strict=strict) for number in range(setting.n + 1)
        ]
        self.leaders: list[Leader] = []
        self.ack_sets: dict[int, set[int]] = {}
        self.seal_sets: dict[int, set[int]] = {}
        # How often data was lost, recoveries decided and completed, and segments were closed.
        self.losses = 0
        self.recoveries = 0
        self.completed = 0
        self.closed = 0

    # Steps.

    def deliver(self, message: Message, fate: int) -> None:
        """Hand a message that was taken out of the bag to its receiver."""
        if fate == STAYS:
            self.bag.append(message)
        elif fate == LOST:
            return
        if message[0] <= STORE:
            if fate == NOT_SYNCED:
                self.losses += 1
            answer = self.stores[message[1]].receive(
                message, shortened=fate == SHORTENED, sync_fails=fate == NOT_SYNCED
            )
            if answer is not None:
                self.bag.append(answer)
        else:
            self.leaders[message[1]].receive(message)

    def forget(self) -> None:
        """Lose every message."""
        self.bag.clear()

    def elect(self) -> None:
        epoch = self.master.elect()
        if self.strict and self.leaders and epoch <= self.leaders[-1].epoch:
            raise Violation("I4", f"epoch {epoch} was given twice")
        self.leaders.append(Leader(self, len(self.leaders), epoch))

    def act(self, leader: int, choice: int) -> str:
        return self.leaders[leader].act(choice) if leader < len(self.leaders) else "does not exist"

    def resend(self, leader: int) -> None:
        if leader < len(self.leaders) and self.leaders[leader].alive:
            self.leaders[leader].resend()

    def crash_leader(self, leader: int) -> None:
        if leader < len(self.leaders):
            self.leaders[leader].crash()

    def crash_store(self, store: int, lost: int, hint_lost: bool) -> None:
        if self.setting.relaxed:
            self.losses += 1
        self.stores[store].crash(lost, hint_lost=hint_lost)

    def sync_store(self, store: int) -> None:
        self.stores[store].sync()

    def damage(self, store: int, segment: int, slot: int) -> None:
        if segment in self.stores[store].replicas and self.stores[store].damage(segment, slot):
            self.losses += 1

    def wipe(self, store: int) -> None:
        self.losses += 1
        self.stores[store].wipe()

    def replace(self, segment: int, place: int) -> None:
        """Replace one store of a copy set by the store outside it, as the master does when a store has failed."""
        if segment >= len(self.master.segments):
            return
        record = self.master.segments[segment]
        outside = next(store.id for store in self.stores if store.id not in record.copy_set)
        copy_set = (*record.copy_set[:place], outside, *record.copy_set[place + 1 :])
        if record.state == SEALED and self.mistake is not Mistake.REPLACED_WITHOUT_COPY:
            self._copy_sealed(record, outside, copy_set)
        elif record.state == SEALED or self.mistake is Mistake.COPY_SET_CHANGED:
            record.copy_set = copy_set
            self.add_replicas(record)
        else:
            # The leader switches to another segment instead.
            for leader in self.leaders:
                leader.roll(segment)

    def read(self, store: int, segment: int) -> None:
        """A reader takes everything that one store serves of one segment."""
        replica = self.stores[store].replicas.get(segment)
        if replica is None or self.stores[store].refused:
            return
        for slot, entry in enumerate(self.stores[store].serve(segment)):
            if self.strict and not self.history.is_committed(segment, slot):
                raise Violation("I13", f"store {store} serves {entry} at segment {segment} slot {slot}")
            self.history.deliver(segment, slot, entry)
        if self.strict:
            self._check_matched(store, segment, replica)

    def _copy_sealed(self, record: Segment, store: int, copy_set: tuple[int, ...]) -> None:
        """Copy a sealed segment from a store that has all of it, then change the copy set."""
        for source in record.copy_set:
            replica = self.stores[source].replicas[record.id]
            if min(replica.hint, MATCHED[replica.there]) > record.end and not self.stores[source].refused:
                copy = self.stores[store].replicas.setdefault(record.id, Replica())
                copy.sealed = max(copy.sealed, replica.sealed)
                copy.leader_epoch, copy.there, copy.hint = replica.leader_epoch, replica.there, replica.hint
                copy.entries[:], copy.doubt = replica.entries, 0
                copy.unsynced.clear()
                record.copy_set = copy_set
                return

    # What leaders use.

    def add_replicas(self, segment: Segment) -> None:
        for store in segment.copy_set:
            self.stores[store].replicas.setdefault(segment.id, Replica())

    def acknowledge(self, job: Job, level: int) -> None:
        segment = job.segment
        if segment.id and self.master.segments[segment.id - 1].state != SEALED:
            raise Violation(
                "I17", f"slot {job.acked} of segment {segment.id} acknowledged before {segment.id - 1} is sealed"
            )
        for slot in range(job.acked, level):
            self.history.acknowledge(segment.id, slot, job.log[slot])
            if self.strict and not self.losses:
                self._check_copies(segment, slot, job.log[slot])
        if self.strict:
            self.note_quorum(
                segment, self.ack_sets, self.seal_sets, [s for s in segment.copy_set if job.confirmed[s] >= level]
            )
        job.acked = level

    def note_quorum(
        self, segment: Segment, kind: dict[int, set[int]], other: dict[int, set[int]], stores: list[int]
    ) -> None:
        """I9: the stores of every acknowledgement and of every sealing share one."""
        bits = sum(1 << store for store in stores)
        kind.setdefault(segment.id, set()).add(bits)
        for others in other.get(segment.id, ()):
            if not bits & others:
                raise Violation("I9", f"segment {segment.id}: stores {bits:b} and {others:b} share none")

    # Checks of the state.

    def _check_copies(self, segment: Segment, slot: int, entry: tuple[int, ...]) -> None:
        copies = 0
        for store in segment.copy_set:
            held = self.stores[store].replicas[segment.id].entries[slot]
            copies += held is not None and held[:3] == entry[:3]
        if copies < self.setting.w:
            raise Violation("I11", f"segment {segment.id} slot {slot} acknowledged with {copies} copies")

    def _check_matched(self, store: int, segment: int, replica: Replica) -> None:
        for leader in self.leaders:
            job = leader.jobs.get(segment) if leader.epoch == replica.leader_epoch else None
            if job is None:
                continue
            for slot in range(MATCHED[replica.there]):
                held, logged = replica.entries[slot], job.log[slot]
                if held is None or held[:3] != logged[:3] or (held[3] != logged[3] and slot >= job.base):
                    raise Violation(
                        "I12", f"store {store} segment {segment} slot {slot}: {held}, the leader has {logged}"
                    )

    def check_end(self) -> None:
        """I19: W stores have all of a sealed segment, as long as no store lost data."""
        if self.losses:
            return
        for segment in self.master.segments:
            if segment.state == SEALED:
                whole = sum(self._has_all(segment, store) for store in segment.copy_set)
                if whole < self.setting.w:
                    raise Violation("I19", f"sealed segment {segment.id} has {whole} complete copies")

    def _has_all(self, segment: Segment, store: int) -> bool:
        done = self.history.completed.get(segment.id)
        held = self.stores[store].replicas[segment.id].entries
        return done is not None and all(
            entry is not None and entry[:3] == content for entry, content in zip(held, done, strict=False)
        )
