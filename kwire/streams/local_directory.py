"""The TopicDirectory of the topics of this server."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from kwire.broker.topics.topics import Topics
from kwire.config import Config
from kwire.config.resources import topic as topic_config
from kwire.streams.topic_directory import PlacedPartition, StreamTopic

# Other work runs on the event loop after this many partitions. Each takes a few microseconds if its log is open.
SIZES_PER_CHUNK: Final = 500


class LocalDirectory:
    """This node leads all partitions, and has their only replicas."""

    def __init__(self, topics: Topics, config: Config) -> None:
        self._topics = topics
        self._config = config

    async def find(self, name: str) -> StreamTopic | None:
        topic = self._topics.get(name)
        return None if topic is None or topic.is_internal else topic

    async def names_from(self, start: str, limit: int) -> Sequence[str]:
        return self._topics.catalogue.names_from(start, limit)

    async def configs(self, topic: StreamTopic) -> Mapping[str, str | None]:
        facts = self._topics.catalogue.find(topic.name)
        configs = {} if facts is None else facts.configs
        return {entry.name: entry.value for entry in topic_config.describe(configs, self._config)}

    async def placement(self, topic: StreamTopic) -> Sequence[PlacedPartition]:
        here = (self._config.node_id,)
        return [PlacedPartition(index, *here, here, here) for index in range(topic.partition_count)]

    async def sizes(self, topic: StreamTopic) -> Sequence[int]:
        sizes: list[int] = []
        for index in range(topic.partition_count):
            sizes.append(topic.stream(index).usage().size_bytes)
            if len(sizes) % SIZES_PER_CHUNK == 0:
                await asyncio.sleep(0)
        return sizes

    async def broker_ids(self) -> Sequence[int]:
        return (self._config.node_id,)
