"""File descriptors: how many the process may have, and how many of them connections have to leave to the log.

A log that cannot open a file can neither take nor sync a record, so connections are refused before the log runs out.
The kernel hands out the lowest number that is free. So a connection whose number is among the highest `reserved_count`
ones came when only those were left, which is known without counting anything.
"""

import logging
import os
import resource
from time import monotonic
from typing import Any

log = logging.getLogger("kwire.server")

# Kinds of connections: accepted on the two ports, and made to receivers of webhooks.
KAFKA, HTTP, WEBHOOKS = "kafka", "http", "webhooks"
# For one open log: its segment in use, the duplicate that a sync takes, and closed segments that are being read.
DESCRIPTORS_PER_LOG = 4
# For what is open once: locks, journals, listeners, pipes of worker processes.
DESCRIPTORS_PER_NODE = 32
# Connections get at least this share of all descriptors, however many logs may be open.
CONNECTIONS_SHARE = 2
# Without a bound in the process the kernel has one of its own for every process.
KERNEL_LIMIT_PATH = "/proc/sys/fs/nr_open"
KERNEL_LIMIT_DEFAULT = 1024 * 1024
# Refused connections are logged at most this often.
WARNING_SECONDS = 10.0


def raise_limit() -> int:
    """Let the process open as many files as it may (`ulimit -Hn`), and return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _kernel_limit() if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def current_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _kernel_limit() if soft == resource.RLIM_INFINITY else soft


def _kernel_limit() -> int:
    try:
        with open(KERNEL_LIMIT_PATH) as file:
            return int(file.read())
    except (OSError, ValueError):
        return KERNEL_LIMIT_DEFAULT


class Descriptors:
    """The descriptors of this process. `open_logs_max` is `kwire.log.open.max`, made to fit `limit`.

    `refused` counts, by kind, the connections that would have touched the reserve.
    """

    def __init__(self, limit: int, open_logs_max: int) -> None:
        wanted = DESCRIPTORS_PER_NODE + open_logs_max * DESCRIPTORS_PER_LOG
        self.limit = limit
        self.reserved_count = min(wanted, limit // CONNECTIONS_SHARE)
        fitting = (self.reserved_count - DESCRIPTORS_PER_NODE) // DESCRIPTORS_PER_LOG
        self.open_logs_max = min(open_logs_max, max(fitting, 1))
        self.refused = dict.fromkeys((KAFKA, HTTP, WEBHOOKS), 0)
        self._warned_at = -WARNING_SECONDS
        self._unreported_count = 0

    def report(self, open_logs_wanted: int) -> None:
        log.info("%d descriptors may be open, %d of them are kept for the log", self.limit, self.reserved_count)
        if self.open_logs_max < open_logs_wanted:
            log.warning(
                "kwire.log.open.max=%d does not fit %d descriptors and is lowered to %d; raise the limit (ulimit -Hn)",
                open_logs_wanted,
                self.limit,
                self.open_logs_max,
            )

    @property
    def is_log_short(self) -> bool:
        """Whether the log has used up half of what is kept for it: what is open for idle readers should be closed."""
        return _lowest_free(self.limit) >= self.limit - self.reserved_count // 2

    def admit(self, kind: str, fd: int) -> bool:
        """Whether a connection with this descriptor leaves the reserve alone.

        A refusal is counted by kind, and logged at a bounded rate.
        """
        if fd < self.limit - self.reserved_count:
            return True
        self.refused[kind] += 1
        self._unreported_count += 1
        now = monotonic()
        if now - self._warned_at >= WARNING_SECONDS:
            log.warning(
                "refused connections: %d, the last one of kind %s: the last %d of %d descriptors are kept for the log; "
                "raise the limit (ulimit -Hn)",
                self._unreported_count,
                kind,
                self.reserved_count,
                self.limit,
            )
            self._warned_at, self._unreported_count = now, 0
        return False


def descriptor_of(transport: Any) -> int:
    """The number of a transport's socket; -1 if it has none."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


def _lowest_free(limit: int) -> int:
    """The number that the next descriptor gets; `limit` when there is none left."""
    try:
        fd = os.dup(2)
    except OSError:
        return limit
    os.close(fd)
    return fd
