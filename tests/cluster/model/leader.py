"""A leader: seals and recovers the segments that are not sealed, opens the next one, replicates and acknowledges."""

from typing import TYPE_CHECKING

from tests.cluster.model import master
from tests.cluster.model.entries import (
    BRIDGE,
    CONTENT,
    EVENT,
    EVENTS_MAX,
    READ,
    SEAL,
    SEALED,
    STALE,
    STORE,
    Entry,
    Message,
)
from tests.cluster.model.master import SEALING, UNSEALED_MAX, Segment
from tests.cluster.model.mistakes import Mistake
from tests.cluster.model.recovery import Answer, decide

if TYPE_CHECKING:
    from tests.cluster.model.world import World

# The phases of a leader's work on a segment: recovery that has not begun, recovery that collects answers, replication
# of a log that grows or has its bridge, and a segment that this leader closed.
WAITING, COLLECTING, REPLICATING, CLOSED = range(4)


class Job:
    """A leader's work on one segment."""

    __slots__ = (
        "acked",
        "answered",
        "answers",
        "base",
        "bridged",
        "complete",
        "confirmed",
        "fenced",
        "hints_sent",
        "incarnations",
        "log",
        "own",
        "phase",
        "sealed",
        "segment",
    )

    def __init__(self, segment: Segment, stores: int, *, own: bool) -> None:
        self.segment = segment
        # Whether this leader opened the segment; otherwise it recovers it.
        self.own = own
        self.phase = REPLICATING if own else WAITING
        self.log: list[Entry] = []
        self.bridged = False
        self.complete = False
        self.acked = 0
        self.base = 0
        # The stores that answered SEAL, as bits, and what the stores answered to READ.
        self.fenced = True
        self.sealed = 0
        self.answers: dict[int, Answer] = {}
        # By store: matched index and the incarnation that reported it, and the acked index that it was sent.
        self.confirmed = [0] * stores
        self.incarnations = [-1] * stores
        self.hints_sent = [0] * stores
        # Every matched index that was reported.
        self.answered: list[int] = []


class Leader:
    """One election's winner. It goes on until it crashes, or until a store or the master shows a larger epoch."""

    __slots__ = ("alive", "epoch", "id", "incarnation", "jobs", "next_segment", "world")

    def __init__(self, world: "World", leader_id: int, epoch: int) -> None:
        self.world = world
        self.id = leader_id
        self.epoch = epoch
        self.incarnation = 0
        self.alive = True
        unsealed = [segment for segment in world.master.segments if segment.state != master.SEALED]
        self.jobs = {segment.id: Job(segment, len(world.stores), own=False) for segment in unsealed}
        self.next_segment = len(world.master.segments)
        if unsealed:
            self._begin(self.jobs[unsealed[0].id])

    # Recovery.

    def _begin(self, job: Job) -> None:
        segment, world = job.segment, self.world
        was_sealing = segment.state == SEALING
        if not world.master.mark_sealing(self.epoch, segment):
            self.alive = False
            return
        job.phase = COLLECTING
        mistake = world.mistake
        job.fenced = not (mistake is Mistake.LEASE_TRUSTED or (mistake is Mistake.SEALING_IS_SEALED and was_sealing))
        epoch = self.epoch if job.fenced else 0
        for store in segment.copy_set:
            if job.fenced:
                world.bag.append((SEAL, store, segment.id, epoch, self.id))
            world.bag.append((READ, store, segment.id, epoch, self.id))

    def _decide(self, job: Job) -> None:
        """Decide the content of a segment when enough stores have answered, and send it to the copy set."""
        world = self.world
        needed = world.setting.r - (world.mistake is Mistake.ANSWERS_MISSING)
        if len(job.answers) < needed or (job.fenced and job.sealed.bit_count() < needed):
            return
        log = decide(
            list(job.answers.values()),
            base=job.base,
            needed=needed,
            epoch=self.epoch,
            sparse=world.setting.sparse,
            mistake=world.mistake,
        )
        if log is None:
            return
        world.recoveries += 1
        if world.strict:
            sealed = [store for store in job.segment.copy_set if job.sealed >> store & 1]
            world.note_quorum(job.segment, world.seal_sets, world.ack_sets, sealed)
        log.append((BRIDGE, 0, 0, self.epoch))
        job.log, job.acked, job.bridged, job.phase = log, job.base, True, REPLICATING
        entries = tuple(log)
        for store in job.segment.copy_set:
            world.bag.append((STORE, store, job.segment.id, self.epoch, self.id, 0, entries, job.acked))

    # Messages.

    def receive(self, message: Message) -> None:
        if not self.alive:
            return
        kind = message[0]
        if kind == STALE:
            if message[2] > self.epoch:
                self.alive = False
            return
        job = self.jobs[message[3]]
        store = message[2]
        if kind <= CONTENT:
            if job.phase != COLLECTING:
                return
            hint = message[4]
            if hint > job.base:
                job.base = hint
            if kind == SEALED:
                job.sealed |= 1 << store
            else:
                job.answers[store] = (hint, message[5], message[6])
            self._decide(job)
        else:
            self._count(job, store, message[4], message[5], message[6])

    def _count(self, job: Job, store: int, incarnation: int, matched: int, there: int) -> None:
        """Take note of a store's matched index, and of what it makes acknowledged."""
        mistake = self.world.mistake
        if mistake is Mistake.ACK_WITH_GAP:
            matched = there.bit_length()
        # A store that does not check epochs may have more than this leader sent.
        matched = min(matched, len(job.log))
        job.answered.append(matched)
        if incarnation != job.incarnations[store]:
            job.incarnations[store] = incarnation
            job.confirmed[store] = matched
        elif matched > job.confirmed[store]:
            job.confirmed[store] = matched
        self._advance(job)

    def _advance(self, job: Job) -> None:
        world = self.world
        setting, mistake, segment = world.setting, world.mistake, job.segment
        copies = [job.confirmed[store] for store in segment.copy_set]
        if mistake is Mistake.ANSWERS_COUNTED:
            copies += job.answered
        copies.sort()
        level = copies[-setting.w]
        if job.bridged and not job.complete:
            enough = copies[-1] if mistake is Mistake.CLOSED_TOO_EARLY else level
            if enough >= len(job.log):
                job.complete = True
                world.history.complete(segment.id, job.log)
                world.completed += 1
        if job.phase != REPLICATING or not job.own:
            return
        if mistake is Mistake.ACKED_TOO_EARLY:
            level = copies[1 - setting.w] if setting.w > 1 else len(job.log)
        if level > job.acked:
            before = self.jobs.get(segment.id - 1)
            if before is not None and before.phase != CLOSED and mistake is not Mistake.ACK_BEFORE_SEALED:
                return
            world.acknowledge(job, level)

    # Steps of its own.

    def act(self, choice: int) -> str:
        """Close, recover or open a segment, if that is next; otherwise propose, roll over or resend, by `choice`.

        Return what was done, for traces.
        """
        if not self.alive:
            return "has stopped"
        world = self.world
        unclosed = [job for job in self.jobs.values() if job.phase != CLOSED]
        if unclosed:
            oldest = unclosed[0]
            if oldest.complete:
                self._close(oldest)
                return "closes the oldest segment" if self.alive else "may not close the segment and stops"
            if oldest.phase == WAITING:
                self._begin(oldest)
                return "begins to recover the next segment"
        last = unclosed[-1] if unclosed else None
        if last is None or last.bridged or not last.own:
            allowed = UNSEALED_MAX if world.setting.parallel else 1
            if len(unclosed) < allowed + (world.mistake is Mistake.THIRD_OPEN_SEGMENT):
                self._open(choice)
                return "opens a segment" if self.alive else "may not open a segment and stops"
            self.resend()
            return "resends"
        kind = choice & 7
        if kind < 5 and len(last.log) < EVENTS_MAX:
            payload = ((self.id + 1) * 10 + self.incarnation) * 100 + last.segment.id * 10 + len(last.log)
            entry = (EVENT, payload, self.epoch, self.epoch)
            world.history.propose(last.segment.id, len(last.log), entry)
            self._append(last, entry)
            return "proposes an event"
        if kind == 5:
            self.roll(last.segment.id)
            return "ends the open segment with a bridge"
        self.resend()
        return "resends"

    def roll(self, segment: int) -> None:
        """End an open segment with a bridge after its last event."""
        job = self.jobs.get(segment)
        if self.alive and job is not None and job.own and job.log and not job.bridged:
            job.bridged = True
            self._append(job, (BRIDGE, 0, 0, self.epoch))

    def crash(self) -> None:
        """Lose everything: a leader that restarts needs a new epoch."""
        if self.world.mistake is not Mistake.EPOCH_RESUMED:
            self.alive = False
            return
        self.incarnation += 1
        for job in self.jobs.values():
            if job.own and not job.bridged:
                del job.log[job.acked :]
                job.confirmed = [0] * len(job.confirmed)

    def _append(self, job: Job, entry: Entry) -> None:
        bag, segment, first = self.world.bag, job.segment, len(job.log)
        job.log.append(entry)
        for store in segment.copy_set:
            bag.append((STORE, store, segment.id, self.epoch, self.id, first, (entry,), job.acked))
            job.hints_sent[store] = job.acked

    def _close(self, job: Job) -> None:
        world, segment = self.world, job.segment
        if not world.master.close(self.epoch, segment.id, len(job.log) - 1):
            self.alive = False
            return
        world.closed += 1
        if job.own:
            world.acknowledge(job, len(job.log))
        job.phase = CLOSED
        job.acked = len(job.log)
        after = self.jobs.get(segment.id + 1)
        if after is not None and after.phase == REPLICATING:
            self._advance(after)
        self.resend()

    def _open(self, choice: int) -> None:
        world = self.world
        stores = len(world.stores)
        copy_set = tuple((choice + place) % stores for place in range(world.setting.n))
        segment = world.master.create(self.epoch, self.next_segment, copy_set)
        if segment is None:
            self.alive = False
            return
        self.next_segment += 1
        self.jobs[segment.id] = Job(segment, stores, own=True)
        world.add_replicas(segment)

    def resend(self) -> None:
        """Send every store what it has not confirmed, and the acked index."""
        bag = self.world.bag
        for job in self.jobs.values():
            if job.phase < REPLICATING:
                continue
            segment = job.segment
            for store in segment.copy_set:
                first = job.confirmed[store]
                if first < len(job.log) or job.hints_sent[store] < job.acked:
                    entries = tuple(job.log[first:])
                    bag.append((STORE, store, segment.id, self.epoch, self.id, first, entries, job.acked))
                    job.hints_sent[store] = job.acked
