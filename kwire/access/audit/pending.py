"""Audit entries of changes that commands made while the server was stopped. They wait in the metadata store.

The next start of the server writes them to the audit log, and removes them after that. If the server is killed in
between, the start after it writes them again. A command that is killed after its change, and before it stored the
entry, leaves none.
"""

import logging
import os
import pwd
import sys
from collections.abc import Awaitable, Callable, Mapping

from kwire.access.audit.entries import NOTHING, OFFLINE, SUCCESS, Actor, Audit, AuditEntry, NoAudit
from kwire.access.audit.queue import time_text
from kwire.access.principal import Principal
from kwire.clock import Clock
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

log = logging.getLogger("kwire.audit")

KEY_PREFIX = "pending-audit/"
# The maximum number of entries that wait for the next start of the server. Further ones are not recorded.
PENDING_MAX = 10_000
# The number of entries that are written and removed together.
ENTRIES_PER_CHUNK = 200
# The type of principals that are users of the operating system.
LOCAL_USER = "LocalUser"


class PendingAudit(NoAudit):
    """The `Audit` of a command on a stopped server. Call `store` after each change."""

    has_changes = True

    def __init__(self, metastore: MetaStore, clock: Clock) -> None:
        self._metastore = metastore
        self._clock = clock
        self._changes: list[dict[str, object]] = []

    def changed(self, what: str, resource_type: str, name: str, facts: Mapping[str, object] = NOTHING) -> None:
        self._changes.append(
            {
                "type": what,
                "resource_type": resource_type,
                "resource": name,
                "by": _local_user(),
                "facts": {**facts, "changedAt": time_text(self._clock.now_ms())},
            }
        )

    changed_again = changed

    async def store(self) -> None:
        """Store the changes recorded so far. Raises StorageError."""
        changes, self._changes = self._changes, []
        waiting = sum(1 for _ in self._metastore.entries(KEY_PREFIX))
        kept = changes[: max(0, PENDING_MAX - waiting)]
        if len(kept) < len(changes):
            print(
                f"kwire: {len(changes) - len(kept)} changes are not recorded in the audit log, because {PENDING_MAX} "
                "entries wait for the next start of the server",
                file=sys.stderr,
            )
        if kept:
            first = f"{KEY_PREFIX}{self._metastore.revision:020d}"
            await self._metastore.commit(
                [Change(f"{first}-{number:05d}", one, ABSENT) for number, one in enumerate(kept)]
            )


def has_pending(metastore: MetaStore) -> bool:
    return any(True for _ in metastore.entries(KEY_PREFIX))


async def record_pending(metastore: MetaStore, audit: Audit, written: Callable[[], Awaitable[None]]) -> None:
    """Write the waiting entries to the audit log, and remove them. `written` waits until recorded entries are durable.

    If the audit log does not record changes, the entries are only removed.
    """
    waiting = sorted(metastore.entries(KEY_PREFIX))
    for start in range(0, len(waiting), ENTRIES_PER_CHUNK):
        chunk = waiting[start : start + ENTRIES_PER_CHUNK]
        if audit.has_changes:
            for _, entry in chunk:
                audit.record(_entry_of(entry.value))
            await written()
        try:
            await metastore.commit([Change(key, None, entry.revision) for key, entry in chunk])
        except (StorageError, Conflict):
            log.exception("audit entries of a stopped server are recorded, but could not be removed from the catalogue")
            return


def _entry_of(value: Mapping[str, object]) -> AuditEntry:
    facts = value["facts"]
    assert isinstance(facts, dict)
    actor = Actor(Principal(LOCAL_USER, str(value["by"])), "", OFFLINE)
    return AuditEntry(str(value["type"]), actor, SUCCESS, str(value["resource_type"]), str(value["resource"]), facts)


def _local_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
