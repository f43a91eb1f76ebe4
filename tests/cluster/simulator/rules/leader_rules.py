"""Rules about acknowledgements and the decisions of recoveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kwire.cluster.core.control import SegmentRecord, SegmentState
from kwire.cluster.core.entries import Entry, Kind
from kwire.cluster.core.messages import SegmentId, Store
from tests.cluster.simulator.rules import check

if TYPE_CHECKING:
    from tests.cluster.simulator.ledger import Acknowledged, Ledger

Content = Sequence[tuple[Kind, int]]


def check_i3_one_ack(slots: Mapping[int, Acknowledged], segment: SegmentId, index: int, payload: bytes) -> None:
    """No two different payloads are acknowledged for one index."""
    before = slots.get(index)
    check(before is None, "I3", f"{segment} index {index} was acknowledged twice, with {payload[:40]!r} and {before}")


def check_i2_agreement(leader: str, segment: SegmentId, known: Content, found: Content) -> None:
    """All leaders that get W copies of a segment with its bridge have the same content, whether or not it is sealed."""
    check(list(known) == list(found), "I2", f"{leader} ends {segment} with {found}, an earlier leader with {known}")


def check_i11_holders(ledger: Ledger, segment: SegmentId, index: int, holders: set[str]) -> None:
    """At the acknowledgement, W distinct stores of the copy set hold the slot durably."""
    record = ledger.records[segment]
    members = [member.store for member in record.copy_set if member.store in holders]
    check(
        len(members) >= record.write_quorum,
        "I11",
        f"{segment} index {index} was acknowledged with copies on {members} only, W is {record.write_quorum}",
    )


def check_i17_order(ledger: Ledger, segment: SegmentId) -> None:
    """Nothing is acknowledged in a segment before all earlier ones are sealed."""
    for number in range(1, segment.number):
        record = ledger.records[SegmentId(segment.stream, number)]
        check(
            record.state is SegmentState.SEALED,
            "I17",
            f"an entry of {segment} was acknowledged, but segment {number} is {record.state}",
        )


def check_ack_before_end(ledger: Ledger, segment: SegmentId, index: int) -> None:
    """I1: nothing is acknowledged at or after the end of a sealed segment."""
    end = ledger.records[segment].end_index
    check(end is None or index < end, "I1", f"{segment} index {index} was acknowledged, but the segment ends at {end}")
    contents = ledger.contents.get(segment)
    if contents is not None:
        check(contents[index - 1][0] is Kind.EVENT, "I1", f"{segment} index {index} was acknowledged, but is not there")


def check_i9_seals(ledger: Ledger, segment: SegmentId, epoch: int, record: SegmentRecord) -> None:
    """A recovery has heard R replicas, and these share one with the copies of every acknowledged entry."""
    heard = [member.store for member in record.copy_set if member.store in ledger.heard.get((segment, epoch), {})]
    needed = len(record.copy_set) - record.write_quorum + 1
    check(len(heard) >= needed, "I9", f"epoch {epoch} recovered {segment} after the seals of {heard} only")
    for index, one in ledger.acknowledged.get(segment, {}).items():
        check(
            not one.holders.isdisjoint(heard),
            "I9",
            f"epoch {epoch} sealed {heard} of {segment}, but index {index} is on {sorted(one.holders)}",
        )


def check_i9_later_seals(ledger: Ledger, segment: SegmentId, one: Acknowledged, epoch: int) -> None:
    """An entry is acknowledged after later leaders have sealed replicas: they share a replica all the same."""
    newest = ledger.epochs.get(segment.stream, 0)
    for later in range(epoch + 1, newest + 1):
        if (segment, later) in ledger.ends_decided:
            heard = ledger.heard.get((segment, later), {})
            check(not one.holders.isdisjoint(heard), "I9", f"{segment}: acknowledged on {sorted(one.holders)} only")


def check_i10_acked(before: int, body: Store) -> None:
    """The acked index that a leader sends never goes back."""
    check(body.acked >= before, "I10", f"the acked index of {body.segment} went from {before} to {body.acked}")


def check_i20_definite(ledger: Ledger, segment: SegmentId, epoch: int, entry: Entry, record: SegmentRecord) -> None:
    """A hole or an end is decided from R definite answers: an unknown range is not a no."""
    answers = ledger.heard.get((segment, epoch), {})
    members = [member.store for member in record.copy_set]
    definite = [
        store
        for store in members
        if store in answers and not any(one.first <= entry.index <= one.last for one in answers[store].unknown)
    ]
    needed = len(members) - record.write_quorum + 1
    check(
        len(definite) >= needed,
        "I20",
        f"epoch {epoch} decided {entry.kind.name} at {entry.index} of {segment} by the answers of {definite} only",
    )
