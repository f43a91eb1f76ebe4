"""Fetches batches from the leaders of partitions. While the caller handles a response, the next one is on its way."""

import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.connection.offsets import EARLIEST, READ_COMMITTED, READ_UNCOMMITTED
from kwire.cli.kafka.batch_decoding import RecordFields, batch_body, batches_in, is_dense, read_records, read_values
from kwire.cli.kafka.channel import Channel
from kwire.cli.kafka.cluster import NO_LEADER, Cluster
from kwire.cli.kafka.errors import ServerError, is_retriable
from kwire.cli.kafka.offsets import list_offsets
from kwire.cli.kafka.retries import Retries
from kwire.errors import ErrorCode
from kwire.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData
from storage.batch.format import ABORT
from storage.batch.markers import control_type_of
from storage.batch.record_batch import BatchHeader

WAIT_MS = 500
FETCH_BYTES_MAX = 16 * 1024 * 1024
PARTITION_BYTES_MAX = 2 * 1024 * 1024
# How long a server that does not answer, or a partition without a leader, is waited for.
RECOVERY_TIMEOUT_SECONDS = 30.0
# Time for a response after the long poll has ended.
_GRACE_SECONDS = 30.0


class Batch(NamedTuple):
    """A fetched batch. Only its records from offset `first` up to `stop` (exclusive; None: all) are wanted."""

    partition: TopicPartition
    header: BatchHeader
    data: memoryview
    first: int
    stop: int | None

    @property
    def next_offset(self) -> int:
        """The offset after the wanted records."""
        after = self.header.last_offset + 1
        return after if self.stop is None else min(after, self.stop)

    @property
    def record_count(self) -> int:
        """The number of wanted records."""
        if is_dense(self.header):
            return max(0, self.next_offset - max(self.first, self.header.base_offset))
        return len(self.records())

    def limited(self, count: int) -> "Batch":
        """Return the batch with at most `count` wanted records."""
        if count >= self.record_count:
            return self
        if is_dense(self.header):
            return self._replace(stop=max(self.first, self.header.base_offset) + count)
        return self._replace(stop=self.records()[count][0])

    def values(self) -> list[bytes | None]:
        """Return the values of the wanted records."""
        header = self.header
        if not is_dense(header):
            return [record[3] for record in self.records()]
        values = read_values(batch_body(header, self.data), header.record_count)
        base = header.base_offset
        if self.first <= base and (self.stop is None or self.stop > header.last_offset):
            return values
        return values[max(0, self.first - base) : None if self.stop is None else max(0, self.stop - base)]

    def records(self) -> list[RecordFields]:
        """Return the wanted records."""
        records = read_records(batch_body(self.header, self.data), self.header)
        first, stop = self.first, self.stop
        if first <= self.header.base_offset and (stop is None or stop > self.header.last_offset):
            return records
        return [one for one in records if one[0] >= first and (stop is None or one[0] < stop)]


@dataclass
class _Progress:
    """The next offset to fetch of a partition, where to stop, and the producers whose transactions are aborted.

    `first` is the first offset that is wanted. It may be after the end of the log, where nothing can be fetched yet.
    """

    offset: int
    first: int
    stop: int | None
    aborted: set[int] = field(default_factory=set)

    @property
    def is_done(self) -> bool:
        return self.stop is not None and self.offset >= self.stop


class Skipped(NamedTuple):
    """Records that retention deleted before they were fetched."""

    partition: TopicPartition
    first: int
    next_offset: int


class Fetcher:
    """Reads partitions from given offsets."""

    def __init__(self, cluster: Cluster, *, is_committed: bool = False) -> None:
        self._cluster = cluster
        self._isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        self._partitions: dict[TopicPartition, _Progress] = {}
        # The partitions of the request that each broker has not answered yet, with the offsets that were asked for.
        self._asked: dict[int, dict[TopicPartition, int]] = {}
        # Channels of its own, because other requests must not wait behind a long poll.
        self._channels: dict[int, Channel] = {}
        self._retries: Retries | None = None
        self.skipped: list[Skipped] = []

    def assign(
        self,
        starts: Mapping[TopicPartition, int],
        stops: Mapping[TopicPartition, int] | None = None,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Read these partitions from now on, each from its start up to its stop (exclusive), if it has one.

        A start may be after the end of its partition, if the ends are given: records before it are skipped.
        """
        self.close()
        self._partitions = {
            one: _Progress(start if ends is None else min(start, ends[one]), start, stops[one] if stops else None)
            for one, start in starts.items()
        }

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset after the last batch of each partition that `poll` has yielded completely."""
        return {partition: progress.offset for partition, progress in self._partitions.items()}

    def stop_at(self, stops: Mapping[TopicPartition, int]) -> None:
        """Set where to stop reading."""
        for partition, stop in stops.items():
            self._partitions[partition].stop = stop

    def close(self) -> None:
        """Close the connections, with the requests that wait for an answer."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._asked.clear()

    @property
    def is_done(self) -> bool:
        """Whether all partitions have reached their stop."""
        return all(one.is_done for one in self._partitions.values())

    def poll(self, timeout_seconds: float) -> Iterator[Batch]:
        """Yield the batches of the brokers that answer within the timeout."""
        self._ask()
        for node in self._answering(timeout_seconds):
            yield from self._take(node)

    # Requests

    def _ask(self) -> None:
        """Send a request to each leader that has none and leads partitions that are not done."""
        wanted: dict[int, list[TopicPartition]] = {}
        for partition, progress in self._partitions.items():
            if not progress.is_done:
                wanted.setdefault(self._cluster.leader(partition), []).append(partition)
        if NO_LEADER in wanted:
            self._recover(ServerError(f"partition {wanted.pop(NO_LEADER)[0]}", ErrorCode.LEADER_NOT_AVAILABLE))
        for node, partitions in wanted.items():
            if node not in self._asked:
                try:
                    self._ask_node(node, partitions)
                except ConnectionError as error:
                    self._lose(node, error)

    def _ask_node(self, node: int, partitions: list[TopicPartition]) -> None:
        topics: dict[str, list[FetchPartition]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.partition,
                    fetch_offset=self._partitions[partition].offset,
                    partition_max_bytes=PARTITION_BYTES_MAX,
                )
            )
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic=name, partitions=asked) for name, asked in topics.items()],
        )
        if node not in self._channels:
            self._channels[node] = self._cluster.open_channel(node)
        self._channels[node].send(FETCH, request)
        self._asked[node] = {partition: self._partitions[partition].offset for partition in partitions}

    def _answering(self, timeout_seconds: float) -> list[int]:
        """Wait until a broker answers, and return the nodes whose answer has begun to arrive."""
        waiting = select.poll()
        nodes = {}
        timeout_ms = timeout_seconds * 1000
        for node in self._asked:
            channel = self._channels[node]
            nodes[channel.fileno()] = node
            waiting.register(channel.fileno(), select.POLLIN)
            if channel.has_data:
                timeout_ms = 0
        ready = {descriptor for descriptor, _ in waiting.poll(timeout_ms)}
        return [node for number, node in nodes.items() if number in ready or self._channels[node].has_data]

    # Responses

    def _take(self, node: int) -> Iterator[Batch]:
        try:
            response = self._channels[node].receive(WAIT_MS / 1000 + _GRACE_SECONDS)
        except ConnectionError as error:
            self._lose(node, error)
            return
        asked = self._asked.pop(node)
        if response.error_code:
            raise ServerError("a fetch", response.error_code)
        batches: list[Batch] = []
        failure = None
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                progress = self._partitions.get(partition)
                if progress is None or asked.get(partition) != progress.offset:
                    continue
                if data.error_code:
                    failure = self._fail(partition, progress, data) or failure
                else:
                    batches += self._wanted(partition, progress, data)
        if failure is not None:
            self._recover(failure)
        else:
            self._retries = None
        # The next request is sent before the caller handles these batches, so that the server works meanwhile.
        self._ask()
        yield from batches

    def _wanted(self, partition: TopicPartition, progress: _Progress, data: PartitionData) -> Iterator[Batch]:
        """Yield the batches with records for the caller, and move the progress behind all of them."""
        if not data.records:
            return
        aborted = sorted(((one.first_offset, one.producer_id) for one in data.aborted_transactions or ()), reverse=True)
        for header, view in batches_in(memoryview(data.records)):
            if header.last_offset < progress.offset:
                continue
            while aborted and aborted[-1][0] <= header.last_offset:
                progress.aborted.add(aborted.pop()[1])
            first, progress.offset = max(progress.first, progress.offset), header.last_offset + 1
            if header.is_control:
                if control_type_of(view) == ABORT:
                    progress.aborted.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in progress.aborted:
                continue
            if first <= header.last_offset and (progress.stop is None or header.base_offset < progress.stop):
                yield Batch(partition, header, view, first, progress.stop)

    def _fail(self, partition: TopicPartition, progress: _Progress, data: PartitionData) -> Exception | None:
        """Handle an error of one partition. Return it if the leaders have to be asked for again."""
        code = data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            earliest = list_offsets(self._cluster, [partition], EARLIEST)[partition]
            if earliest <= progress.offset:
                raise ServerError(f"offset {progress.offset} of partition {partition}", code)
            self.skipped.append(Skipped(partition, progress.offset, earliest))
            progress.offset = earliest
            return None
        error = ServerError(f"partition {partition}", code)
        if not is_retriable(code):
            raise error
        return error

    def _lose(self, node: int, error: ConnectionError) -> None:
        self._asked.pop(node, None)
        channel = self._channels.pop(node, None)
        if channel is not None:
            channel.close()
        self._recover(error)

    def _recover(self, error: Exception) -> None:
        """Wait a moment, and ask for the leaders again. Raises the error if nothing has helped for a while."""
        if self._retries is None:
            self._retries = Retries(RECOVERY_TIMEOUT_SECONDS)
        if not self._retries.pause():
            raise error
        try:
            self._cluster.reload()
        except ConnectionError as unreachable:
            if not self._retries.pause():
                raise unreachable from error
