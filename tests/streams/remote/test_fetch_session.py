"""Fetch sessions beside a broker that remembers partitions as KIP-227 says."""

import random

import pytest

from kwire.errors import ErrorCode
from kwire.streams.remote.fetch_session import FIRST_EPOCH, NO_SESSION, FetchKey, FetchPosition, FetchSession
from tests.support.effort import repetitions

STEPS = 200


def key(number: int) -> FetchKey:
    return FetchKey(f"t{number}", bytes([number]) * 16, 0)


class Broker:
    """The sessions of a broker, which may forget them or have no room."""

    def __init__(self) -> None:
        self.session: dict[FetchKey, FetchPosition] = {}
        self.id = NO_SESSION
        self._epoch = 0
        self._last_id = 0

    def fetch(self, session: FetchSession, *, has_room: bool) -> bool:
        """Answer a request. Return whether it has been served, so that `session` has what the client wants."""
        asked = session.request()
        if asked.session_id == NO_SESSION:
            assert asked.epoch == FIRST_EPOCH
            self.session = dict(asked.partitions)
            self._last_id += 1
            self.id, self._epoch = (self._last_id, 1) if has_room else (NO_SESSION, 0)
        elif asked.session_id != self.id:
            return session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, NO_SESSION)
        else:
            assert asked.epoch == self._epoch, "the epoch rises by one with every request"
            self._epoch += 1
            for one in asked.forgotten:
                del self.session[one]
            for one, position in asked.partitions.items():
                assert self.session.get(one) != position, "only changes are sent"
                self.session[one] = position
        return session.answered(0, self.id)


@pytest.mark.parametrize("seed", range(repetitions(quick=30, full=300)))
def test_the_broker_fetches_what_the_client_wants(seed: int) -> None:
    chance, session, broker = random.Random(seed), FetchSession(), Broker()
    wanted: dict[FetchKey, FetchPosition] = {}
    for _ in range(STEPS):
        one = key(chance.randrange(8))
        match chance.randrange(6):
            case 0:
                session.remove(one)
                wanted.pop(one, None)
            case 1:
                broker.id = NO_SESSION - 1  # evicted
            case 2:
                session.reset()  # the connection was lost
            case _:
                wanted[one] = FetchPosition(chance.randrange(5), 0)
                session.want(one, wanted[one])
        if broker.fetch(session, has_room=chance.random() < 0.9):
            assert broker.session == wanted
            assert {one: session.asked(one) for one in wanted} == wanted
            assert len(session) == len(wanted)
        else:
            assert all(session.asked(one) is None for one in wanted)


def test_an_idle_session_sends_nothing() -> None:
    session, broker = FetchSession(), Broker()
    for number in range(100):
        session.want(key(number), FetchPosition(0, 0))
    assert broker.fetch(session, has_room=True)
    asked = session.request()
    assert (asked.partitions, asked.forgotten) == ({}, [])


def test_a_partition_that_comes_and_goes_between_two_requests_is_not_sent() -> None:
    session, broker = FetchSession(), Broker()
    session.want(key(1), FetchPosition(0, 0))
    assert broker.fetch(session, has_room=True)
    session.want(key(2), FetchPosition(0, 0))
    session.remove(key(2))
    session.want(key(1), FetchPosition(1, 0))
    session.want(key(1), FetchPosition(0, 0))
    asked = session.request()
    assert (asked.partitions, asked.forgotten) == ({}, [])
