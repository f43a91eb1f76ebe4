"""A leader asks for an entry that no replica can return."""

from kwire.cluster.core.entries import Kind, Run
from kwire.cluster.core.leader.decision import Decision
from kwire.cluster.core.leader.replicator import Replicator
from kwire.cluster.core.messages import Entries, Incarnation, Member, Read, Sealed, SegmentId
from kwire.cluster.core.policies import Limits, Policy
from kwire.cluster.core.quorum import Quorum

SEGMENT = SegmentId("s", 1)
LIFE = Incarnation(1, 1)
HELD = Run(1, 1, Kind.EVENT, 1, 1)


def test_an_entry_that_is_not_in_the_answer_is_asked_for_again_after_a_while() -> None:
    """The store has lost it, or it was trimmed. Asking again at once would never end."""
    limits = Limits(retry_ms=100, lacking_ms=300)
    decision = Decision(base=0, end=2, runs=(HELD,), bridge_birth_epoch=2)
    members = (Member("A", 1), Member("B", 1))
    leader = Replicator("w", SEGMENT, 2, members, Policy(Quorum(2, 1)), limits, decision)
    leader.add("A", Sealed(SEGMENT, 2, LIFE, 0, (HELD,), ()), 0)
    leader.add("B", Sealed(SEGMENT, 2, LIFE, 0, (), ()), 0)

    def reads() -> int:
        return sum(isinstance(message.body, Read) for message in leader.take_messages())

    leader.flush(0)
    assert reads() == 1
    for _ in range(3):
        leader.step("A", Entries(SEGMENT, 2, LIFE, 1, ()), 10)
    assert reads() == 0
    asked = 0
    for now in range(100, 600, 50):
        leader.tick(now)
        asked += reads()
        leader.step("A", Entries(SEGMENT, 2, LIFE, 1, ()), now)
    assert 3 <= asked <= 6
    assert leader.lacks_entry(600)
