"""The decision of a recovery, compared with a naive twin that looks at one slot after the other."""

from random import Random

import pytest

from kwire.cluster.core.entries import INDEX_MAX, Kind, Range, Run, joined
from kwire.cluster.core.leader.decision import Decision, Undecided, decide
from kwire.cluster.core.messages import Incarnation, Sealed, SegmentId
from kwire.cluster.core.policies import Gaps
from kwire.cluster.core.quorum import Quorum
from tests.support.effort import repetitions

EPOCH = 9
LAST = 7
CASES = repetitions(quick=4000, full=40_000)
Slot = tuple[Kind, int, int]


def answer_of(slots: dict[int, Slot], acked: int, unknown: list[Range]) -> Sealed:
    runs = joined(Run(index, index, *slots[index]) for index in sorted(slots))
    return Sealed(SegmentId("s", 1), EPOCH, Incarnation(1, 1), acked, tuple(runs), tuple(unknown))


def random_answers(chance: Random, quorum: Quorum) -> list[tuple[dict[int, Slot], int, list[Range]]]:
    """Answers with few restrictions: also combinations that no correct leader leaves."""
    answers: list[tuple[dict[int, Slot], int, list[Range]]] = []
    for _ in range(chance.randint(0, quorum.replicas)):
        slots: dict[int, Slot] = {}
        for index in range(1, chance.randint(0, LAST) + 1):
            if chance.random() < 0.8:
                stamp = chance.randint(1, 4)
                kind = chance.choices(list(Kind), [8, 2, 1])[0]
                # Content is identified by the kind and the birth epoch, and one leader writes one content.
                slots[index] = (kind, 1 if kind is Kind.EVENT else stamp, stamp)
        unknown = []
        if chance.random() < 0.2:
            first = chance.randint(1, LAST)
            unknown = [Range(first, chance.choice([first, first + 2, INDEX_MAX]))]
        answers.append((slots, chance.choice([0, 0, chance.randint(0, LAST)]), unknown))
    return answers


def naive(
    answers: list[tuple[dict[int, Slot], int, list[Range]]], quorum: Quorum, gaps: Gaps
) -> tuple[str, int, list[Slot]]:
    """The rules of docs/stream-engine.md for one slot at a time. Slots far after all entries are like LAST + 1."""
    base = max((acked for _, acked, _ in answers), default=0)
    bridges = [(i, slot[2]) for slots, _, _ in answers for i, slot in slots.items() if slot[0] is Kind.BRIDGE]

    def candidates(index: int) -> list[Slot]:
        found = [slots[index] for slots, _, _ in answers if index in slots]
        return [one for one in found if not any(i < index and one[2] < stamp for i, stamp in bridges)]

    content: list[Slot] = []
    for index in range(1, LAST + 3):
        definite = sum(not any(one.first <= index <= one.last for one in unknown) for _, _, unknown in answers)
        if definite < quorum.reads:
            return "undecided", index, []
        found = candidates(index)
        if found:
            winner = max(found, key=lambda one: one[2])
            if winner[0] is Kind.BRIDGE:
                return "decided", index, content
            content.append(winner)
        elif index <= base:
            return "lost" if len(answers) == quorum.replicas else "undecided", index, []
        elif gaps is Gaps.FILLED and any(candidates(later) for later in range(index + 1, LAST + 2)):
            content.append((Kind.HOLE, EPOCH, EPOCH))
        else:
            return "decided", index, content
    raise AssertionError


def has_conflict(answers: list[tuple[dict[int, Slot], int, list[Range]]]) -> bool:
    """Whether two answers have different content with the same stamp, which no leader writes."""
    seen: dict[tuple[int, int], Slot] = {}
    return any(
        seen.setdefault((index, slot[2]), slot) != slot for slots, _, _ in answers for index, slot in slots.items()
    )


@pytest.mark.proves("S4-29", "S4-37")
@pytest.mark.parametrize("gaps", Gaps)
def test_decisions_equal_those_of_the_naive_twin(gaps: Gaps) -> None:
    outcomes = {"decided": 0, "undecided": 0, "lost": 0}
    for seed in range(CASES):
        chance = Random(seed)
        quorum = chance.choice([Quorum(1, 1), Quorum(3, 2), Quorum(5, 2), Quorum(4, 3)])
        answers = random_answers(chance, quorum)
        if has_conflict(answers):
            continue
        result = decide([answer_of(*one) for one in answers], quorum, gaps, EPOCH)
        outcome, index, content = naive(answers, quorum, gaps)
        outcomes[outcome] += 1
        if outcome == "decided":
            assert isinstance(result, Decision), f"seed {seed}"
            expanded = [run[2:] for run in result.runs for _ in range(run.first, run.last + 1)]
            assert (result.end, expanded) == (index, content), f"seed {seed}"
        else:
            assert result == Undecided(index, is_lost=outcome == "lost"), f"seed {seed}"
    assert all(count > CASES // 1000 for count in outcomes.values()), outcomes


def test_without_answers_nothing_is_decided() -> None:
    assert decide([], Quorum(3, 2), Gaps.REFUSED, EPOCH) == Undecided(1)
