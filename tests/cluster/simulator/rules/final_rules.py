"""Rules about the end of a run: when the cluster has settled, everything that was acknowledged is read back."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.entries import FIRST_POSITION, INDEX_MAX, Kind, Position
from kwire.cluster.core.messages import SegmentId
from kwire.cluster.segment_files.partition_log import EntryDamaged
from tests.cluster.simulator.rules import check
from tests.cluster.simulator.rules.partition_rules import check_i22_log
from tests.cluster.simulator.stream_kinds import is_partition

if TYPE_CHECKING:
    from tests.cluster.simulator.simulation import Simulation
    from tests.cluster.simulator.store_node import StoreNode


def unsettled(simulation: Simulation) -> str:
    """Why the cluster has not settled: an acknowledged event was not read, or a sealed segment lacks copies."""
    ledger = simulation.ledger
    for reader in simulation.readers:
        if not simulation.has_quorum(reader.stream):
            continue
        last = max((one for one in ledger.acknowledged if one.stream == reader.stream), default=None)
        if last is not None:
            index = max(ledger.acknowledged[last])
            if reader.reader.position <= (last.number, index):
                return f"{reader.name} is at {reader.reader.position}, index {index} of {last} is acknowledged"
    by_name = {store.name: store for store in simulation.stores}
    for segment, record in ledger.records.items():
        if (
            record.state is SegmentState.SEALED
            and simulation.has_quorum(segment.stream)
            and not _is_done(simulation, segment)
        ):
            complete = [one.store for one in record.copy_set if is_complete(by_name.get(one.store), segment)]
            if len(complete) < len(record.copy_set):
                return f"{segment} {record.copy_set} has complete copies on {complete} only"
            start = ledger.start_of(segment)
            firsts = [_first(by_name[one], segment) for one in complete]
            # Without syncs a store may forget a trim in a crash. The next one covers it.
            if simulation.options.is_synced and any(first != start for first in firsts):
                return f"{segment} starts at {start}, its copies on {complete} at {firsts}"
    return ""


def _first(store: StoreNode, segment: SegmentId) -> int:
    content = store.files.content(segment) if store.files is not None else None
    return content.first if content is not None else 0


def _is_done(simulation: Simulation, segment: SegmentId) -> bool:
    """Whether the segment is wholly before the start. A whole log needs its bridge all the same."""
    start = simulation.ledger.starts.get(segment.stream, FIRST_POSITION)
    is_whole_log = simulation.options.is_whole_log or is_partition(segment.stream)
    return segment.number < start.segment_number and not is_whole_log


def is_complete(store: StoreNode | None, segment: SegmentId) -> bool:
    """Whether the disk of the store has the whole segment. Its core may be ahead of the disk."""
    if store is None or store.core is None or store.files is None:
        return False
    content = store.files.content(segment)
    return content is not None and store.files.closed_end(segment) > 0 and not content.unknown


def check_all(simulation: Simulation) -> None:
    for reader in simulation.readers:
        if simulation.has_quorum(reader.stream):
            _check_i1_read_back(simulation, reader.name, reader.stream)
    for store in simulation.stores:
        if store.core is not None:
            _check_i18_copies(simulation, store)
            for stream in filter(is_partition, simulation.streams):
                try:
                    check_i22_log(store, stream)
                except EntryDamaged:
                    simulation.world.fired["damage found at the end"] += 1


def _check_i1_read_back(simulation: Simulation, reader: str, stream: str) -> None:
    """Every acknowledged event was read, at its offset and with its payload, or was in a gap that was reported."""
    ledger = simulation.ledger
    gaps = ledger.gaps.get(reader, [])
    events = dict(ledger.delivered_events.get(reader, []))
    for segment, slots in ledger.acknowledged.items():
        if segment.stream != stream:
            continue
        base = ledger.records[segment].base
        assert base is not None
        for index, one in slots.items():
            found, position = events.get(base + index - 1), Position(segment.number, index)
            if found is None and any(gap.first <= position < gap.following for gap in gaps):
                continue
            check(found == one.payload, "I1", f"{reader} read {found!r} for index {index} of {segment}, not {one}")


def _check_i18_copies(simulation: Simulation, store: StoreNode) -> None:
    """Every closed replica has the content and the payloads that it was sealed with, from its first entry on."""
    ledger = simulation.ledger
    assert store.files is not None
    for segment, state in store.files.states().items():
        if not state.closed_end:
            continue
        try:
            entries = store.files.read(segment, 1, INDEX_MAX, INDEX_MAX)
        except EntryDamaged:
            simulation.world.fired["damage found at the end"] += 1
            continue
        found = [(one.kind, one.birth_epoch) for one in entries]
        check(
            found == ledger.contents[segment][state.first - 1 :],
            "I18",
            f"{store.name}: {segment} has {found}, it was {ledger.contents[segment]}",
        )
        for entry in entries:
            one = ledger.acknowledged.get(segment, {}).get(entry.index)
            if one is not None:
                is_equal = entry.kind is Kind.EVENT and zlib.crc32(entry.payload) == zlib.crc32(one.payload)
                check(is_equal, "I1", f"{store.name}: {segment} index {entry.index} has another payload")
