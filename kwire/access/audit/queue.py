"""The queue of audit entries. Entries wait in memory, within bounds, until the writer of the audit topic takes them.

An entry that does not fit is dropped. A drop is counted and logged, and never delays the client.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from kwire.access.access import Access
from kwire.access.acl import Operation, ResourceType
from kwire.access.audit.change_log import log_change, log_failed_login
from kwire.access.audit.entries import (
    DENIAL,
    DENIED,
    FAILURE,
    HTTP,
    KAFKA,
    LOGIN,
    NOTHING,
    SUCCESS,
    UNKNOWN_USER,
    Actor,
    AuditEntry,
    current_actor,
)
from kwire.access.audit.repeats import INTERVAL_SECONDS, RepeatCounter
from kwire.access.keys.key_format import is_key_id
from kwire.access.principal import KEY, USER, Principal
from kwire.clock import Clock
from kwire.config.access import AuditConfig

log = logging.getLogger("kwire.audit")

# The maximum number of entries that wait to be written, and of their bytes.
WAITING_MAX = 10_000
WAITING_BYTES_MAX = 16 * 1024 * 1024
# The maximum size of the JSON of an entry. A larger one is stored without its facts.
ENTRY_BYTES_MAX = 64 * 1024
# Longer names of resources and principals are shortened in entries. Group ids may have 32 KiB.
NAME_LENGTH_MAX = 300
# Drops are logged at most this often.
DROP_LOG_SECONDS = 1.0


class WaitingEntry(NamedTuple):
    """An entry in the queue. `data` is its JSON."""

    type: str
    data: bytes


class AuditQueue:
    """The `Audit` of a server. Use it only in the event loop's thread."""

    def __init__(self, config: AuditConfig, clock: Clock) -> None:
        self._has_webhooks = config.has_webhooks
        self._has_refusals = config.has_refusals
        self.has_changes = config.has_changes
        self._clock = clock
        self._waiting: deque[WaitingEntry] = deque()
        self._waiting_bytes = 0
        self._repeats = RepeatCounter()
        self._timer: asyncio.TimerHandle | None = None
        self._logged_drop_at = float("-inf")
        self._unlogged_drops = 0
        # Called when an entry was added to an empty queue.
        self.on_waiting: Callable[[], None] | None = None
        self.recorded = 0
        self.dropped = 0
        # For metrics: logins by port and outcome, refusals by port. They are counted even if they are not recorded.
        self.logins = {(port, outcome): 0 for port in (KAFKA, HTTP) for outcome in (SUCCESS, FAILURE)}
        self.denials = {KAFKA: 0, HTTP: 0}
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def counted(self) -> int:
        """The number of repetitions that were counted instead of recorded one by one."""
        return self._repeats.counted

    # --- the interface Audit

    def record(self, entry: AuditEntry) -> None:
        if not self._has_webhooks:
            return
        entry = _shortened(entry)
        log.debug("%s %s", entry.type, entry.facts)
        data = self._encoded(entry)
        if len(self._waiting) >= WAITING_MAX or self._waiting_bytes + len(data) > WAITING_BYTES_MAX or self.is_closed:
            self.drop(1, f"the queue is {'closed' if self.is_closed else 'full'}; the last entry was {entry.type}")
            return
        self.recorded += 1
        self._waiting_bytes += len(data)
        self._waiting.append(WaitingEntry(entry.type, data))
        if len(self._waiting) == 1 and self.on_waiting is not None:
            self.on_waiting()

    def login(self, principal: Principal, host: str, port: str, mechanism: str) -> None:
        self.logins[port, SUCCESS] += 1
        if self.has_changes:
            self._record_once(AuditEntry(LOGIN, Actor(principal, host, port), SUCCESS, facts={"mechanism": mechanism}))

    def login_failed(self, name: str | None, host: str, port: str, mechanism: str, reason: str) -> None:
        log_failed_login(name, host, port, mechanism, reason)
        self.logins[port, FAILURE] += 1
        if self.has_changes:
            principal = UNKNOWN_USER
            if name is not None:
                principal = Principal(KEY if is_key_id(name) else USER, name[:NAME_LENGTH_MAX])
            actor = Actor(principal, host, port)
            self._record_once(AuditEntry(LOGIN, actor, FAILURE, facts={"mechanism": mechanism, "reason": reason}))

    def refused(self, access: Access, port: str, operation: Operation, resource_type: ResourceType, name: str) -> None:
        self.denials[port] += 1
        if self._has_refusals:
            actor = Actor(access.principal, access.host, port)
            facts = {"operation": operation.name}
            self._record_once(AuditEntry(DENIED, actor, DENIAL, resource_type.name, name[:NAME_LENGTH_MAX], facts))

    def changed(self, what: str, resource_type: str, name: str, facts: Mapping[str, object] = NOTHING) -> None:
        entry = AuditEntry(what, current_actor(), SUCCESS, resource_type, name, facts)
        log_change(_shortened(entry))
        if self.has_changes:
            self.record(entry)

    def changed_again(self, what: str, resource_type: str, name: str, facts: Mapping[str, object] = NOTHING) -> None:
        if self.has_changes:
            resource = name[:NAME_LENGTH_MAX]
            self._record_once(AuditEntry(what, current_actor(), SUCCESS, resource_type, resource, facts))

    # --- for the writer

    def take(self, count_max: int, bytes_max: int) -> list[WaitingEntry]:
        """Remove and return the oldest entries: at least one if there is one, and not more than the maxima."""
        taken: list[WaitingEntry] = []
        size_bytes = 0
        while self._waiting and len(taken) < count_max:
            size_bytes += len(self._waiting[0].data)
            if taken and size_bytes > bytes_max:
                break
            taken.append(self._waiting.popleft())
        self._waiting_bytes -= sum(len(one.data) for one in taken)
        return taken

    def put_back(self, entries: list[WaitingEntry]) -> None:
        """Return entries that could not be written, in front of the others. They may exceed the bounds for a while."""
        self._waiting.extendleft(reversed(entries))
        self._waiting_bytes += sum(len(one.data) for one in entries)

    def drop(self, count: int, reason: str) -> None:
        """Count and log entries that are lost."""
        self.dropped += count
        self._unlogged_drops += count
        now = self._clock.monotonic()
        if now - self._logged_drop_at >= DROP_LOG_SECONDS:
            log.warning("%d audit entries are lost: %s", self._unlogged_drops, reason)
            self._logged_drop_at, self._unlogged_drops = now, 0

    def close(self) -> None:
        """Record the repetitions counted so far. Later entries are dropped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for entry in self._repeats.take_all():
            self.record(entry)
        self.is_closed = True

    # --- repetitions

    def _record_once(self, entry: AuditEntry) -> None:
        """Record an entry, or count it if an equal one was recorded within the interval."""
        if self.is_closed or self._repeats.admit(entry, self._clock.monotonic()):
            self.record(entry)
        if self._timer is None and not self.is_closed:
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_SECONDS / 2, self._record_repeats)

    def _record_repeats(self) -> None:
        self._timer = None
        for entry in self._repeats.take_due(self._clock.monotonic()):
            self.record(entry)
        if self._repeats:
            self._start_timer()

    def _encoded(self, entry: AuditEntry) -> bytes:
        data = self._json(entry)
        if len(data) > ENTRY_BYTES_MAX:
            data = self._json(entry._replace(facts={"shortened": True}))
        return data

    def _json(self, entry: AuditEntry) -> bytes:
        fields = {"time": time_text(self._clock.now_ms()), **entry.shown()}
        try:
            return msgspec.json.encode(fields)
        except (UnicodeEncodeError, TypeError):
            # A name from a client is not valid Unicode.
            return msgspec.json.encode({**fields, "resource": None, "principal": ascii(fields["principal"])})


def time_text(now_ms: int) -> str:
    """Return a time in the form of the audit log."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds") + "Z"


def _shortened(entry: AuditEntry) -> AuditEntry:
    if len(entry.resource) > NAME_LENGTH_MAX:
        entry = entry._replace(resource=entry.resource[:NAME_LENGTH_MAX] + "…")
    return entry
