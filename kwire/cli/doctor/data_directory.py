"""Checks of a data directory on this machine: its disk, its format, its catalogue and its logs."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from kwire.cli.doctor.finding import OK, PROBLEM, SKIPPED, WARNING, Finding
from kwire.cli.doctor.node_state import check_directory
from kwire.cli.log.processes import plan_all, verify_all
from storage.data_directory.store import LOCK_NAME
from storage.disk.files import Files
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from storage.recovery.verify_folder import check_data_dir, partition_folders

# A file that Apache Kafka writes into each of its log directories.
KAFKA_FILE = "meta.properties"
PLACES_SHOWN_MAX = 5
# With less free space, a server cannot start without its disk reserve (the default of kwire.log.reserve.bytes).
FULL_BYTES = 4 * 1024 * 1024


def check_data_directory(data_dir: Path) -> Iterator[Finding]:
    """Check a directory. While a server uses it, only closed segments are read."""
    if not data_dir.is_dir():
        yield Finding(
            "data directory", PROBLEM, f"{data_dir} is not a directory", "name the directory of --data-dir or log.dirs"
        )
        return
    usage = shutil.disk_usage(data_dir)
    yield check_directory(
        {
            "path": str(data_dir),
            "error": None,
            "free_bytes": usage.free,
            "total_bytes": usage.total,
            "is_reserve_whole": usage.free >= FULL_BYTES,
        }
    )
    yield check_format(data_dir)
    is_used = is_in_use(data_dir)
    if is_used:
        text = f"{data_dir} is used by a running server, so only closed segments are checked"
        yield Finding("data directory", SKIPPED, text, "stop the server to check everything")
    yield check_logs(data_dir, is_live=is_used)


def check_format(data_dir: Path) -> Finding:
    check = "format"
    if (data_dir / KAFKA_FILE).exists():
        return Finding(
            check,
            PROBLEM,
            f"{data_dir} is a log directory of Apache Kafka ({KAFKA_FILE})",
            "kwire does not read it; copy the records with a consumer and a producer, or MirrorMaker",
        )
    if not (data_dir / JOURNAL_NAME).exists() and not (data_dir / MIRROR_NAME).exists():
        if partition_folders(str(data_dir), Files()):
            text = f"{data_dir} has partitions and no catalogue; it may be a second directory of log.dirs"
            return Finding(
                check, WARNING, text, "name all directories of the server; if the catalogue is lost: kwire log adopt"
            )
        return Finding(check, OK, f"{data_dir} is empty: no server has used it yet")
    if not (data_dir / MIRROR_NAME).exists() or not (data_dir / JOURNAL_NAME).exists():
        text = f"{data_dir} has one copy of the catalogue: it is of an earlier release, or a copy was lost"
        return Finding(check, WARNING, text, "the next start makes the second copy; make a backup before an update")
    return Finding(check, OK, f"{data_dir} has the format of this release")


def is_in_use(data_dir: Path) -> bool:
    """Return whether a server has locked the directory."""
    try:
        fd = os.open(data_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def check_logs(data_dir: Path, *, is_live: bool) -> Finding:
    """Read all records, and check their checksums and the catalogue."""
    files = Files()
    found = [] if is_live else check_data_dir(str(data_dir), files)
    directories = [str(data_dir / folder) for folder in partition_folders(str(data_dir), files)]
    plans = plan_all(directories, files.boot_id(), is_live, 1)
    for plan in plans:
        found += plan.findings
    jobs = [job for plan in plans for job in plan.jobs]
    for _, report in verify_all(jobs, 1, lambda size_bytes: None):
        found += report.findings
    damaged = [one for one in found if not one.is_sound]
    if damaged:
        shown = "; ".join(f"{one.path}: {one.reason}" for one in damaged[:PLACES_SHOWN_MAX])
        return Finding(
            "logs",
            PROBLEM,
            f"{len(damaged)} damaged places in {data_dir}: {shown}",
            f"kwire log verify {data_dir} shows all of them; restore a backup, or start the server, which serves all "
            "other records",
        )
    return Finding("logs", OK, f"{len(jobs)} segments in {len(directories)} partitions of {data_dir} are sound")
