"""The kinds of files that a data directory has, where one of each is, and how to find out what became of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from storage.data_directory.disk_reserve import RESERVE_NAME
from storage.data_directory.folder_list import FOLDERS_NAME
from storage.data_directory.partition_metadata import METADATA_NAME
from storage.data_directory.store import CLEAN_NAME, LOCK_NAME
from storage.data_directory.unclean_logs import WRITTEN_NAME
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from storage.log.quarantine import QUARANTINE_NAME
from storage.recovery.checkpoint import CHECKPOINT_NAME
from storage.segment.reading import txn_index_name
from storage.segment.segment import index_name, segment_name
from tests.support.damage.faults import Fault
from tests.support.damage.outcomes import Outcome
from tests.support.damage.probes import Probe
from tests.support.damage.world import (
    CELLS,
    CLOSED,
    EVENT_FILE_KINDS,
    FILES_DIR,
    FIRST,
    IN_USE,
    WITH_ABORT,
    event_topic_of,
    file_topic_of,
    room_of,
)


class Kind(NamedTuple):
    """``find`` names the file of a fault below the server's directory; ``probe`` asks what became of it.

    Files of kinds with the same ``start`` are damaged together: they have nothing to do with each other. Each fault
    of the start ``one`` has a file of its own, so all of them are damaged at once.
    """

    name: str
    start: str
    find: Callable[[Path, Fault], Path]
    probe: Callable[[Probe, Fault], Outcome]
    faults: tuple[Fault, ...] = tuple(Fault)


CELL_KINDS: Final[tuple[str, ...]] = (
    "closed segment",
    "first segment",
    "segment in use",
    "index of a closed segment",
    "index of the segment in use",
    "transaction index",
    "checkpoint",
    "quarantine list",
    "partition.metadata",
    "partition folder",
)
_CELL_FILES: Final = (
    segment_name(CLOSED),
    segment_name(FIRST),
    segment_name(IN_USE),
    index_name(CLOSED),
    index_name(IN_USE),
    txn_index_name(WITH_ABORT),
    CHECKPOINT_NAME,
    QUARANTINE_NAME,
    METADATA_NAME,
    "",
)
_FAULT_COUNT: Final = len(Fault)
# A partition for each fault of each kind, and one that nothing happens to.
CELL_COUNT: Final = len(CELL_KINDS) * _FAULT_COUNT + 1
QUARANTINED_KIND: Final = CELL_KINDS.index("quarantine list")
QUARANTINED_CELLS: Final = range(QUARANTINED_KIND * _FAULT_COUNT, (QUARANTINED_KIND + 1) * _FAULT_COUNT)


def _cell(kind: int, fault: Fault) -> int:
    return kind * _FAULT_COUNT + list(Fault).index(fault)


def _of_cells(number: int) -> Kind:
    def find(directory: Path, fault: Fault) -> Path:
        return directory / "data" / f"{CELLS}-{_cell(number, fault)}" / _CELL_FILES[number]

    def probe(asked: Probe, fault: Fault) -> Outcome:
        return asked.cell(_cell(number, fault), was_damaged_before=number == QUARANTINED_KIND)

    faults = (Fault.REMOVED,) if not _CELL_FILES[number] else tuple(Fault)
    return Kind(CELL_KINDS[number], "one", find, probe, faults)


def _last_segment(folder: Path) -> Path:
    return max(folder.glob("*.log"))


def _shard(directory: Path, topic: str, fault: Fault) -> Path:
    return _last_segment(directory / "data" / f"{topic}-{list(Fault).index(fault)}")


def _in_data(name: str, start: str) -> Kind:
    return Kind(name, start, lambda directory, _: directory / "data" / name, lambda asked, _: asked.everything())


def _event_file(name: str, find: Callable[[str], str]) -> Kind:
    """A file that the server makes for a topic of the event store; each fault has a topic of its own."""

    def path(directory: Path, fault: Fault) -> Path:
        return next((directory / FILES_DIR).glob(find(file_topic_of(name, fault))), directory / "none")

    return Kind(name, "one", path, lambda asked, fault: asked.event_files(file_topic_of(name, fault)))


KINDS: Final[tuple[Kind, ...]] = (
    *map(_of_cells, range(len(CELL_KINDS))),
    Kind(
        "segment of a room",
        "one",
        lambda directory, fault: _last_segment(directory / "data" / f"{room_of(fault)}-0"),
        lambda asked, fault: asked.room(fault),
    ),
    Kind(
        "segment of an event topic",
        "one",
        lambda directory, fault: _last_segment(directory / "data" / f"{event_topic_of(fault)}-0"),
        lambda asked, fault: asked.event_topic(fault),
    ),
    Kind(
        "segment of __consumer_offsets",
        "one",
        lambda directory, fault: _shard(directory, "__consumer_offsets", fault),
        lambda asked, fault: asked.group(fault),
    ),
    Kind(
        "segment of __transaction_state",
        "one",
        lambda directory, fault: _shard(directory, "__transaction_state", fault),
        lambda asked, fault: asked.transactional_id(fault),
    ),
    Kind(
        "segment of __events",
        "node",
        lambda directory, _: _last_segment(directory / "data" / "__events-0"),
        lambda asked, _: asked.all_events(),
    ),
    Kind(
        "segment of __webhooks",
        "node",
        lambda directory, _: _last_segment(directory / "data" / "__webhooks-0"),
        lambda asked, _: asked.webhooks(),
    ),
    _event_file(EVENT_FILE_KINDS[0], lambda topic: f"data/{topic}/*/*/{topic}-1.json"),
    _event_file(EVENT_FILE_KINDS[1], lambda topic: f"config/{topic}.json"),
    _event_file(EVENT_FILE_KINDS[2], lambda topic: f".kwire/positions/{topic}.json"),
    Kind(
        "owner of the event files",
        "owner",
        lambda directory, _: directory / FILES_DIR / ".kwire" / "owner.json",
        lambda asked, _: asked.all_event_files(),
    ),
    _in_data(LOCK_NAME, "begin"),
    _in_data(CLEAN_NAME, "begin"),
    _in_data(WRITTEN_NAME, "begin"),
    _in_data(FOLDERS_NAME, "begin"),
    _in_data(RESERVE_NAME, "begin"),
    _in_data(JOURNAL_NAME, "journal"),
    _in_data(MIRROR_NAME, "begin"),
)
