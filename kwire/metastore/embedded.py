"""The metadata store of a single node: a dictionary in memory, every commit in an fsynced journal first.

One journal frame is one commit, so a commit is whole or absent after a crash. Commits run one after another; the sync
happens in a thread of its own, so the event loop goes on meanwhile. When most of the journal is history, it is
rewritten from what is live.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kwire.metastore.interface import ABSENT, Change, Conflict, Entry
from storage.errors import DiskFailure
from storage.journal import Journal

log = logging.getLogger("kwire.metastore")

# Rewrite once the journal holds this many times as many writes as there are live keys (and is worth the trouble).
HISTORY_FACTOR = 4
HISTORY_WRITES_MIN = 4096


class EmbeddedMetaStore:
    """Owns the journal. Reads from the event loop; commits are serialised by a lock and may come from many tasks."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._entries: dict[str, Entry] = {}
        self._revision = 0
        self._writes = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metastore")
        self._turn = asyncio.Lock()
        for payload in journal.replay():
            self._apply(json.loads(payload))

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def entries(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        return iter([(key, entry) for key, entry in self._entries.items() if key.startswith(prefix)])

    async def commit(self, changes: Sequence[Change]) -> int:
        # A caller that goes away halfway does not stop the disk, so it must not stop the rest either.
        return await asyncio.shield(asyncio.ensure_future(self._commit(changes)))

    async def _commit(self, changes: Sequence[Change]) -> int:
        async with self._turn:
            for change in changes:
                entry = self._entries.get(change.key)
                if (entry.revision if entry else ABSENT) != change.expected_revision:
                    raise Conflict(change.key)
            revision = self._revision + 1
            frame = {"revision": revision, "set": {change.key: change.value for change in changes}}
            await self._in_thread(self._journal.append, [_json(frame)])
            self._apply(frame)
            if self._writes > max(HISTORY_WRITES_MIN, HISTORY_FACTOR * len(self._entries)):
                await self._forget_history()
            return revision

    async def _forget_history(self) -> None:
        try:
            await self._in_thread(self._journal.rewrite, self._live())
        except DiskFailure:
            # The commit is durable whether or not the journal became shorter; the next one tries again.
            log.exception("the history of the metadata store could not be rewritten")
        else:
            self._writes = len(self._entries)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._journal.close()

    def _apply(self, frame: dict[str, Any]) -> None:
        revision = frame["revision"]
        for key, value in frame["set"].items():
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = Entry(value, revision)
        self._revision = max(self._revision, revision)
        self._writes += len(frame["set"])

    def _live(self) -> list[bytes]:
        """Frames that rebuild what is live, each key under the revision that wrote it; the last keeps the counter."""
        frames: Iterable[dict[str, Any]] = (
            {"revision": entry.revision, "set": {key: entry.value}} for key, entry in self._entries.items()
        )
        return [_json(frame) for frame in frames] + [_json({"revision": self._revision, "set": {}})]

    async def _in_thread(self, work: Any, argument: list[bytes]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, argument)


def _json(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode()
