"""Checks of the state that the server reports about itself (GET /admin/node)."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kwire.cli.doctor.finding import OK, PROBLEM, WARNING, Finding
from kwire.progress import size_text

# Below these, a disk is nearly full.
FREE_SHARE_MIN = 0.05
FREE_BYTES_MIN = 1024**3
# The server logs a warning in the same time before a certificate expires.
EXPIRY_WARNING_MS = 14 * 24 * 3600 * 1000
DAY_MS = 24 * 3600 * 1000
# A smaller difference of the clocks is usual.
SKEW_WARNING_MS = 1_000
# The default of message.timestamp.after.max.ms: records with later timestamps are refused.
SKEW_PROBLEM_MS = 3_600_000
# Fewer descriptors are soon used up by connections.
DESCRIPTORS_MIN = 4_096


class ClockReading(NamedTuple):
    """The server's clock, read over HTTP, and this machine's clock before and after that, in milliseconds."""

    before_ms: int
    server_ms: int
    after_ms: int

    @property
    def skew_ms(self) -> int:
        """The server's clock minus this machine's clock in the middle of the request."""
        return self.server_ms - (self.before_ms + self.after_ms) // 2

    @property
    def error_ms(self) -> int:
        """The largest error of `skew_ms`: half of the time that the request took."""
        return (self.after_ms - self.before_ms + 1) // 2


def check_node(node: Mapping[str, Any], client_version: str) -> Iterator[Finding]:
    if node["is_ready"]:
        yield Finding("ready", OK, "the server is ready")
    else:
        yield Finding(
            "ready", PROBLEM, "the server is starting or stopping", "wait, and read the server's log if it stays so"
        )
    yield check_version(node["version"], client_version)
    for directory in node["directories"]:
        yield check_directory(directory)
    yield check_descriptors(node["descriptors"])
    yield from check_damage(node["damage"])
    for certificate in node["certificates"]:
        yield check_certificate(certificate, node["time_ms"])


def check_version(server: str, client: str) -> Finding:
    if server.split(".")[:2] == client.split(".")[:2]:
        return Finding("version", OK, f"server {server}, this program {client}")
    return Finding(
        "version",
        WARNING,
        f"the server has version {server}, this program has version {client}; some commands may not fit",
        "use the program that was installed with the server, or update one of the two",
    )


def check_directory(directory: Mapping[str, Any]) -> Finding:
    path = directory["path"]
    if directory["error"] is not None:
        return Finding(
            "disk",
            PROBLEM,
            f"{path} is offline: {directory['error']}",
            "repair or mount the disk, and restart the server",
        )
    free, total = directory["free_bytes"], directory["total_bytes"]
    text = f"{path}: {size_text(free)} of {size_text(total)} are free"
    remedy = (
        "free space on this disk, or lower retention.ms or retention.bytes of large topics (kwire topic alter), or "
        "move partitions to another directory"
    )
    if not directory["is_reserve_whole"]:
        return Finding("disk", PROBLEM, f"{text}; the disk reserve is in use, so the disk is full", remedy)
    if free < min(FREE_SHARE_MIN * total, FREE_BYTES_MIN):
        return Finding("disk", WARNING, f"{text}; it will soon be full", remedy)
    return Finding("disk", OK, text)


def check_descriptors(descriptors: Mapping[str, Any]) -> Finding:
    limit = descriptors["limit"]
    remedy = "raise the limit of the process: ulimit -Hn, or LimitNOFILE= of its systemd unit, and restart the server"
    if descriptors["refused_connections"]:
        count = descriptors["refused_connections"]
        text = f"{count} connections were refused, because all {limit} descriptors were in use"
        return Finding("open files", PROBLEM, text, remedy)
    wanted, allowed = descriptors["open_logs_configured"], descriptors["open_logs_max"]
    if allowed < wanted:
        text = f"{limit} descriptors allow only {allowed} open logs; kwire.log.open.max is {wanted}"
        return Finding("open files", WARNING, text, remedy)
    if limit < DESCRIPTORS_MIN:
        return Finding("open files", WARNING, f"the process may open only {limit} files, connections included", remedy)
    return Finding("open files", OK, f"the process may open {limit} files")


def check_damage(damage: Mapping[str, Any]) -> Iterator[Finding]:
    check = "logs"
    if damage["quarantined_ranges"]:
        names = _named(damage["quarantined"])
        yield Finding(
            check,
            PROBLEM,
            f"{damage['quarantined_ranges']} ranges of records cannot be read (CORRUPT_MESSAGE), in {names}",
            "all other records are served; check the disk, and restore these records from a backup",
        )
    if damage["refusing_logs"]:
        yield Finding(
            check,
            PROBLEM,
            f"these logs accept no records: {_named(damage['refusing_logs'])}",
            "read the server's log, which says why; after a failed sync replace the disk, for a damaged end stop the "
            "server and run kwire log adopt",
        )
    for folder, reason in damage["offline_partitions"].items():
        yield Finding(check, PROBLEM, f"{folder} is offline: {reason}", "read the server's log, which names the remedy")
    if not damage["quarantined_ranges"] and not damage["refusing_logs"] and not damage["offline_partitions"]:
        yield Finding(check, OK, "no damage is known")


def _named(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def check_certificate(certificate: Mapping[str, Any], now_ms: int) -> Finding:
    left_ms = certificate["expires_ms"] - now_ms
    name = certificate["listener"]
    remedy = "replace the certificate file; the server loads it without a restart"
    if left_ms <= 0:
        return Finding("certificate", PROBLEM, f"the certificate of listener {name} has expired", remedy)
    days = left_ms // DAY_MS
    if left_ms < EXPIRY_WARNING_MS:
        return Finding("certificate", WARNING, f"the certificate of listener {name} expires in {days} days", remedy)
    return Finding("certificate", OK, f"the certificate of listener {name} is valid for {days} days")


def check_clock(reading: ClockReading) -> Finding:
    skew_ms, error_ms = reading.skew_ms, reading.error_ms
    side = "ahead of" if skew_ms > 0 else "behind"
    measured = f"the server's clock is {abs(skew_ms) / 1000:.1f} s {side} this machine's (± {error_ms / 1000:.1f} s)"
    remedy = "set both clocks by NTP (timedatectl status), on the machine whose time is wrong"
    if abs(skew_ms) - error_ms > SKEW_PROBLEM_MS:
        return Finding("clock", PROBLEM, f"{measured}; records with timestamps of this machine may be refused", remedy)
    if abs(skew_ms) - error_ms > SKEW_WARNING_MS:
        return Finding("clock", WARNING, f"{measured}; retention and searches by time go by these clocks", remedy)
    return Finding("clock", OK, measured)
