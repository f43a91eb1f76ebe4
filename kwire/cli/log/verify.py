"""kwire log verify: checks data directories, and prints a table of topics, the findings and a summary."""

import argparse
import fcntl
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from kwire.cli.framework.output import is_data, print_data
from kwire.cli.framework.progress import progress_bar
from kwire.cli.log.processes import CheckFailed, plan_all, verify_all
from kwire.progress import duration_text, size_text
from kwire.streams.audit.verification import AUDIT_FOLDER, AuditChain, verify_chain
from storage.data_directory.store import LOCK_NAME
from storage.disk.files import Files
from storage.recovery.verify import Finding, SegmentJob, SegmentReport, verify_segment
from storage.recovery.verify_folder import FolderPlan, check_data_dir, partition_folders, partition_of, plan_folder

SOUND, DAMAGED = 0, 1
TOPICS_SHOWN_MAX = 40
FINDINGS_SHOWN_MAX = 100

_COLUMNS = ("topic", "partitions", "segments", "batches", "records", "bytes", "damage", "notes")


class Tally(Struct):
    """The totals of one topic."""

    topic: str
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    damage: int = 0
    notes: int = 0

    def count(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.damage += not finding.is_sound
            self.notes += finding.is_sound


class Outcome(Struct):
    """The result of a check.

    The report of a segment has a maximum number of findings. `left_out` is the number of findings beyond it.
    """

    topics: dict[str, Tally] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    left_out: int = 0
    seconds: float = 0.0
    # The hash chain of each audit log that was checked.
    chains: list[AuditChain] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return all(finding.is_sound for finding in self.findings)

    def total(self) -> Tally:
        total = Tally("total")
        for tally in self.topics.values():
            for name in _COLUMNS[1:]:
                setattr(total, name, getattr(total, name) + getattr(tally, name))
        elsewhere = len(self.findings) - total.damage - total.notes
        damage = sum(not finding.is_sound for finding in self.findings) - total.damage
        total.damage += damage
        total.notes += elsewhere - damage
        return total

    def add_plan(self, plan: FolderPlan) -> None:
        tally = self._tally(plan.directory)
        tally.partitions += 1
        tally.count(plan.findings)
        self.findings += plan.findings

    def add_report(self, job: SegmentJob, report: SegmentReport) -> None:
        tally = self._tally(job.directory)
        if report.is_gone:
            return
        tally.segments += 1
        tally.batches += report.batch_count
        tally.records += report.record_count
        tally.bytes += job.size_bytes
        tally.count(report.findings)
        self.findings += report.findings
        self.left_out += report.finding_count - len(report.findings)

    def add_chain(self, directory: str, chain: AuditChain) -> None:
        self.chains.append(chain)
        self._tally(directory).count(chain.findings)
        self.findings += chain.findings
        self.left_out += chain.break_count - len(chain.findings)

    def _tally(self, directory: str) -> Tally:
        topic_partition = partition_of(os.path.basename(directory))
        topic = topic_partition[0] if topic_partition else directory
        return self.topics.setdefault(topic, Tally(topic))


def verify(options: argparse.Namespace) -> int:
    with ExitStack() as held:
        if not options.live:
            for data_dir in options.data_dirs:
                held.enter_context(_without_server(data_dir))
        outcome = _check(options)
    if is_data(options):
        print_data(_plain(outcome, options), options)
    else:
        _print(outcome, is_all=options.all)
    return SOUND if outcome.is_sound else DAMAGED


@contextmanager
def _without_server(data_dir: Path) -> Iterator[None]:
    """Hold a shared lock on the directory. While it is held, no server can use the directory, but other checks can."""
    try:
        fd = os.open(data_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # The directory is a copy without a lock file, or no server has used it yet.
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckFailed(
                f"{data_dir} is in use by a running server: stop it, or use --live to check closed segments only"
            ) from None
        yield
    finally:
        os.close(fd)


def _check(options: argparse.Namespace) -> Outcome:
    started = time.monotonic()
    outcome = Outcome()
    files = Files()
    directories = _directories(options, files)
    if not options.live and options.topic is None:
        for data_dir in options.data_dirs:
            outcome.findings += check_data_dir(str(data_dir), files)
    plans = plan_all(directories, files.boot_id(), options.live, options.processes)
    for plan in plans:
        outcome.add_plan(plan)
    jobs = [job for plan in plans for job in plan.jobs]
    total_bytes = sum(job.size_bytes for job in jobs)
    progress = progress_bar("verify", total_bytes, is_wanted=not options.no_progress)
    try:
        for job, report in verify_all(jobs, options.processes, progress.show):
            if options.live and report.findings:
                job, report = _verify_again(job)
            outcome.add_report(job, report)
    finally:
        progress.close()
    for plan in plans:
        if os.path.basename(plan.directory) == AUDIT_FOLDER:
            outcome.add_chain(plan.directory, verify_chain(plan.jobs))
    outcome.findings.sort(key=lambda finding: (finding.is_sound, finding.path, finding.position or 0))
    outcome.seconds = time.monotonic() - started
    return outcome


def _directories(options: argparse.Namespace, files: Files) -> list[str]:
    if options.partition is not None and options.topic is None:
        raise CheckFailed("--partition needs --topic")
    directories = []
    for data_dir in options.data_dirs:
        if not data_dir.is_dir():
            raise CheckFailed(f"{data_dir} is not a directory")
        for folder in partition_folders(str(data_dir), files):
            topic, partition = partition_of(folder) or ("", 0)
            if options.topic in (None, topic) and options.partition in (None, partition):
                directories.append(str(data_dir / folder))
    if not directories and options.topic is not None:
        wanted = options.topic if options.partition is None else f"{options.topic}-{options.partition}"
        raise CheckFailed(f"{wanted} has no folder in {', '.join(map(str, options.data_dirs))}")
    return directories


def _verify_again(job: SegmentJob) -> tuple[SegmentJob, SegmentReport]:
    """Verify a segment a second time, because a running server may have replaced it during the first verification."""
    again = plan_folder(job.directory, "", sealed_only=True).jobs
    job = next((one for one in again if one.base_offset == job.base_offset), job)
    return job, verify_segment(job, None, job.size_bytes + 1)


# --- output


def _print(outcome: Outcome, *, is_all: bool) -> None:
    tallies = sorted(outcome.topics.values(), key=lambda tally: (-tally.damage, -tally.notes, tally.topic))
    shown = tallies if is_all else tallies[:TOPICS_SHOWN_MAX]
    rows = [*sorted(shown, key=lambda tally: tally.topic), outcome.total()]
    _print_table([[_cell(getattr(tally, name)) for name in _COLUMNS] for tally in rows])
    if len(shown) < len(tallies):
        print(f"{len(tallies) - len(shown):,} more topics are included in the total only; --all shows them")
    _print_findings(outcome, is_all=is_all)
    for chain in outcome.chains:
        print(f"\n{chain.text()}")
    total = outcome.total()
    rate = size_text(int(total.bytes / max(outcome.seconds, 0.001)))
    print(f"\n{size_text(total.bytes)} in {_seconds_text(outcome.seconds)}, {rate}/s: ", end="")
    notes = f", {_counted(total.notes, 'note')}" if total.notes else ""
    if outcome.is_sound:
        print(f"sound{notes}")
    else:
        print(f"DAMAGED, {_counted(total.damage + outcome.left_out, 'place')}{notes}")


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration_text(seconds)


def _cell(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else value


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    table = [list(_COLUMNS), *rows]
    widths = [max(len(line[column]) for line in table) for column in range(len(_COLUMNS))]
    for line in table:
        name = line[0].ljust(widths[0])
        print("  ".join([name, *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]))


def _print_findings(outcome: Outcome, *, is_all: bool) -> None:
    for is_sound, title in ((False, "damage"), (True, "notes")):
        findings = [finding for finding in outcome.findings if finding.is_sound is is_sound]
        if not findings:
            continue
        kinds = Counter(finding.kind.value for finding in findings)
        print(f"\n{title}: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common()))
        for finding in findings if is_all else findings[:FINDINGS_SHOWN_MAX]:
            print(f"  {finding.path}: {_location(finding)}{finding.kind}: {finding.reason}")
        left = 0 if is_all else len(findings) - FINDINGS_SHOWN_MAX
        if left > 0:
            print(f"  and {left:,} more; --all shows them")


def _location(finding: Finding) -> str:
    parts = []
    if finding.position is not None:
        size = f", {finding.size_bytes} bytes" if finding.size_bytes else ""
        parts.append(f"position {finding.position}{size}")
    if finding.offset is not None:
        last = finding.end_offset - 1 if finding.end_offset is not None else finding.offset
        parts.append(f"offset {finding.offset}" if last <= finding.offset else f"offsets {finding.offset}..{last}")
    return ", ".join(parts) + ": " if parts else ""


def _plain(outcome: Outcome, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "data_dirs": [str(data_dir) for data_dir in options.data_dirs],
        "is_live": options.live,
        "is_sound": outcome.is_sound,
        "seconds": round(outcome.seconds, 3),
        "total": {name: value for name, value in asdict(outcome.total()).items() if name != "topic"},
        "topics": [asdict(tally) for _, tally in sorted(outcome.topics.items())],
        "kinds": Counter(finding.kind.value for finding in outcome.findings),
        "findings": [asdict(finding) for finding in outcome.findings],
        "findings_left_out": outcome.left_out,
        "audit_chains": [chain.plain() for chain in outcome.chains],
    }
