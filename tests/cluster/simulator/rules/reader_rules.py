"""Rules about what readers get."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from kwire.cluster.core.entries import FIRST_POSITION, Entry, Kind
from kwire.cluster.core.messages import Fetched, SegmentId
from kwire.cluster.core.reader.reader import Delivery, Trimmed
from tests.cluster.simulator.rules import check

if TYPE_CHECKING:
    from tests.cluster.simulator.ledger import Ledger

Slot = tuple[Kind, int, int]


def check_i10_limit(store: str, before: int, body: Fetched) -> None:
    """The index up to which one incarnation of a store serves never goes back."""
    check(body.limit >= before, "I10", f"{store} served {body.segment} up to {before}, now up to {body.limit}")


def check_i13_serve_safe(ledger: Ledger, body: Fetched) -> None:
    """Nothing above the acked index of the leaders is served."""
    acked = ledger.acked_index.get(body.segment, 0)
    end = ledger.records[body.segment].end_index
    for entry in body.entries:
        check(
            entry.index <= body.limit and (entry.index <= acked or end is not None),
            "I13",
            f"index {entry.index} of {body.segment} was served, the acked index is {acked}",
        )


def check_i14_repeatable(reader: str, segment: SegmentId, index: int, known: Slot, found: Slot) -> None:
    """All readers get the same content of a slot, forever."""
    check(known == found, "I14", f"{reader} read {found} at {segment} index {index}, where {known} was read before")


def check_i16_after_bridge(ledger: Ledger, reader: str, segment: SegmentId, index: int) -> None:
    """Nothing is read after the bridge of a segment."""
    end = ledger.records[segment].end_index
    check(end is None or index <= end, "I16", f"{reader} read index {index} of {segment}, which ends at {end}")


def check_i1_delivered(ledger: Ledger, reader: str, segment: SegmentId, entry: Entry) -> None:
    """A reader gets the acknowledged event of a slot."""
    one = ledger.acknowledged.get(segment, {}).get(entry.index)
    check(
        one is None or (entry.kind is Kind.EVENT and entry.payload == one.payload),
        "I1",
        f"{reader} read {entry.kind.name} {zlib.crc32(entry.payload)} at {segment} index {entry.index}, not {one}",
    )


def check_i24_served_from(ledger: Ledger, store: str, body: Fetched) -> None:
    """A store says where its replica starts, and that is not after the start of the stream."""
    start = ledger.start_of(body.segment)
    check(body.start <= start, "I24", f"{store} serves {body.segment} from {body.start} on, it starts at {start}")
    early = [entry.index for entry in body.entries if entry.index < body.start]
    check(not early, "I24", f"{store} serves {early} of {body.segment}, before its start at {body.start}")


def check_i24_gap(ledger: Ledger, reader: str, stream: str, gap: Trimmed) -> None:
    """A reader reports a gap only for entries before the start of the stream."""
    start = ledger.starts.get(stream, FIRST_POSITION)
    check(gap.first < gap.following <= start, "I24", f"{reader} reported {gap}, but {stream} starts at {start}")


def check_i24_no_gap(reader: str, expected: int, delivery: Delivery) -> None:
    """The offsets that a reader gets have no gap that it has not reported: holes are delivered as such."""
    check(delivery.offset == expected, "I24", f"{reader} got offset {delivery.offset} after {expected - 1}")
