"""The recovery of one segment: seal its replicas, decide its content, replicate it with a bridge, close it.

A recovery can be interrupted at any point. The next leader repeats it with a higher epoch and reaches the same content
for everything that was acknowledged, because every decided slot is replicated with the stamp of its recovery.
"""

from collections.abc import Sequence
from enum import StrEnum

from kwire.cluster.core.leader.decision import Decision, Undecided, decide
from kwire.cluster.core.leader.replicator import Replicator
from kwire.cluster.core.messages import (
    Member,
    Message,
    Seal,
    Sealed,
    SegmentId,
    Stale,
    StoreAnswer,
)
from kwire.cluster.core.policies import Limits, Policy


class Phase(StrEnum):
    """SEALING waits for answers, REPLICATING for W copies of all entries and the bridge, REPLICATED for the master."""

    SEALING = "sealing"
    REPLICATING = "replicating"
    REPLICATED = "replicated"


class Recovery:
    """The recovery of a segment by the leader of `epoch`. `messages` collects what to send; the owner takes it."""

    def __init__(
        self, leader: str, segment: SegmentId, epoch: int, members: Sequence[Member], policy: Policy, limits: Limits
    ) -> None:
        self.segment, self.epoch = segment, epoch
        self._leader, self._members, self._policy, self._limits = leader, members, policy, limits
        self._answers: dict[str, Sealed] = {}
        self._asked_at: int | None = None
        self._stale_epoch = 0
        # What the decision waits for. An acknowledged entry without a copy is an alarm: it is never made a hole.
        self.undecided = Undecided(1)
        self.replicator: Replicator | None = None
        self._messages: list[Message] = []

    @property
    def phase(self) -> Phase:
        if self.replicator is None:
            return Phase.SEALING
        return Phase.REPLICATED if self.replicator.can_close else Phase.REPLICATING

    @property
    def stale_epoch(self) -> int:
        return self._stale_epoch if self.replicator is None else max(self._stale_epoch, self.replicator.stale_epoch)

    def lacks_entry(self, now: int) -> bool:
        """Whether the recovery can not go on, because no replica holds an entry that was decided."""
        return self.replicator is not None and self.replicator.lacks_entry(now)

    def take_messages(self) -> list[Message]:
        messages, self._messages = self._messages, []
        if self.replicator is not None:
            messages += self.replicator.take_messages()
        return messages

    def tick(self, now: int) -> None:
        if self.replicator is not None:
            self.replicator.tick(now)
        elif self._asked_at is None or now - self._asked_at >= self._limits.retry_ms:
            self._asked_at = now
            for member in self._members:
                # A replica with unknown ranges is asked again, too: it may have been repaired.
                if member.store not in self._answers or self._answers[member.store].unknown:
                    self._seal(member)

    def step(self, store: str, answer: StoreAnswer, now: int) -> None:
        if self.replicator is not None:
            self.replicator.step(store, answer, now)
        elif answer.epoch != self.epoch or store not in [member.store for member in self._members]:
            return
        elif isinstance(answer, Stale):
            self._stale_epoch = max(self._stale_epoch, answer.sealed_epoch)
        elif isinstance(answer, Sealed):
            self._answers[store] = answer
            self._decide(now)

    def _decide(self, now: int) -> None:
        answers = [self._answers[member.store] for member in self._members if member.store in self._answers]
        result = decide(answers, self._policy.quorum, self._policy.gaps, self.epoch)
        if isinstance(result, Decision):
            self._replicate(result, now)
        else:
            self.undecided = result

    def _replicate(self, decision: Decision, now: int) -> None:
        self.replicator = Replicator(
            self._leader, self.segment, self.epoch, self._members, self._policy, self._limits, decision
        )
        for store, answer in self._answers.items():
            self.replicator.add(store, answer, now)
        self.replicator.flush(now)

    def _seal(self, member: Member) -> None:
        body = Seal(self.segment, self.epoch, member.cookie)
        self._messages.append(Message(self._leader, member.store, body))
