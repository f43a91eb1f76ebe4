"""Slots for work that clients cause before they are logged in. Waiting clients take turns by network, then by user.

So a client that guesses passwords over thousands of connections delays a login from another network by the work of one
guess. A login from the same network waits for one guess of each other user name.
"""

import asyncio
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

# The futures of the work that waits, by user name. The next turn is that of the first name.
_Users = dict[str, dict["asyncio.Future[None]", None]]


class FairSlots:
    """A number of slots. Use it only in the event loop's thread."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        # By network. The next turn is that of the first network.
        self._waiting: dict[str, _Users] = {}

    async def acquire(self, network: str, user: str) -> None:
        """Take a slot, when it is this client's turn. The caller must call `release`."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(network, {}).setdefault(user, {})[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(network, user, turn)
            else:
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back. The next client in turn gets it."""
        if not self._waiting:
            self._free += 1
            return
        # What was served is put at the end, if more of it waits.
        network, users = _first(self._waiting)
        user, turns = _first(users)
        turn, _ = _first(turns)
        del self._waiting[network], users[user], turns[turn]
        if turns:
            users[user] = turns
        if users:
            self._waiting[network] = users
        turn.set_result(None)

    def _forget(self, network: str, user: str, turn: "asyncio.Future[None]") -> None:
        users = self._waiting[network]
        del users[user][turn]
        if not users[user]:
            del users[user]
        if not users:
            del self._waiting[network]


def _first(entries: dict[K, V]) -> tuple[K, V]:
    return next(iter(entries.items()))
