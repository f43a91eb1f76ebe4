"""Digests of sealed segments: which content is the right one, and which stores hold it."""

from collections import Counter

from kwire.cluster.master.state import SegmentEntry


def agreed_digest(entry: SegmentEntry, silent: frozenset[str] = frozenset()) -> int | None:
    """Return the digest that enough members report: as many as acknowledge an entry.

    If the members that are not in `silent` (have not failed) are fewer, all of them must agree.
    """
    members = {one.store for one in entry.record.copy_set}
    reports = Counter(one.digest for one in entry.reports if one.store in members)
    needed = entry.record.write_quorum
    for digest, count in reports.items():
        if count >= needed and all(count > other for value, other in reports.items() if value != digest):
            return digest
    remaining = members - silent
    if len(reports) == 1 and 0 < len(remaining) < needed:
        digest, count = next(iter(reports.items()))
        if remaining <= {one.store for one in entry.reports}:
            return digest
    return None


def verified_stores(entry: SegmentEntry, digest: int | None = None) -> frozenset[str]:
    """Return the members that have reported the agreed digest."""
    digest = agreed_digest(entry) if digest is None else digest
    members = {one.store for one in entry.record.copy_set}
    return frozenset(one.store for one in entry.reports if one.digest == digest and one.store in members)
