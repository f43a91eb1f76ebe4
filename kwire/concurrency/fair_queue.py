"""A queue whose members take turns by key.

With the network of a client as the key, a client that adds thousands of members delays those of other networks by one
member per turn, and only its own network by all of them.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Member = TypeVar("Member", bound=Hashable)


class FairQueue(Generic[Key, Member]):
    """Members by key. A member that waits behind N other keys is returned after at most N other members.

    The members of one key are returned in the order in which they were added, or the newest first.
    """

    __slots__ = ("_by_key", "_is_newest_first", "_length")

    def __init__(self, *, is_newest_first: bool = False) -> None:
        self._is_newest_first = is_newest_first
        self._length = 0
        # The next turn is that of the first key.
        self._by_key: dict[Key, dict[Member, None]] = {}

    def __len__(self) -> int:
        return self._length

    def add(self, key: Key, member: Member) -> None:
        """Add a member. One that waits already keeps its place."""
        members = self._by_key.setdefault(key, {})
        if member not in members:
            members[member] = None
            self._length += 1

    def discard(self, key: Key, member: Member) -> None:
        """Remove a member if it waits."""
        members = self._by_key.get(key)
        if members is not None and member in members:
            del members[member]
            self._length -= 1
            if not members:
                del self._by_key[key]

    def pop(self) -> Member:
        """Remove and return the next member. Its key is then last. Raises IndexError if none waits."""
        if not self._length:
            raise IndexError("the queue is empty")
        key, members = next(iter(self._by_key.items()))
        member = next(reversed(members) if self._is_newest_first else iter(members))
        del self._by_key[key], members[member]
        self._length -= 1
        if members:
            self._by_key[key] = members
        return member
