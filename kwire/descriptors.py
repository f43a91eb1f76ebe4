"""File descriptors: the limit of the process, and the number of descriptors that is reserved for the logs.

A log that cannot open a file can neither append nor sync records. So connections are refused while only the reserved
descriptors are free. Open descriptors need not be counted for this, because the kernel always assigns the lowest free
descriptor. If a connection gets one of the highest `reserved_count` descriptors, all lower ones are in use.
"""

import fcntl
import logging
import os
import resource
from time import monotonic
from typing import Any

log = logging.getLogger("kwire.server")

# The kinds of connections: accepted on the Kafka port, accepted on the HTTP port, and opened to receivers of webhooks.
KAFKA, HTTP, WEBHOOKS = "kafka", "http", "webhooks"
# The descriptors of one open log: for its active segment, for the duplicate that a sync uses, and for closed segments
# that are being read.
DESCRIPTORS_PER_LOG = 4
# The descriptors for files that are open once per node: locks, journals, listeners, pipes of worker processes.
DESCRIPTORS_PER_NODE = 32
# Connections get at least 1/CONNECTIONS_SHARE of all descriptors, however many logs may be open.
CONNECTIONS_SHARE = 2
# The kernel's limit for a process. It applies if the process itself has no limit.
KERNEL_LIMIT_PATH = "/proc/sys/fs/nr_open"
KERNEL_LIMIT_DEFAULT = 1024 * 1024
# The maximum size of the descriptor table that is allocated at the start. It takes eight bytes per descriptor.
TABLE_SIZE_MAX = 65_536
# The minimum interval between two log messages about refused connections.
WARNING_SECONDS = 10.0


def raise_limit() -> int:
    """Raise the descriptor limit of the process to the hard limit (`ulimit -Hn`), and return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _kernel_limit() if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def allocate_table(limit: int) -> None:
    """Let the kernel allocate the process's table of descriptors for `limit` of them. Call it before threads start.

    The kernel doubles a table that is full. In a process with threads, the call that needs the next descriptor then
    waits until no other processor can use the old table. Each of these waits would stall the event loop for 8 to 40 ms.
    """
    fd = os.open(os.devnull, os.O_RDONLY)
    try:
        os.close(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, min(limit, TABLE_SIZE_MAX) - 1))
    finally:
        os.close(fd)


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
    """The descriptors of this process.

    `open_logs_max` is `kwire.log.open.max`, or less if `limit` does not allow that many open logs. `refused` is the
    number of connections that were refused because they would have used reserved descriptors, by kind.
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
        is_lowered = self.open_logs_max < open_logs_wanted
        log.log(
            logging.INFO if is_lowered else logging.DEBUG,
            "%d descriptors may be open, %d of them are reserved for the log",
            self.limit,
            self.reserved_count,
        )
        if is_lowered:
            log.warning(
                "kwire.log.open.max=%d does not fit %d descriptors and is lowered to %d; raise the limit (ulimit -Hn)",
                open_logs_wanted,
                self.limit,
                self.open_logs_max,
            )

    @property
    def is_log_short(self) -> bool:
        """Whether half of the reserved descriptors are in use. Files of idle segments should then be closed."""
        return _lowest_free(self.limit) >= self.limit - self.reserved_count // 2

    def admit(self, kind: str, fd: int) -> bool:
        """Return whether a connection may keep the descriptor `fd`. False if it is one of the reserved descriptors.

        Refusals are counted by kind. They are logged at most once in WARNING_SECONDS.
        """
        if fd < self.limit - self.reserved_count:
            return True
        self.refused[kind] += 1
        self._unreported_count += 1
        now = monotonic()
        if now - self._warned_at >= WARNING_SECONDS:
            log.warning(
                "refused connections: %d, the last one of kind %s: the last %d of %d descriptors are reserved for the "
                "log; raise the limit (ulimit -Hn)",
                self._unreported_count,
                kind,
                self.reserved_count,
                self.limit,
            )
            self._warned_at, self._unreported_count = now, 0
        return False


def descriptor_of(transport: Any) -> int:
    """Return the file descriptor of a transport's socket, or -1 if the transport has no socket."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


def _lowest_free(limit: int) -> int:
    """Return the lowest free descriptor, or `limit` if none is free."""
    try:
        fd = os.dup(2)
    except OSError:
        return limit
    os.close(fd)
    return fd
