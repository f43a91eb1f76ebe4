"""A topic whose records a test chooses, and requests that browse them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kwire.streams.topic_directory import StreamTopic
from storage.batch.record_batch import Record
from tests.support.engines import append_batch, stream_topic
from tests.support.http import Http

START_MS = 1_750_000_000_000


class Browsed(NamedTuple):
    """The lines of an answer."""

    records: list[dict[str, Any]]
    progress: list[dict[str, Any]]
    unreadable: list[dict[str, Any]]
    end: dict[str, Any]

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(one["partition"], one["offset"]) for one in self.records]

    @property
    def next(self) -> str:
        """The parameter `next` of a request that continues."""
        return ",".join(f"{partition}:{offset}" for partition, offset in self.end["next"].items())


async def make_topic(
    http: Http, name: str = "t", partitions: int = 1, configs: dict[str, str] | None = None
) -> StreamTopic:
    body = {"num_partitions": partitions, "retention_policy": {"type": "Infinite"}, "configs": configs or {}}
    answer = await http.post(f"/topics/{name}", body)
    assert answer.status == 201, answer
    return await stream_topic(http.server, name)


async def put(topic: StreamTopic, partition: int, records: Sequence[Record], compression: int = 0) -> int:
    """Append one batch, and return the offset of its first record."""
    return await append_batch(topic.stream(partition), records, compression)


async def browse(http: Http, query: str = "", name: str = "t") -> Browsed:
    answer = await http.get(f"/topics/{name}/records{query and '?' + query}")
    assert answer.status == 200, answer
    return browsed(answer.lines)


def browsed(lines: list[dict[str, Any]]) -> Browsed:
    def of_kind(kind: str) -> list[dict[str, Any]]:
        return [line[kind] for line in lines if kind in line]

    assert "end" in lines[-1], lines[-1]
    return Browsed(of_kind("record"), of_kind("progress"), of_kind("unreadable"), lines[-1]["end"])
