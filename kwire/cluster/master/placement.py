"""Placement: which stores hold the replicas of a segment."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from zlib import crc32

from kwire.cluster.master.stores import StoreStatus


def place(
    stores: Iterable[StoreStatus],
    count: int,
    *,
    chosen: Sequence[StoreStatus] = (),
    free_bytes_min: int = 0,
    choice: int = 0,
) -> list[StoreStatus]:
    """Choose up to `count` of these stores, in addition to `chosen`, which are not counted.

    Racks that hold no replica come first, then stores with enough free space, then those with few unsealed segments,
    then those with more free space. `choice` decides between equal stores. A store without a rack is a rack of its own.
    """
    racks = Counter(_rack(one) for one in chosen)
    names = {one.name for one in chosen}
    remaining = [one for one in stores if one.name not in names]
    result: list[StoreStatus] = []
    while remaining and len(result) < count:
        best = min(
            remaining,
            key=lambda one: (
                racks[_rack(one)],
                one.free_bytes < free_bytes_min,
                one.load,
                -one.free_bytes,
                crc32(f"{choice}/{one.name}".encode()),
                one.name,
            ),
        )
        remaining.remove(best)
        racks[_rack(best)] += 1
        result.append(best)
    return result


def without_avoided(stores: Sequence[StoreStatus], avoid: Collection[str], enough: int) -> Sequence[StoreStatus]:
    """Leave out the stores to avoid, unless fewer than `enough` remain."""
    kept = [one for one in stores if one.name not in avoid]
    return kept if len(kept) >= enough else stores


def _rack(store: StoreStatus) -> tuple[str, str]:
    return (store.rack, "") if store.rack else ("", store.name)
