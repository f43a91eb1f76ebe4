"""The size of commits: their encoding, their limits, and how larger numbers of changes are divided."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kwire.metastore.interface import (
    CHANGES_PER_COMMIT_MAX,
    COMMIT_BYTES_MAX,
    NO_LEASE,
    Change,
    CommitTooLarge,
    Condition,
)

encode_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def size_of(change: Change | Condition) -> int:
    """Return the size that a change or a condition adds to its commit.

    The key of a change counts twice, because a request to a remote store has it in the condition and in the change.
    """
    if isinstance(change, Condition):
        return len(change.key.encode())
    return _size(change.key, _member(change.key, change.value))


def encode_changes(changes: Sequence[Change], conditions: Sequence[Condition] = ()) -> bytes:
    """Return the changes as one JSON object of keys and values. Raises CommitTooLarge or ValueError."""
    count = len(changes) + len(conditions)
    if count > CHANGES_PER_COMMIT_MAX:
        raise CommitTooLarge(f"a commit has at most {CHANGES_PER_COMMIT_MAX} changes and conditions, got {count}")
    members = [_member(change.key, change.value) for change in changes]
    size = sum(_size(change.key, member) for change, member in zip(changes, members, strict=True))
    size += sum(map(size_of, conditions))
    if size > COMMIT_BYTES_MAX:
        raise CommitTooLarge(f"a commit has at most {COMMIT_BYTES_MAX} bytes, got {size}")
    if len({change.key for change in changes}) < len(changes):
        raise ValueError("a commit changes a key only once")
    for change in changes:
        if change.value is None and change.lease_id != NO_LEASE:
            raise ValueError(f"{change.key} is removed, so it cannot be attached to a lease")
    return b"{%b}" % b",".join(members)


def batches(
    groups: Iterable[Sequence[Change]],
    changes_max: int = CHANGES_PER_COMMIT_MAX,
    bytes_max: int = COMMIT_BYTES_MAX,
) -> Iterator[list[Change]]:
    """Divide changes into commits. The changes of a group are in the same commit.

    Raises CommitTooLarge if one group exceeds the limits.
    """
    batch: list[Change] = []
    batch_bytes = 0
    for group in groups:
        group_bytes = sum(map(size_of, group))
        if len(group) > changes_max or group_bytes > bytes_max:
            raise CommitTooLarge(
                f"{group[0].key}: {len(group)} changes of {group_bytes} bytes cannot be stored together; at most "
                f"{changes_max} changes of {bytes_max} bytes can"
            )
        if batch and (len(batch) + len(group) > changes_max or batch_bytes + group_bytes > bytes_max):
            yield batch
            batch, batch_bytes = [], 0
        batch += group
        batch_bytes += group_bytes
    if batch:
        yield batch


def _member(key: str, value: Any) -> bytes:
    return f"{encode_text(key)}:{encode_text(value)}".encode()


def _size(key: str, member: bytes) -> int:
    return len(key.encode()) + len(member)
