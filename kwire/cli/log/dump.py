"""kwire log dump: prints files of a data directory. Batches are decoded as in batches.py."""

import argparse
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from construct import ConstructError
from msgspec.structs import asdict

from kwire.cli.framework.errors import CannotRun
from kwire.cli.framework.output import is_data, print_line
from kwire.cli.framework.printable import printable
from kwire.cli.framework.runner import print_error
from kwire.cli.log.batches import Region, batches_of, decoded_records
from kwire.cli.log.text import batch_line, plain_bytes, record_line, region_line
from storage.data_directory.folder_list import FOLDERS_NAME
from storage.data_directory.unclean_logs import WRITTEN_NAME
from storage.disk.files import Files
from storage.disk.journal import decode_journal
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from storage.errors import JournalDamaged, StorageError
from storage.log.producers import ProducerStates
from storage.log.quarantine import QUARANTINE_NAME
from storage.log.segment_replacement import NEW_SUFFIX, REPLACEMENT_NAME
from storage.recovery.checkpoint import CHECKPOINT_NAME, decode_checkpoint
from storage.recovery.verify_folder import partition_of
from storage.segment.index import ENTRY, SparseIndex, seal_timestamp
from storage.segment.txn_index import decode_entries, decode_file

PRINTED, DAMAGED = 0, 1
_NO_END = 2**63


class CannotPrint(CannotRun):
    """The file cannot be printed. The message gives the reason."""


def dump(options: argparse.Namespace) -> int:
    path: Path = options.path
    if not path.exists():
        raise CannotPrint(f"{path} does not exist")
    if path.is_dir():
        folder = _folder(path, options)
        return _Batches(options, folder.name).run(sorted(folder.glob("*.log")))
    name = path.name.removesuffix(NEW_SUFFIX)
    if name.endswith(".log"):
        if not name.removesuffix(".log").isdecimal():
            raise CannotPrint(
                f"{path}: not a segment file: its name must be an offset, such as 00000000000000000000.log"
            )
        return _Batches(options, path.resolve().parent.name).run([path])
    is_index = name.endswith((".index", ".txnindex"))
    printer = _SMALL_FILES.get(Path(name).suffix if is_index else name)
    if printer is None:
        raise CannotPrint(f"{path}: not a file that kwire log dump can print; see kwire log dump --help")
    return printer(path, options)


def _folder(path: Path, options: argparse.Namespace) -> Path:
    if options.topic is None:
        if options.partition is not None:
            raise CannotPrint("--partition needs --topic")
        if partition_of(path.resolve().name) is None or not any(path.glob("*.log")):
            raise CannotPrint(f"{path} is not a partition folder: name the partition with --topic and --partition")
        return path.resolve()
    folder = path / f"{options.topic}-{options.partition or 0}"
    if not folder.is_dir():
        raise CannotPrint(f"{path} has no folder of partition {folder.name}")
    return folder


# --- batches


class _Batches:
    """Prints those batches of the segments that the options select."""

    def __init__(self, options: argparse.Namespace, folder: str) -> None:
        self.options = options
        self.is_data = is_data(options)
        self.is_records: bool = options.records
        self.first: int = options.from_offset
        self.last: int = options.to_offset if options.to_offset is not None else _NO_END
        self.left: int = options.limit if options.limit is not None else _NO_END
        self.topic_partition = partition_of(folder)
        self.is_damaged = False

    def run(self, paths: list[Path]) -> int:
        ends = [int(after.name.split(".")[0]) for _, after in pairwise(paths)]
        for path, end in zip(paths, [*ends, _NO_END], strict=True):
            if end <= self.first:
                continue
            if not self.segment(path):
                break
        return DAMAGED if self.is_damaged else PRINTED

    def segment(self, path: Path) -> bool:
        """Print one segment. Return whether the next segment must be printed, too."""
        is_named = False
        for region in batches_of(path, self.first):
            self.is_damaged |= region.is_damage
            if region.batch is None:
                if self.left:
                    self.print_region(path, region)
                continue
            header = region.batch.header
            if header.base_offset > self.last or self.left <= 0:
                return False
            if header.base_offset + header.last_offset_delta < self.first:
                continue
            if not is_named and not self.is_data:
                print(path)
                is_named = True
            self.print_batch(path, region)
        return self.left > 0

    def print_region(self, path: Path, region: Region) -> None:
        if self.is_data:
            print_line({"file": str(path), "position": region.position, "problem": region.problem}, self.options)
        else:
            print(region_line(region))

    def print_batch(self, path: Path, region: Region) -> None:
        records, problem = self.records(region) if self.is_records else (None, None)
        if records is None:
            self.left -= 1
        if self.is_data:
            print_line(self.plain(path, region, records, problem), self.options, plain_bytes)
            return
        print(batch_line(region))
        for record in records or ():
            print(record_line(record))
        if problem is not None:
            print(f"    {problem}")

    def records(self, region: Region) -> tuple[list[dict[str, Any]] | None, str | None]:
        try:
            found = decoded_records(
                region.batch, is_group_topic=self.topic_partition is not None and _is_group(self.topic_partition[0])
            )
        except (ConstructError, StorageError) as error:
            self.is_damaged = True
            return None, f"the records cannot be read: {printable(str(error).splitlines()[0])}"
        wanted = [one for one in found if self.first <= one["offset"] <= self.last][: self.left]
        self.left -= len(wanted)
        return wanted, None

    def plain(
        self, path: Path, region: Region, records: list[dict[str, Any]] | None, problem: str | None
    ) -> dict[str, Any]:
        header = {name: value for name, value in region.batch.header.items() if not name.startswith("_")}
        plain = {"file": str(path), "position": region.position, "is_intact": region.batch.is_intact, **header}
        if self.topic_partition is not None:
            topic, partition = self.topic_partition
            plain = {"topic": topic, "partition": partition, **plain}
        if records is not None:
            plain["records"] = [
                {**one, "key": plain_bytes(one["key"]), "value": plain_bytes(one["value"]), "headers": _headers(one)}
                for one in records
            ]
        if problem is not None:
            plain["problem"] = problem
        return plain


def _headers(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": plain_bytes(value)} for key, value in record["headers"]]


def _is_group(topic: str) -> bool:
    return topic == "__consumer_offsets"


# --- the small files


def _dump_index(path: Path, options: argparse.Namespace) -> int:
    data = path.read_bytes()
    base_offset = int(path.name.split(".")[0])
    seal = data[-ENTRY.size :] if len(data) >= ENTRY.size and len(data) % ENTRY.size == 0 else None
    sealed_timestamp = seal_timestamp(seal)
    index = SparseIndex.decode(base_offset, data)
    for at in range(len(index) if options.limit is None else min(len(index), options.limit)):
        entry = {
            "offset": base_offset + index.offsets[at],
            "position": index.positions[at],
            "max_timestamp_before": index.timestamps[at],
        }
        _print(entry, "  ".join(f"{name} {value}" for name, value in entry.items()), options)
    if sealed_timestamp is not None:
        facts = {"seal": True, "entries": len(index), "max_timestamp": sealed_timestamp}
        _print(facts, f"seal over {len(index)} entries  max_timestamp {sealed_timestamp}", options)
    unread = len(data) - ENTRY.size * (len(index) + (sealed_timestamp is not None))
    if unread:
        print_error(f"{path}: {unread} bytes after the last valid entry")
    return DAMAGED if unread else PRINTED


def _print(value: Any, text: str, options: argparse.Namespace) -> None:
    if is_data(options):
        print_line(value, options)
    else:
        print(text)


def _dump_txn_index(path: Path, options: argparse.Namespace) -> int:
    decoded = decode_file(path.read_bytes())
    if decoded is None:
        print_error(f"{path}: not a complete index of aborted transactions")
        return DAMAGED
    size_bytes, entries = decoded
    for entry in entries if options.limit is None else entries[: options.limit]:
        facts = entry._asdict()
        _print(facts, "  ".join(f"{name} {value}" for name, value in facts.items()), options)
    facts = {"seal": True, "entries": len(entries), "segment_bytes": size_bytes}
    _print(facts, f"seal over {len(entries)} entries  segment_bytes {size_bytes}", options)
    return PRINTED


def _dump_checkpoint(path: Path, options: argparse.Namespace) -> int:
    checkpoint = decode_checkpoint(path.read_bytes())
    if checkpoint is None:
        print_error(f"{path}: not a complete checkpoint of a supported version")
        return DAMAGED
    facts = asdict(checkpoint)
    facts["epochs"] = [{"epoch": epoch, "start_offset": start} for epoch, start in checkpoint.epochs]
    producers = ProducerStates.decode(checkpoint.producers)
    facts["producers"] = {"count": len(producers), "bytes": len(checkpoint.producers)}
    facts["open_transactions"] = [
        {"producer_id": producer_id, "first_offset": first_offset}
        for producer_id, first_offset in producers.open_first_offsets.items()
    ]
    facts["aborted"] = [entry._asdict() for entry in decode_entries(checkpoint.aborted)]
    if is_data(options):
        print_line(facts, options)
    else:
        for name, value in facts.items():
            print(f"{name:<18}{value if isinstance(value, bool | int | str) else json.dumps(value)}")
    return PRINTED


def _dump_json(path: Path, options: argparse.Namespace) -> int:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        print_error(f"{path}: {error}")
        return DAMAGED
    _print(content, json.dumps(content, indent=2), options)
    return PRINTED


def _dump_text(path: Path, options: argparse.Namespace) -> int:
    for line in path.read_bytes().decode(errors="replace").splitlines():
        _print(line, printable(line), options)
    return PRINTED


def _dump_journal(path: Path, options: argparse.Namespace) -> int:
    data = Files().read_file(str(path)) or b""
    try:
        records, end = decode_journal(str(path), data)
    except JournalDamaged as error:
        print_error(f"{error}")
        return DAMAGED
    for record in _limited(records, options.limit):
        # Each record is one JSON object, printed as it is stored.
        print(printable(record.decode(errors="replace")))
    if end < len(data):
        print_error(f"{path}: {len(data) - end} bytes at position {end} are an unfinished commit")
    return PRINTED


def _limited(records: list[bytes], limit: int | None) -> Iterator[bytes]:
    return iter(records if limit is None else records[:limit])


_SMALL_FILES: dict[str, Callable[[Path, argparse.Namespace], int]] = {
    ".index": _dump_index,
    ".txnindex": _dump_txn_index,
    CHECKPOINT_NAME: _dump_checkpoint,
    QUARANTINE_NAME: _dump_json,
    REPLACEMENT_NAME: _dump_json,
    WRITTEN_NAME: _dump_text,
    FOLDERS_NAME: _dump_text,
    JOURNAL_NAME: _dump_journal,
    MIRROR_NAME: _dump_journal,
}
