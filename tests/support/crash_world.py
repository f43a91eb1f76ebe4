"""A machine with a few partitions on a simulated disk, which lives at random and crashes anywhere.

The world does what the broker does: producers append, sync rounds acknowledge, segments roll, old ones go, others are
rewritten, and work in the background is done at some time, in some order, or never. A ledger per partition knows what
was promised; after each crash it is asked whether the promise holds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random

from storage.batch.markers import build_marker
from storage.batch.record_batch import check_batch, parse_header
from storage.data_directory.store import LOCK_NAME, LogStore
from storage.errors import DiskFailure, FileSystemFailed, StorageFailed, disk_errors
from storage.log.log import Log
from storage.log.producers import WINDOW_BATCHES
from storage.log.settings import LogSettings
from storage.log.syncing import SYNC_FAILED_NAME, sync_all
from storage.segment.segment import LogSegment
from tests.support.batches import NOW_MS, make_batch
from tests.support.crash_ledger import Ledger, Sent, SimulatedProducer
from tests.support.rewriting import batches_of, write_replacement
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles
from tests.support.simulated_nodes import SimulatedFile, SimulatedFolder
from tests.support.transactional import TransactionalProducer

DATA_DIR = "/data"
TOPIC_ID = bytes(range(16))
PARTITIONS = 3
TRANSACTIONAL_PRODUCERS = (11, 12, 13)
# Enough to send everything again that a run can have left, five batches of a producer at a time.
ROUNDS_MAX = 20
JOBS_MAX = 200


@dataclass(frozen=True)
class Plan:
    """What one run does; everything else is chance."""

    steps: int = 40
    lives: int = 3
    crash_within_calls: int = 420
    is_data_dir_made: bool = True
    has_cuts: bool = True
    has_sync_failures: bool = False
    # After a failed sync the same machine starts again, with a cache that shows what the disk does not have.
    has_restarts_on_lies: bool = False
    has_full_disks: bool = False
    # Some producers write transactions, which end with markers, or never.
    has_transactions: bool = False
    make_files: Callable[[SimulatedDisk], SimulatedFiles] = SimulatedFiles


class CrashWorld:
    """See the module's words. A run is repeated by its seed."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.plan = plan or Plan()
        self.chance = Random(seed)
        self.settings = LogSettings(
            segment_bytes=self.chance.choice([2_500, 6_000, 20_000]),
            index_interval_bytes=self.chance.choice([1, 300, 4096]),
        )
        self.ledgers = [Ledger(f"t-{partition}") for partition in range(PARTITIONS)]
        self.disk = SimulatedDisk()
        if self.plan.is_data_dir_made:
            SimulatedFiles(self.disk).makedirs(DATA_DIR)
            SimulatedFiles(self.disk).create(f"{DATA_DIR}/{LOCK_NAME}")
            SimulatedFiles(self.disk).syncfs("/")
            self.disk.call_count = 0
        self.jobs: list[Callable[[], None]] = []
        self.held: list[tuple[memoryview, bytes]] = []
        self.serial = 0
        self.crash_count = 0
        self.call_count = 0
        self.acknowledged_count = 0
        self.is_settled = False

    # --- lives

    def run(self) -> None:
        for _ in range(self.plan.lives):
            self.disk.crash_at = self.disk.call_count + self.chance.randint(1, self.plan.crash_within_calls)
            with suppress(Crashed):
                self.live()
            self.crash(is_power_cut=self.chance.random() < 0.6)
        self.finish()

    def live(self) -> None:
        self.start()
        for _ in range(self.plan.steps):
            self.step()

    def start(self) -> None:
        self.open_logs()
        for log, ledger in zip(self.logs, self.ledgers, strict=True):
            ledger.check(log)
            ledger.acknowledge(log.synced_offset)
            self.send_again(log, ledger)
        if self.plan.has_sync_failures and self.chance.random() < 0.5:
            self.disk.fail_next(
                self.chance.choice(["fdatasync", "fsync", "fsync_dir", "syncfs"]), after=self.chance.randint(0, 12)
            )

    def open_logs(self) -> None:
        self.files = self.plan.make_files(self.disk)
        self.jobs = []
        self.store = LogStore(DATA_DIR, self.files, self._later)
        self.store.lock()
        self.logs = [self.store.open_log("t", partition, TOPIC_ID, self.settings) for partition in range(PARTITIONS)]

    def _later(self, job: Callable[[], None]) -> None:
        assert len(self.jobs) < JOBS_MAX
        self.jobs.append(job)

    def crash(self, *, is_power_cut: bool) -> None:
        """The process is gone, wherever it stands; with the power, what was not synced may be gone too."""
        self.check_held()
        self.crash_count += 1
        self.call_count += self.disk.call_count
        if is_power_cut or (self.disk.is_lying and not (self.plan.has_restarts_on_lies and self.is_lie_known())):
            self.disk = self.disk.after_power_cut(self.chance)
        else:
            if self.chance.random() < 0.3:
                for file in self.disk.files():
                    file.evict_lost(self.chance.sample(sorted(file.lost), self.chance.randint(0, len(file.lost))))
            self.disk.restarted()
        self.disk.call_count = 0
        self.disk.free_bytes = None
        for ledger in self.ledgers:
            ledger.crashed()

    def is_lie_known(self) -> bool:
        """Whether each log with lost pages was told so; a process that is killed in that very moment was not."""
        if self.disk.find(f"{DATA_DIR}/{SYNC_FAILED_NAME}") is not None:
            return True
        for ledger in self.ledgers:
            folder = self.disk.find(f"{DATA_DIR}/{ledger.name}")
            if isinstance(folder, SimulatedFolder) and SYNC_FAILED_NAME not in folder.names:
                for name, node in folder.names.items():
                    if isinstance(node, SimulatedFile) and node.lost and not name.endswith(".new"):
                        return False
        return True

    def finish(self) -> None:
        """A last life without trouble: everything that was sent gets in, and a clean stop and start changes nothing."""
        self.disk.crash_at = None
        self.disk.free_bytes = None
        self.start()
        self.disk.restarted()
        for _ in range(ROUNDS_MAX):
            self.sync(is_quiet=True)
            for log, ledger in zip(self.logs, self.ledgers, strict=True):
                self.send_again(log, ledger)
            if self.is_everything_synced():
                break
        for log, ledger in zip(self.logs, self.ledgers, strict=True):
            assert log.synced_offset == log.log_end_offset, f"{ledger.name}: a sync left something behind"
            assert not any(producer.unplaced() for producer in ledger.producers), f"{ledger.name}: a batch got no place"
        self.store.close()
        self.run_jobs(len(self.jobs))
        if self.chance.random() < 0.5:
            self.disk = self.disk.after_power_cut(self.chance)
        self.disk.restarted()
        self.start()
        assert self.store.was_clean, "a clean stop left no sign of it"
        for ledger in self.ledgers:
            self.acknowledged_count += len(ledger.promised)

    def is_everything_synced(self) -> bool:
        """Whether another round would send and sync nothing."""
        return all(log.synced_offset == log.log_end_offset for log in self.logs) and not any(
            producer.unplaced() for ledger in self.ledgers for producer in ledger.producers
        )

    def spoil(self) -> bool:
        """After a life without a crash: change one bit of a promised batch, restart, and see what is lost by it."""
        for log, ledger in zip(self.logs, self.ledgers, strict=True):
            self.place(log, ledger, bytes(self.batch(-1, -1)))  # or a clean stop before this would be trusted
        self.sync(is_quiet=True)
        self.check_held()
        for ledger in self.ledgers:
            ledger.crashed()
        log, ledger = self.chance.choice(list(zip(self.logs, self.ledgers, strict=True)))
        # In the segment that every start after a power cut walks; the others are the scrub's to look at.
        walked_from = max(self.segment_starts(log), default=0)
        promised = [base_offset for base_offset in sorted(ledger.promised) if base_offset >= walked_from]
        if not promised:
            return False
        base_offset = self.chance.choice(promised)
        batch = ledger.promised[base_offset]
        # The leader epoch is the one field whose change cannot be seen.
        at = self.chance.choice([number for number in range(len(batch)) if number not in range(12, 16)])
        folder = self.disk.folder(f"{DATA_DIR}/{ledger.name}")
        for name, node in folder.names.items():
            if name.endswith(".log") and isinstance(node, SimulatedFile):
                position = bytes(node.buffers[-1][: node.size]).find(batch)
                if position >= 0:
                    node.flip_bit(position + at, self.chance.randrange(8))
        self.crash(is_power_cut=True)
        self.open_logs()
        for log, other in zip(self.logs, self.ledgers, strict=True):
            if other is ledger:
                other.check_spoiled(log, base_offset)
            else:
                other.check(log)
        return True

    # --- one step

    def step(self) -> None:
        kinds = ["append"] * 12 + ["sync"] * 6 + ["jobs"] * 4 + ["read", "write_back", "roll", "retain", "compact"]
        if self.chance.random() < 0.3:
            kinds += ["stop", "truncate"] if self.plan.has_cuts else ["stop"]
        if self.plan.has_full_disks:
            kinds += ["fill", "short"]
        partition = self.chance.randrange(PARTITIONS)
        log, ledger = self.logs[partition], self.ledgers[partition]
        kind = self.chance.choice(kinds)
        if kind == "append":
            self.append(log, ledger)
        elif kind == "sync":
            self.sync()
        elif kind == "jobs":
            self.run_jobs(self.chance.randint(1, 4))
        elif kind == "read":
            self.hold(log)
        elif kind == "write_back":
            self.disk.write_back(self.chance)
        elif kind == "fill":
            self.disk.free_bytes = self.chance.choice([None, 0, 4096, 20_000])
        elif kind == "short":
            self.disk.shorten_next_write(self.chance.randint(1, 2_000), is_error=self.chance.random() < 0.5)
        elif kind == "stop":
            self.stop()
        elif log.is_writable:
            self.change(kind, log, ledger)

    def change(self, kind: str, log: Log, ledger: Ledger) -> None:
        try:
            if kind == "roll":
                log.roll(NOW_MS)
            elif kind == "retain":
                self.retain(log, ledger)
            elif kind == "compact":
                self.compact(log, ledger)
            else:
                self.truncate(log, ledger)
        except DiskFailure:
            self.meet_failure()

    def meet_failure(self) -> None:
        """The disk refused something: fine where it was told to."""
        assert self.plan.has_full_disks or self.plan.has_sync_failures, "a call failed on a disk without faults"

    # --- producing

    def append(self, log: Log, ledger: Ledger) -> None:
        if self.plan.has_transactions and self.chance.random() < 0.6:
            self.place(log, ledger, bytes(self.transactional_batch(log)))
            return
        if self.chance.random() < 0.2:
            batch = self.batch(-1, -1)
            self.place(log, ledger, bytes(batch))
            return
        producer = self.chance.choice(ledger.producers)
        if self.send_unplaced(log, ledger, producer) and producer.has_room():
            batch = self.batch(producer.producer_id, producer.next_sequence)
            sent = Sent(bytes(batch), producer.next_sequence)
            producer.next_sequence += parse_header(batch).record_count
            producer.sent.append(sent)
            self.send(log, ledger, sent)

    def batch(self, producer_id: int, base_sequence: int) -> memoryview:
        self.serial += 1
        size = self.chance.choice([10, 300, 1_000, 5_000])
        value = f"{self.serial}.".encode() + bytes([65 + self.serial % 26]) * self.chance.randint(0, size)
        return make_batch(
            self.chance.choice([1, 1, 3]),
            value=value,
            timestamp_ms=NOW_MS + self.serial,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=base_sequence,
        )

    def transactional_batch(self, log: Log) -> memoryview:
        """The next batch of a transaction, or its end. Nobody sends these again: they take what the log knows."""
        producer_id = self.chance.choice(TRANSACTIONAL_PRODUCERS)
        state = log.producers.get(producer_id)
        epoch, sequence = (state.epoch, state.next_sequence) if state is not None else (0, 0)
        if self.chance.random() < 0.4:
            epoch += self.chance.random() < 0.3
            return memoryview(bytearray(build_marker(producer_id, epoch, 0, self.chance.random() < 0.5, NOW_MS)))
        self.serial += 1
        value = f"{self.serial}.".encode() + bytes(self.chance.choice([10, 300, 1_000]))
        return TransactionalProducer(producer_id, epoch, sequence).batch([value] * self.chance.choice([1, 1, 3]))

    def place(self, log: Log, ledger: Ledger, template: bytes) -> tuple[int, int] | None:
        """(first, last) offset of the batch, or None when the log refused it."""
        batch = memoryview(bytearray(template))
        header = parse_header(batch)
        if not header.is_control:
            check_batch(batch)
        try:
            told = log.append(batch, header, max(log.epochs.latest, 0), NOW_MS)
        except DiskFailure:
            self.meet_failure()
            ledger.written.add(bytes(batch))
            return None
        except Crashed:
            ledger.written.add(bytes(batch))  # it may be in the file, with the offset it was to get
            raise
        if not told.is_duplicate:
            ledger.placed(bytes(batch))
        return told.base_offset, told.last_offset

    def send(self, log: Log, ledger: Ledger, sent: Sent) -> bool:
        offsets = self.place(log, ledger, sent.template)
        if offsets is None:
            return False
        sent.base_offset, sent.last_offset = offsets
        return True

    def send_unplaced(self, log: Log, ledger: Ledger, producer: SimulatedProducer) -> bool:
        """What a log refused earlier comes first; True when nothing is left of it."""
        while (sent := producer.unplaced()) is not None:
            if not producer.has_room() or not self.send(log, ledger, sent):
                return False
        return True

    def send_again(self, log: Log, ledger: Ledger) -> None:
        """Clients repeat what they have no answer for, in order; what survived is answered, not stored twice."""
        for producer in ledger.producers:
            self.send_unplaced(log, ledger, producer)

    # --- syncing

    def sync(self, *, is_quiet: bool = False) -> None:
        """One round of the node, with appends and background work going on meanwhile unless it is to be quiet."""
        begun = []
        for log in self.logs:
            sync = log.begin_sync()
            if sync is not None:
                begun.append((log, sync))
        if not is_quiet and self.chance.random() < 0.3:
            self.busy()
        errors = sync_all(self.files, [DATA_DIR], [sync for _, sync in begun])
        if not is_quiet and self.chance.random() < 0.3:
            self.busy()
        for (log, sync), error in zip(begun, errors, strict=True):
            if error is None:
                sync.finish()
            else:
                assert self.plan.has_sync_failures, str(error)
                assert isinstance(error, StorageFailed)
                sync.fail(error)
                assert not log.is_writable
            if isinstance(error, FileSystemFailed):
                for other in self.logs:
                    other.poison(error)
        for log, ledger in zip(self.logs, self.ledgers, strict=True):
            if log.is_writable:
                self.acknowledge(log, ledger)

    def acknowledge(self, log: Log, ledger: Ledger) -> None:
        ledger.acknowledge(log.synced_offset)

    def busy(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            partition = self.chance.randrange(PARTITIONS)
            self.append(self.logs[partition], self.ledgers[partition])
        self.run_jobs(self.chance.randint(0, 2))

    def run_jobs(self, count: int) -> None:
        """Threads take jobs in order, but which of them gets on first is open."""
        for _ in range(min(count, len(self.jobs))):
            self.jobs.pop(self.chance.randrange(min(2, len(self.jobs))))()

    # --- upkeep

    def retain(self, log: Log, ledger: Ledger) -> None:
        if log.log_start_offset >= log.synced_offset:
            return
        offset = self.chance.choice(
            [self.chance.randint(log.log_start_offset, log.synced_offset), *self.segment_starts(log)[-2:]]
        )
        offset = min(max(offset, log.log_start_offset), log.synced_offset)
        ledger.advance(offset)
        log.advance_log_start_offset(offset)
        for segment in log.drop_segments():
            self._later(partial(self.delete, segment))

    def segment_starts(self, log: Log) -> list[int]:
        return [segment.base_offset for segment in log.segments()]

    def compact(self, log: Log, ledger: Ledger) -> None:
        """Rewrite a few neighbours without some of their batches."""
        segments = list(log.segments())[:-1]
        ready = [segment for segment in segments if segment.is_sealed and not segment.is_seal_pending]
        if not ready or ready != segments[: len(ready)]:
            return
        removed = ready[: self.chance.randint(1, len(ready))]
        protected = {sent.base_offset for producer in ledger.producers for sent in producer.sent[-WINDOW_BATCHES:]}
        kept: list[bytes] = []
        gone: list[bytes] = []
        for segment in removed:
            for view in batches_of(segment):
                header = parse_header(view)
                base_offset = header.base_offset
                # The last batch stays, so that every offset up to the next segment is covered.
                is_last = header.last_offset + 1 == removed[-1].next_offset
                # Those of transactions stay or go by rules of their own, which others look after.
                if header.is_transactional or is_last or base_offset in protected or self.chance.random() < 0.5:
                    kept.append(bytes(view))
                else:
                    gone.append(bytes(view))
        if not kept:
            return
        with disk_errors("write a new segment"):
            aborted = [entry for segment in removed for entry in log._aborted_of(segment)]
            interval = self.settings.index_interval_bytes
            new = write_replacement(self.files, log.directory, removed, kept, interval, aborted)
        ledger.compacted(gone)
        swap = log.begin_replacement(removed, [new], removed[-1].next_offset)
        if self.chance.random() < 0.3:
            self.busy()
        try:
            swap.run()
        except DiskFailure as error:
            swap.fail(error)
            raise
        if self.chance.random() < 0.3:
            self.busy()
        for segment in swap.finish():
            self._later(partial(self.delete, segment))

    def delete(self, segment: LogSegment) -> None:
        try:
            segment.delete_files()
        except DiskFailure:
            self.meet_failure()

    def truncate(self, log: Log, ledger: Ledger) -> None:
        # Replicas agree on what was compacted, so a cut goes through none of it, or takes all there is.
        offset = self.chance.randint(max(log.log_start_offset, log.clean_upto), log.log_end_offset)
        if self.chance.random() < 0.1:
            offset = log.log_start_offset
        ledger.truncate(offset)
        try:
            log.truncate(offset)
        except DiskFailure:
            if log.is_writable:
                ledger.not_truncated(log)
            raise
        assert log.log_end_offset <= offset
        assert log.synced_offset <= log.log_end_offset

    def stop(self) -> None:
        """A clean stop, as far as the disk allows it, and the next start."""
        self.check_held()
        try:
            self.store.close()
        except DiskFailure:
            self.meet_failure()
        self.run_jobs(len(self.jobs))
        if self.disk.is_lying:
            self.crash(is_power_cut=False)
        for ledger in self.ledgers:
            ledger.crashed()
        self.disk.repair()
        self.disk.free_bytes = None
        self.start()

    # --- slices that readers hold

    def hold(self, log: Log) -> None:
        if log.log_start_offset < log.log_end_offset:
            offset = self.chance.randint(log.log_start_offset, log.log_end_offset - 1)
            read = log.read(offset, 10_000, log.log_end_offset)
            self.held.append((read.view, bytes(read.view)))
            del self.held[:-10]

    def check_held(self) -> None:
        for view, expected in self.held:
            assert view == expected, "a slice changed under its reader"
        self.held.clear()
