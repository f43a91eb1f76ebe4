"""Rules about what the master decides: epochs, segment lists, ends and copy sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.cluster.core.control import Granted, SegmentRecord, SegmentState
from kwire.cluster.core.entries import Position
from kwire.cluster.core.messages import SegmentId
from tests.cluster.simulator.rules import check
from tests.cluster.simulator.rules.leader_rules import check_i17_order

if TYPE_CHECKING:
    from tests.cluster.simulator.ledger import Ledger

UNSEALED_MAX = 2


def check_i4_epochs(ledger: Ledger, client: str, granted: Granted) -> None:
    """Epochs only grow, and each has one leader. The grant of an epoch may be repeated."""
    known = ledger.leaders.get((granted.stream, granted.epoch))
    newest = ledger.epochs.get(granted.stream, 0)
    check(
        known == client if known is not None else granted.epoch > newest,
        "I4",
        f"{granted.stream}: {client} got epoch {granted.epoch}; it belongs to {known}, the newest is {newest}",
    )


def check_i4_leader(ledger: Ledger, client: str, granted: Granted) -> None:
    """A client leads only with an epoch that the master has granted to it."""
    check(
        ledger.leaders.get((granted.stream, granted.epoch)) == client,
        "I4",
        f"{client} leads with epoch {granted.epoch}",
    )


def check_i17_two_unsealed(ledger: Ledger, stream: str) -> None:
    """At most two segments of a stream are not sealed."""
    unsealed = [
        segment.number
        for segment, record in ledger.records.items()
        if segment.stream == stream and record.state is not SegmentState.SEALED
    ]
    check(len(unsealed) <= UNSEALED_MAX, "I17", f"{stream}: segments {unsealed} are not sealed")


def check_i18_sealed_record(before: SegmentRecord, after: SegmentRecord, segment: SegmentId) -> None:
    """Of a sealed segment only the copy set changes."""
    if before.state is SegmentState.SEALED:
        facts = [(one.state, one.end_index, one.end_epoch, one.base) for one in (before, after)]
        check(facts[0] == facts[1], "I18", f"{segment} changed from {before} to {after}")


def check_i18_no_alarm(alarm: str) -> None:
    """The master finds no copies with different contents, and no segment that ends twice."""
    check(not alarm, "I18", alarm)


def check_copy_set_of_open_segment(before: SegmentRecord, after: SegmentRecord, segment: SegmentId) -> None:
    """I9: the copy set and the quorum of an unsealed segment never change."""
    if before.state is not SegmentState.SEALED:
        facts = [(one.copy_set, one.write_quorum, one.opened_by_epoch) for one in (before, after)]
        check(facts[0] == facts[1], "I9", f"the copy set of the unsealed {segment} changed from {before} to {after}")


def check_i22_offsets(ledger: Ledger, segment: SegmentId) -> None:
    """A segment begins where the one before it ends. The bridge is not an entry of the stream."""
    for number in (segment.number, segment.number + 1):
        record = ledger.records.get(SegmentId(segment.stream, number))
        before = ledger.records.get(SegmentId(segment.stream, number - 1))
        if record is None or record.base is None:
            continue
        if before is None:
            check(number == 1 and record.base == 0, "I22", f"{segment} begins at {record.base}")
        elif number == segment.number:
            check(
                before.base is not None
                and before.end_index is not None
                and record.base == before.base + before.end_index - 1,
                "I22",
                f"{segment} begins at {record.base} after {before}",
            )


def check_i24_start(ledger: Ledger, stream: str, before: Position, start: Position) -> None:
    """The start of a stream never goes back. Everything before it is acknowledged."""
    check(start > before, "I24", f"{stream} starts at {start}, it started at {before}")
    segment = SegmentId(stream, start.segment_number)
    end = ledger.records[segment].end_index
    last = max(ledger.acknowledged.get(segment, {}), default=0) if end is None else end - 1
    check(start.entry_index <= last + 1, "I1", f"{stream} starts at {start}, index {last} of {segment} is acknowledged")
    check_i17_order(ledger, segment)


def check_i1_end(ledger: Ledger, segment: SegmentId) -> None:
    """Every acknowledged index is before the end of its segment."""
    end = ledger.records[segment].end_index
    assert end is not None
    last = max(ledger.acknowledged.get(segment, {}), default=0)
    check(last < end, "I1", f"{segment} was sealed with its bridge at {end}, but index {last} was acknowledged")


def check_i19_copies_at_sealing(ledger: Ledger, segment: SegmentId) -> None:
    """When a segment is sealed, W stores of its copy set hold its bridge."""
    record = ledger.records[segment]
    end, epoch = record.end_index, record.end_epoch
    holders: set[str] = set()
    for identity, stores in ledger.holders_at(segment, end or 0):
        if identity.kind.name == "BRIDGE" and identity.birth_epoch <= (epoch or 0):
            holders |= stores
    members = [member.store for member in record.copy_set if member.store in holders]
    check(
        len(members) >= record.write_quorum,
        "I19",
        f"{segment} was sealed with its bridge at {end} on {members} only",
    )
