"""The turns of networks: what happens to the members that wait when one of them fails."""

from collections.abc import Callable

import pytest

from kwire.server.network_turns import NetworkTurns


def test_a_member_that_fails_does_not_end_the_turns_of_the_others() -> None:
    scheduled: list[Callable[[], None]] = []
    served: list[int] = []

    def serve(member: int) -> None:
        served.append(member)
        if member == 1:
            raise ValueError("the first one fails")

    turns: NetworkTurns[int] = NetworkTurns(scheduled.append, serve, 1)
    turns.add("192.0.2.1", 1)
    turns.add("192.0.2.2", 2)
    with pytest.raises(ValueError, match="the first one"):
        scheduled.pop()()
    scheduled.pop()()
    assert served == [1, 2]
