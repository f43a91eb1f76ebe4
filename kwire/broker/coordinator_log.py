"""The internal topic a coordinator writes its decisions to, as the coordinator sees it: shards, keys and values."""

from collections.abc import Iterator, Sequence

from kwire.broker.partition import OnReached, Partition
from kwire.broker.topics import Topics
from storage.batch import Record, build_batch, check_batch, parse_header, read_records
from storage.errors import DamagedLog

REPLAY_BYTES = 1024 * 1024
BATCH_RECORDS_BYTES_MAX = 64 * 1024 * 1024


class CoordinatorLog:
    """One internal topic; a shard is one of its partitions."""

    def __init__(self, topics: Topics, topic_name: str) -> None:
        self._topics = topics
        self._topic_name = topic_name

    def append(self, shard: int, records: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> int:
        """Append all records as one batch, through the same door as everybody; the offset behind them."""
        batch = memoryview(build_batch([Record(key, value, now_ms) for key, value in records]))
        return self._partition(shard).append(batch, check_batch(batch)).last_offset + 1

    def on_committed(self, shard: int, offset: int, call: OnReached) -> None:
        self._partition(shard).on_reached(offset, call)

    def replay(self, shard: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Every record from the beginning, in order."""
        topic = self._topics.get(self._topic_name)
        partition = topic.partition(shard) if topic else None
        if partition is None:
            return
        log = partition.log
        if log.damage is not None or partition.high_watermark < log.log_end_offset:
            # What is lost, or not safe yet, may be a commit: nobody may be told that there was none.
            raise DamagedLog(f"{self._topic_name}-{shard} cannot be read to its end")
        offset = log.log_start_offset
        while offset < partition.high_watermark:
            view = partition.read(offset, REPLAY_BYTES).view
            if not view:
                # A gap that compaction left before something damaged: there is no way on.
                raise DamagedLog(f"{self._topic_name}-{shard} cannot be read from offset {offset} on")
            position = 0
            while position < len(view):
                header = parse_header(view, position)
                behind = position + header.size_bytes
                for record in read_records(view[position:behind], BATCH_RECORDS_BYTES_MAX):
                    if record.key is not None:
                        yield record.key, record.value
                position, offset = behind, header.last_offset + 1

    def _partition(self, shard: int) -> Partition:
        topic = self._topics.get(self._topic_name)
        partition = topic.partition(shard) if topic else None
        if partition is None:
            raise LookupError(f"{self._topic_name}-{shard} does not exist")
        return partition
