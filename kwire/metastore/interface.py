"""The interface of a metadata store: get, list, compare-and-set, watch, lease.

Every implementation passes the tests in `tests/metastore/test_contract.py`. The limits of a commit are below those of
etcd (128 operations and 1.5 MiB in one transaction), so that a store in etcd can keep them, too.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

from msgspec import Struct

from kwire.errors import ErrorCode, KafkaError

# The expected revision of a key that does not exist.
ABSENT = 0
# The lease id of a change that attaches its key to no lease.
NO_LEASE = 0
# The maximum number of changes and conditions of one commit, together.
CHANGES_PER_COMMIT_MAX = 100
# The maximum size of one commit: `commits.size_of` its changes and conditions.
COMMIT_BYTES_MAX = 1024 * 1024
# The time to live of a lease, in whole seconds as in etcd.
LEASE_SECONDS_MIN = 1
LEASE_SECONDS_MAX = 24 * 60 * 60
# The maximum number of leases of a store.
LEASES_MAX = 10_000
# The maximum number of open watches of a store. Each commit is compared with the prefix of each watch.
WATCHES_MAX = 100


class Entry(NamedTuple):
    """A JSON value, and the revision of the commit that wrote it."""

    value: Any
    revision: int


class Change(Struct, frozen=True):
    """A change of one key. If `value` is None, the key is removed.

    The change is refused if the revision of the key's entry is not `expected_revision`. ABSENT is the revision of a key
    that does not exist. If `lease_id` is given, the key is removed when that lease ends. A change without `lease_id`
    detaches the key from its lease.
    """

    key: str
    value: Any
    expected_revision: int
    lease_id: int = NO_LEASE


class Condition(NamedTuple):
    """A condition on a key that the commit does not change: the revision of its entry, or ABSENT if it has none."""

    key: str
    expected_revision: int


class KeyChange(NamedTuple):
    """A change as a watch returns it. `entry` is None if the key was removed."""

    key: str
    entry: Entry | None


class Commit(NamedTuple):
    """The changes of one commit to the keys of a watch: at least one, in no particular order."""

    revision: int
    changes: tuple[KeyChange, ...]


class Conflict(Exception):
    """Another commit has changed one of the keys. No change of this commit was applied."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed by another commit")
        self.key = key


class CommitTooLarge(KafkaError):
    """A commit has more than CHANGES_PER_COMMIT_MAX changes or COMMIT_BYTES_MAX bytes. Nothing was applied.

    It is a KafkaError, because only the request of a client can make a single change that is too large.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, message)


class Compacted(Exception):
    """The store no longer has all changes that a watch still has to return. The watcher reads the entries again.

    The reader then watches from the revision after that of its reading. `oldest_revision` is the first revision from
    which a watch can begin.
    """

    def __init__(self, revision: int, oldest_revision: int) -> None:
        super().__init__(f"the changes of revision {revision} are no longer kept; the oldest are of {oldest_revision}")
        self.revision = revision
        self.oldest_revision = oldest_revision


class LeaseLost(Exception):
    """The lease has expired or was revoked, or it never existed."""

    def __init__(self, lease_id: int) -> None:
        super().__init__(f"the lease {lease_id} has ended")
        self.lease_id = lease_id


class TooManyLeases(KafkaError):
    """The store has LEASES_MAX leases."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, f"there are {LEASES_MAX} leases, which is the maximum")


class TooManyWatches(Exception):
    """The store has WATCHES_MAX open watches."""

    def __init__(self) -> None:
        super().__init__(f"there are {WATCHES_MAX} watches, which is the maximum")


class Watch(Protocol):
    """The commits that change keys with a prefix, in order and without a gap. One task iterates over it.

    A commit is returned after it is durable. If the watcher is so slow that the store no longer has the next changes,
    the iteration raises Compacted, now and at every later call. The iteration ends when the watch or the store is
    closed.
    """

    @property
    def revision(self) -> int:
        """The watch has returned all changes up to this revision."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Commit: ...

    def close(self) -> None: ...


class Lease(Protocol):
    """The right to keys for a limited time. When it ends, the keys that are attached to it are removed.

    The holder calls `keep_alive` more often than every `ttl_seconds`. The time is monotonic: setting the wall clock has
    no effect.
    """

    @property
    def lease_id(self) -> int: ...

    @property
    def ttl_seconds(self) -> int: ...

    @property
    def is_lost(self) -> bool:
        """Whether the lease has ended. Its keys may still exist for a moment."""
        ...

    async def keep_alive(self) -> None:
        """Begin the lease's time anew. Raises LeaseLost."""
        ...

    async def revoke(self) -> None:
        """End the lease. On return its keys are removed durably. Does nothing if the lease has ended already."""
        ...


# Called once, on the event loop, when a lease expires. It is called before the lease's keys are removed, and not if the
# holder revokes the lease itself.
OnLost = Callable[[], None]


class MetaStore(Protocol):
    """The interface of a metadata store."""

    @property
    def revision(self) -> int:
        """The revision of the last commit. Every commit that changes a key has a higher one than all before it."""
        ...

    def get(self, key: str) -> Entry | None: ...

    def entries(self, prefix: str) -> Iterator[tuple[str, Entry]]: ...

    async def commit(self, changes: Sequence[Change], conditions: Sequence[Condition] = ()) -> int:
        """Apply all changes or none. Returns the revision of the commit when the changes are durable.

        Removing a key that does not exist changes nothing. If no key changes, the store's revision is returned. Raises
        Conflict, CommitTooLarge, LeaseLost, or ValueError if a key occurs twice or a removed key has a lease.
        """
        ...

    def watch(self, prefix: str, from_revision: int) -> Watch:
        """Return the commits from `from_revision` on that change keys with this prefix.

        A reader that has read the entries at `revision` watches from `revision + 1`. Raises TooManyWatches. The first
        iteration raises Compacted if the store no longer has the changes of `from_revision`.
        """
        ...

    async def lease(self, ttl_seconds: int, on_lost: OnLost | None = None) -> Lease:
        """Grant a lease. Raises TooManyLeases, or ValueError if the time is outside the limits.

        The lease survives a restart of the store. Its time then begins anew.
        """
        ...

    async def resume_lease(self, lease_id: int, on_lost: OnLost | None = None) -> Lease:
        """Return the lease with this id to a new holder, and begin its time anew. Raises LeaseLost.

        Of several holders in one process, only the last one's `on_lost` is called.
        """
        ...

    async def erase_history(self) -> None:
        """Remove all values that later commits have replaced or removed from the disk. Raises StorageError."""
        ...
