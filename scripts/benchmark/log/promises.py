"""What an acknowledged record is worth, and how a topic asks either server for it."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmark.servers import KAFKA, KWIRE


@dataclass(frozen=True)
class Promise:
    """`configs` are the topic settings, by server, that make this promise; `title` names them in the table."""

    name: str
    title: str
    configs: Mapping[str, Mapping[str, object]]

    def of(self, work: str) -> str:
        """The name of a work done under this promise."""
        return f"{work}, {self.name}"


# The operating system has the record: a crash of the server loses nothing, a power cut may.
PAGE_CACHE = Promise(
    "page-cache", "in page cache (Kafka default, kwire os)", {KWIRE: {"kwire.log.sync": "os"}, KAFKA: {}}
)
# The record is on the disk before anybody is told.
SYNCED = Promise(
    "synced",
    "synced (Kafka flush.messages=1, kwire group)",
    {KWIRE: {"kwire.log.sync": "group"}, KAFKA: {"flush.messages": 1}},
)
PROMISES = (PAGE_CACHE, SYNCED)
