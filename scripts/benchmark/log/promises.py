"""Promises: what an acknowledgement of a record guarantees, and the topic settings for this on each server."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmark.servers import KAFKA, KWIRE


@dataclass(frozen=True)
class Promise:
    """A durability guarantee. `configs` has its topic settings by server, and `title` names these settings."""

    name: str
    title: str
    configs: Mapping[str, Mapping[str, object]]

    def of(self, work: str) -> str:
        """Return the name of a work with this promise."""
        return f"{work}, {self.name}"


# The record is in the page cache: it survives a crash of the server, but perhaps not a power failure.
PAGE_CACHE = Promise(
    "page-cache", "in page cache (Kafka default, kwire os)", {KWIRE: {"kwire.log.sync": "os"}, KAFKA: {}}
)
# The record is on the disk before it is acknowledged.
SYNCED = Promise(
    "synced",
    "synced (Kafka flush.messages=1, kwire group)",
    {KWIRE: {"kwire.log.sync": "group"}, KAFKA: {"flush.messages": 1}},
)
PROMISES = (PAGE_CACHE, SYNCED)
