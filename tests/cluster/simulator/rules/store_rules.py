"""Rules about what a store makes durable and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kwire.cluster.core.control import SegmentRecord, SegmentState
from kwire.cluster.core.entries import Entry, Kind, Range
from kwire.cluster.core.messages import SegmentId, Stored
from kwire.cluster.core.policies import Gaps, Policy
from kwire.cluster.core.runs import EntryRuns
from tests.cluster.simulator.rules import check

if TYPE_CHECKING:
    from tests.cluster.simulator.ledger import Identity, Ledger
    from tests.cluster.simulator.store_node import StoreNode

Content = Sequence[tuple[Kind, int]]


def check_i1_content(ledger: Ledger, segment: SegmentId, found: Content) -> None:
    """Every acknowledged event is in the final content of its segment."""
    for index, one in ledger.acknowledged.get(segment, {}).items():
        slot = found[index - 1] if index <= len(found) else None
        check(
            slot == (Kind.EVENT, one.birth_epoch),
            "I1",
            f"{segment} index {index} was acknowledged in epoch {one.birth_epoch}; the final content is {slot}",
        )


def check_i2_content(store: str, segment: SegmentId, known: Content, found: Content) -> None:
    """All complete copies of a segment are equal, whichever recovery made them."""
    check(list(known) == list(found), "I2", f"{store} closed {segment} with {found}, another store with {known}")


def check_i1_trim(ledger: Ledger, store: str, segment: SegmentId, first: int) -> None:
    """A store keeps everything from the start of the stream on, as the master has committed it."""
    start = ledger.start_of(segment) if first > 1 else 1
    check(first <= start, "I1", f"{store} has trimmed {segment} before {first}, but it starts at {start}")


def check_i5_fence(store: str, segment: SegmentId, before: int, found: int) -> None:
    """The sealed epoch of a replica never decreases, not by a crash either."""
    check(found >= before, "I5", f"{store}: the sealed epoch of {segment} went from {before} to {found}")


def check_i6_stale(store: str, segment: SegmentId, index: int, stamp: int, fence: int) -> None:
    """No entry is stored with a stamp below the sealed epoch."""
    check(stamp >= fence, "I6", f"{store} stores {segment} index {index} with stamp {stamp}, sealed by {fence}")


def check_i7_stamps(store: str, segment: SegmentId, runs: EntryRuns, first: int, last: int, stamp: int) -> None:
    """The stamp of a slot never decreases."""
    for run in runs.between(first, last):
        check(
            run.stamp_epoch <= stamp,
            "I7",
            f"{store}: the stamp of {segment} index {run.first} went from {run.stamp_epoch} to {stamp}",
        )


def check_i8_birth(ledger: Ledger, segment: SegmentId, entry: Entry) -> None:
    """After an entry was acknowledged, no later leader stores another one in its slot."""
    one = ledger.acknowledged.get(segment, {}).get(entry.index)
    if one is not None and entry.stamp_epoch > one.birth_epoch:
        check(
            (entry.kind, entry.birth_epoch) == (Kind.EVENT, one.birth_epoch),
            "I8",
            f"{segment} index {entry.index} was acknowledged in epoch {one.birth_epoch} and replaced by {entry}",
        )


def check_identity(known: int, found: int, identity: Identity) -> None:
    """Index, kind and birth epoch identify the content."""
    check(known == found, "I3", f"two contents for {identity}")


def check_i12_matched(ledger: Ledger, store: StoreNode, body: Stored) -> None:
    """Up to `matched`, the replica equals the log of the leader of this epoch, also in its stamps.

    What a recovery knows to be acknowledged may have any stamp, and so may copies of a sealed segment.
    """
    leader = ledger.leader_log(body.segment, body.epoch)
    assert store.files is not None
    content = store.files.content(body.segment)
    if leader is None or content is None:
        return
    answers = ledger.heard.get((body.segment, body.epoch), {}).values()
    record = ledger.records[body.segment]
    base = max((one.acked for one in answers), default=0) if body.epoch != record.opened_by_epoch else 0
    is_sealed = record.state is SegmentState.SEALED
    # What is on the disk may be newer than the answer, but not older.
    for run in leader.log.between(1, body.matched):
        held = list(content.runs.between(run.first, run.last))
        count = sum(one.last - one.first + 1 for one in held)
        check(
            all(one.identity() == run.identity() for one in held)
            and count == run.last - run.first + 1
            and (is_sealed or all(one.stamp_epoch >= body.epoch for one in held if one.last > base)),
            "I12",
            f"{store.name} reports {body.segment} as matched up to {body.matched}, but differs from {run}",
        )


def check_i15_prefix(policy: Policy, segment: SegmentId, entry: Entry) -> None:
    """With the prefix policy no slot stays empty."""
    is_hole = entry.kind is Kind.HOLE
    check(not (is_hole and policy.gaps is Gaps.REFUSED), "I15", f"{segment} has a hole at {entry.index}")


def check_i16_one_bridge(
    store: str, segment: SegmentId, found: Content, end: int, record: SegmentRecord | None
) -> None:
    """A closed replica has one bridge, at its end."""
    bridges = [index for index, (kind, _) in enumerate(found, 1) if kind is Kind.BRIDGE]
    check(bridges == [end] == [len(found)], "I16", f"{store}: {segment} was closed at {end} with bridges at {bridges}")
    check(
        record is not None and record.end_index == end,
        "I16",
        f"{store} closed {segment} at {end}, the master has {record}",
    )


def check_i21_limbo_exit(ledger: Ledger, store: StoreNode, segment: SegmentId, ranges: Sequence[Range]) -> None:
    """A replica answers again for acknowledged slots only when it holds them."""
    assert store.files is not None
    content = store.files.content(segment)
    assert content is not None
    for index, one in ledger.acknowledged.get(segment, {}).items():
        if any(unknown.first <= index <= unknown.last for unknown in ranges) or store.name not in one.holders:
            continue
        run = content.runs.at(index)
        check(
            run is not None and run.identity() == (Kind.EVENT, one.birth_epoch),
            "I21",
            f"{store.name} answers for {segment} index {index} again, but holds {run}",
        )
