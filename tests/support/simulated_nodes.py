"""What a simulated disk is made of: files and folders, each as the page cache shows it and as the platter holds it.

The two sides are kept apart on purpose. Bytes go from the cache to the platter page by page, names and lengths as
steps of a journal that is taken over in order; a power cut leaves any mix of pages and any beginning of the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
# What a slice of a map shows where the file was cut under it; a real process would be dead.
CUT_MARK: Final = 0xEE
_CAPACITY_BYTES_MIN: Final = 4 * PAGE_BYTES


class SimulatedFile:
    """One file. ``buffers``: the cache, the newest last; older ones are kept for the maps that were made of them."""

    __slots__ = ("blocks", "buffers", "cuts", "dirty", "lost", "platter", "size")

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.size = len(content)
        self.platter = bytearray(content)
        self.buffers = [bytearray(max(_CAPACITY_BYTES_MIN, self.size))]
        self.buffers[0][: self.size] = content
        # Pages whose bytes are newer than the platter's.
        self.dirty: set[int] = set()
        # Pages that a failed sync gave up: clean in name only.
        self.lost: set[int] = set()
        # Cuts in the journal: new pages above the lowest of them cannot be on the platter before it.
        self.cuts: list[int] = []
        # Pages that have a place on the platter.
        self.blocks: set[int] = set(pages_of(0, self.size))

    # --- the cache

    def write(self, data: memoryview, position: int) -> None:
        end = position + len(data)
        self._hold(end)
        for buffer in self.buffers:
            if end <= len(buffer):
                buffer[position:end] = data
            elif position < len(buffer):
                buffer[position:] = data[: len(buffer) - position]
        pages = pages_of(position, end)
        self.dirty.update(pages)
        self.lost.difference_update(pages)
        self.blocks.update(pages)
        self.size = max(self.size, end)

    def read(self, size: int, position: int) -> bytes:
        return bytes(self.buffers[-1][position : min(position + size, self.size)])

    def map(self, position: int, size: int) -> memoryview:
        return memoryview(self.buffers[-1])[position : position + size].toreadonly()

    def grow(self, size: int) -> None:
        """Zeroes up to ``size``; their place is reserved."""
        self._hold(size)
        self.blocks.update(pages_of(0, size))
        self.size = max(self.size, size)

    def cut(self, size: int) -> None:
        """The new length, which may be larger as well."""
        self._hold(size)
        if size < self.size:
            end = self.size
            for buffer in self.buffers:
                if size < len(buffer):
                    buffer[size:end] = bytes([CUT_MARK]) * (min(end, len(buffer)) - size)
            # Maps made from now on show zeros again, as new pages would.
            fresh = bytearray(len(self.buffers[-1]))
            fresh[:size] = self.buffers[-1][:size]
            self.buffers.append(fresh)
            kept = -(-size // PAGE_BYTES)
            for pages in (self.dirty, self.lost, self.blocks):
                pages.intersection_update([page for page in pages if page < kept])
        self.size = size

    def _hold(self, end: int) -> None:
        buffer = self.buffers[-1]
        if end <= len(buffer):
            return
        capacity = max(2 * len(buffer), -(-end // PAGE_BYTES) * PAGE_BYTES)
        try:
            buffer.extend(bytes(capacity - len(buffer)))
        except BufferError:  # mapped: those maps keep their buffer, and writes go to both
            self.buffers.append(bytearray(buffer) + bytes(capacity - len(buffer)))

    # --- the platter

    def loose_pages(self) -> list[int]:
        """The dirty pages that may go to the platter by themselves at any time."""
        limit = min(self.cuts, default=self.size + PAGE_BYTES) // PAGE_BYTES
        return sorted(page for page in self.dirty if page < limit)

    def write_back(self, pages: Iterable[int]) -> None:
        """Take these dirty pages over; a file that grew by being written grows on the platter with them."""
        for page in pages:
            self._put(page, self.buffers[-1][page * PAGE_BYTES : min((page + 1) * PAGE_BYTES, self.size)])
        self.dirty.difference_update(pages)

    def _put(self, page: int, content: bytes | bytearray) -> None:
        start = page * PAGE_BYTES
        if len(self.platter) < start + len(content):
            self.platter.extend(bytes(start + len(content) - len(self.platter)))
        self.platter[start : start + len(content)] = content

    def sync(self) -> None:
        """All pages; the steps of the journal come first."""
        assert not self.cuts
        self.write_back(list(self.dirty))
        self.set_platter_size(self.size)

    def set_platter_size(self, size: int) -> None:
        if size < len(self.platter):
            del self.platter[size:]
        else:
            self.platter.extend(bytes(size - len(self.platter)))

    def apply_cut(self) -> None:
        self.set_platter_size(self.cuts.pop(0))

    def give_up_dirty(self) -> None:
        """A sync failed: the pages count as clean, the cache shows the new bytes, the platter the old ones."""
        self.lost |= self.dirty
        self.dirty.clear()

    def evict_lost(self, pages: Iterable[int] | None = None) -> None:
        """Memory was needed: clean pages are read again, and show what the platter has."""
        evicted = self.lost if pages is None else self.lost.intersection(pages)
        for page in evicted:
            start, end = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, self.size)
            old = bytes(self.platter[start:end])
            for buffer in self.buffers:
                if end <= len(buffer):
                    buffer[start:end] = old + bytes(end - start - len(old))
        self.lost = self.lost - evicted

    def flip_bit(self, position: int, bit: int) -> None:
        for buffer in self.buffers:
            if position < len(buffer):
                buffer[position] ^= 1 << bit
        if position < len(self.platter):
            self.platter[position] ^= 1 << bit

    def after_power_cut(self, chance: Random, kept_share: float, torn_share: float) -> SimulatedFile:
        """What the next machine finds, once the journal's part is done: each dirty page kept, lost or torn."""
        for page in self.loose_pages():
            fate = chance.random()
            if fate < torn_share:
                self._tear(page, chance)
            elif fate < torn_share + (1 - torn_share) * kept_share:
                self.write_back([page])
        return SimulatedFile(self.platter)

    def _tear(self, page: int, chance: Random) -> None:
        start, end = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, self.size)
        content = bytearray(self.platter[start:end])
        content.extend(bytes(end - start - len(content)))
        for sector in range(0, end - start, SECTOR_BYTES):
            if chance.random() < 0.5:
                content[sector : sector + SECTOR_BYTES] = self.buffers[-1][start:end][sector : sector + SECTOR_BYTES]
        self._put(page, content)


class SimulatedFolder:
    """One folder: the names everybody sees now, and the names that would survive."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = SimulatedFile | SimulatedFolder


class MetadataJournal:
    """Changes of names and lengths that are not durable yet, in the order they were made."""

    def __init__(self) -> None:
        self._steps: list[tuple[Node, Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, owner: Node, apply: Callable[[], None]) -> None:
        self._steps.append((owner, apply))

    def commit(self, owner: Node) -> None:
        """The steps of one file or folder, as its sync makes them durable."""
        rest = []
        for step in self._steps:
            if step[0] is owner:
                step[1]()
            else:
                rest.append(step)
        self._steps = rest

    def commit_first(self, count: int) -> None:
        for _, apply in self._steps[:count]:
            apply()
        del self._steps[:count]


def pages_of(start: int, end: int) -> range:
    return range(start // PAGE_BYTES, -(-end // PAGE_BYTES) if end > start else start // PAGE_BYTES)
