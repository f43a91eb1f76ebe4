"""The fair queue: keys take turns, whatever is added and removed meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.concurrency.fair_queue import FairQueue

# A step adds a member to one of these keys, removes one of its members, or pops.
KEYS = "abcd"
ADD, DISCARD, POP = "add", "discard", "pop"
STEPS = st.lists(st.tuples(st.sampled_from((ADD, ADD, DISCARD, POP)), st.sampled_from(KEYS), st.integers(0, 9)))


class NaiveQueue:
    """The same with lists: the keys in the order of their turns, and the members of each."""

    def __init__(self, is_newest_first: bool) -> None:
        self.is_newest_first = is_newest_first
        self.turns: list[tuple[str, list[str]]] = []

    def add(self, key: str, member: str) -> None:
        for known, members in self.turns:
            if known == key:
                if member not in members:
                    members.append(member)
                return
        self.turns.append((key, [member]))

    def discard(self, key: str, member: str) -> None:
        for known, members in self.turns:
            if known == key and member in members:
                members.remove(member)
        self.turns = [turn for turn in self.turns if turn[1]]

    def pop(self) -> str:
        key, members = self.turns.pop(0)
        member = members.pop(-1 if self.is_newest_first else 0)
        if members:
            self.turns.append((key, members))
        return member


@given(STEPS, st.booleans())
def test_it_behaves_like_lists(steps: list[tuple[str, str, int]], is_newest_first: bool) -> None:
    queue: FairQueue[str, str] = FairQueue(is_newest_first=is_newest_first)
    naive = NaiveQueue(is_newest_first)
    for step, key, number in steps:
        member = f"{key}{number}"
        if step == ADD:
            queue.add(key, member)
            naive.add(key, member)
        elif step == DISCARD:
            queue.discard(key, member)
            naive.discard(key, member)
        elif queue:
            assert queue.pop() == naive.pop()
        assert len(queue) == sum(len(members) for _, members in naive.turns)


@given(STEPS)
def test_no_key_waits_for_more_than_one_member_of_each_other_key(steps: list[tuple[str, str, int]]) -> None:
    queue: FairQueue[str, str] = FairQueue()
    waiting: dict[str, set[str]] = {key: set() for key in KEYS}
    # The members of each other key that were returned since the key began to wait, or had its last turn.
    overtaken_by: dict[str, list[str]] = {key: [] for key in KEYS}
    for step, key, number in steps:
        member = f"{key}{number}"
        if step == ADD:
            if not waiting[key]:
                overtaken_by[key] = []
            queue.add(key, member)
            waiting[key].add(member)
        elif step == DISCARD:
            queue.discard(key, member)
            waiting[key].discard(member)
        elif queue:
            served = queue.pop()
            waiting[served[0]].remove(served)
            overtaken_by[served[0]] = []
            for other in KEYS:
                if other != served[0] and waiting[other]:
                    overtaken_by[other].append(served[0])
        for one in KEYS:
            if waiting[one]:
                assert len(overtaken_by[one]) == len(set(overtaken_by[one])) < len(KEYS)


def test_an_empty_queue_has_no_next_member() -> None:
    with pytest.raises(IndexError):
        FairQueue[str, str]().pop()
