"""Slots for work that clients cause before they are logged in. Waiting clients take turns by network, then by user.

So a client that guesses passwords over thousands of connections delays a login from another network by the work of one
guess. A login from the same network waits for one guess of each other user name.
"""

import asyncio
from collections import Counter

# The futures of the work that waits, by user name. The next turn is that of the first name. The result of a future is
# whether the client gets a slot. An exception would refer to frames that refer to the future, and only the garbage
# collector could free this cycle.
_Users = dict[str, dict["asyncio.Future[bool]", None]]


class SlotsExhausted(Exception):
    """Too many clients of a network wait for a slot."""


class FairSlots:
    """A number of slots. Use it only in the event loop's thread."""

    __slots__ = ("_counts", "_free", "_is_newest_first", "_waiting")

    def __init__(self, count: int, *, is_newest_first: bool = False) -> None:
        """`is_newest_first`: of the work of one user, the newest is next. It is for work that is often abandoned."""
        self._free = count
        # The number of waiting clients, by network.
        self._counts: Counter[str] = Counter()
        self._is_newest_first = is_newest_first
        # By network. The next turn is that of the first network.
        self._waiting: dict[str, _Users] = {}

    @property
    def is_awaited(self) -> bool:
        """Whether clients wait for a slot."""
        return bool(self._waiting)

    async def acquire(self, network: str, user: str, waiting_max: int | None = None) -> None:
        """Take a slot, when it is this client's turn. The caller must call `release`.

        If more than `waiting_max` clients of the network wait, the oldest of the user of whom most wait is given up:
        its call raises SlotsExhausted.
        """
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(network, {}).setdefault(user, {})[turn] = None
        self._counts[network] += 1
        if waiting_max is not None and self._counts[network] > waiting_max:
            self._displace(network)
        try:
            has_slot = await turn
        except BaseException:
            # The caller was cancelled, or its coroutine was closed.
            if turn.done() and not turn.cancelled() and turn.result():
                self.release()
            else:
                self._forget(network, user, turn)
            raise
        if not has_slot:
            raise SlotsExhausted

    def release(self) -> None:
        """Give a slot back. The next client in turn gets it."""
        while self._waiting:
            if self._serve(next(iter(self._waiting))):
                return
        self._free += 1

    def release_to(self, network: str) -> None:
        """Give a slot to the next client of one network. If none waits, nothing happens."""
        while network in self._waiting and not self._serve(network):
            pass

    def _serve(self, network: str) -> bool:
        """Give a slot to the next client of a network. Returns False if it was cancelled and does not need it."""
        # What was served is put at the end, if more of it waits.
        users = self._waiting[network]
        user = next(iter(users))
        turns = users[user]
        turn = next(reversed(turns) if self._is_newest_first else iter(turns))
        del self._waiting[network], users[user], turns[turn]
        self._count_less(network)
        if turns:
            users[user] = turns
        if users:
            self._waiting[network] = users
        if turn.done():
            return False
        turn.set_result(True)
        return True

    def _forget(self, network: str, user: str, turn: "asyncio.Future[bool]") -> None:
        users = self._waiting.get(network, {})
        turns = users.get(user, {})
        if turn not in turns:
            return  # `_serve` or `_displace` has removed it.
        del turns[turn]
        self._count_less(network)
        if not turns:
            del users[user]
        if not users:
            del self._waiting[network]

    def _displace(self, network: str) -> None:
        users = self._waiting[network]
        user, turns = max(users.items(), key=lambda item: len(item[1]))
        turn = next(iter(turns))
        self._forget(network, user, turn)
        if not turn.done():
            turn.set_result(False)

    def _count_less(self, network: str) -> None:
        self._counts[network] -= 1
        if not self._counts[network]:
            del self._counts[network]
