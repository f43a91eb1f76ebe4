"""Repeated audit entries are counted instead of recorded one by one.

The first of several equal entries is recorded immediately. Those that follow within an interval become one entry with
their number, at the end of the interval. So a client that is refused a thousand times a second causes one entry per
interval. This module reads no clock and has no timer: the caller passes the time, and calls `take_due`.
"""

from collections.abc import Hashable

from kwire.access.audit.entries import AuditEntry

# The maximum number of different entries in an interval. With more, for example because a client tries many names,
# further entries are counted together: by type, port and outcome.
KEYS_MAX = 1_000
INTERVAL_SECONDS = 10.0


class _Repeats:
    """The repetitions of one entry since `began`, not including the one that was recorded immediately."""

    __slots__ = ("began", "count", "entry")

    def __init__(self, entry: AuditEntry, began: float, count: int) -> None:
        self.entry = entry
        self.began = began
        self.count = count


class RepeatCounter:
    """Decides which of many similar entries are recorded now, and counts the others."""

    def __init__(self, keys_max: int = KEYS_MAX, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._repeats: dict[Hashable, _Repeats] = {}
        self._keys_max = keys_max
        self._interval_seconds = interval_seconds
        # The number of entries that were counted instead of recorded.
        self.counted = 0

    def __len__(self) -> int:
        return len(self._repeats)

    def admit(self, entry: AuditEntry, now: float) -> bool:
        """Return whether the entry is to be recorded now. If not, it is counted."""
        key: Hashable = (entry.type, entry.actor, entry.outcome, entry.resource_type, entry.resource)
        key = (key, tuple(sorted(entry.facts.items(), key=lambda fact: fact[0])))
        known = self._repeats.get(key)
        if known is None and len(self._repeats) >= self._keys_max:
            key = (entry.type, entry.actor.port, entry.outcome)
            known = self._repeats.get(key)
            if known is None:
                # At most one key per type, port and outcome is beyond the maximum.
                self._repeats[key] = _Repeats(_summary(entry), now, 1)
                self.counted += 1
                return False
        if known is None:
            self._repeats[key] = _Repeats(entry, now, 0)
            return True
        known.count += 1
        self.counted += 1
        return False

    def take_due(self, now: float) -> list[AuditEntry]:
        """Return an entry for each key with repetitions whose interval has ended. Keys without any are forgotten."""
        due: list[AuditEntry] = []
        # Entries are in the order of `began`, because `began` changes only when an entry is moved to the end.
        for key, one in list(self._repeats.items()):
            if now - one.began < self._interval_seconds:
                break
            del self._repeats[key]
            if one.count:
                due.append(one.entry._replace(times=one.count))
                self._repeats[key] = _Repeats(one.entry, now, 0)
        return due

    def take_all(self) -> list[AuditEntry]:
        """Return an entry for each key with repetitions, and forget all keys."""
        repeats, self._repeats = self._repeats, {}
        return [one.entry._replace(times=one.count) for one in repeats.values() if one.count]


def _summary(entry: AuditEntry) -> AuditEntry:
    """Return the entry under which entries beyond KEYS_MAX are counted. Its client is one of several."""
    return entry._replace(resource_type="", resource="", facts={"summary": "several clients or resources"})
