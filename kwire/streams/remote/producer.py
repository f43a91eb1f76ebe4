"""Producer: sends the batches of all remote logs to the leaders of their partitions.

The appends of one iteration of the event loop leave together: one request for each broker, with one batch of each
partition.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kwire.errors import KafkaError
from kwire.kafka_client.backoff import Backoff
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import STALE_METADATA, NotSent, refusal
from kwire.kafka_client.link import Link, Purpose
from kwire.streams.log import Appended
from kwire.streams.remote.partition_queue import State
from kwire.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from kwire.wire.messages.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.wire.types import ZERO_UUID
from storage.batch.format import NO_PRODUCER_ID
from storage.batch.record_batch import BatchHeader, parse_header

if TYPE_CHECKING:
    from kwire.streams.remote.log import RemoteLog

log = logging.getLogger("kwire.streams.remote")

# Requests without a response, of one broker.
REQUESTS_IN_FLIGHT_MAX: Final = 5
# The bytes of one request, unless its first batch is larger.
REQUEST_BYTES_MAX: Final = 1024 * 1024
# How long the broker waits for the copies.
REPLICATION_TIMEOUT_MS: Final = 10_000
EXPIRY_SECONDS: Final = 1.0
ALL_COPIES: Final = -1


class Producer:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._producer_id = NO_PRODUCER_ID
        self._identifying: asyncio.Task[None] | None = None
        # The logs whose queues are to be looked at in this iteration, those that wait for a producer id, those that
        # wait for another attempt, and all that have appends without an outcome.
        self._ready: dict[RemoteLog, None] = {}
        self._unidentified: dict[RemoteLog, None] = {}
        self._retrying: dict[RemoteLog, asyncio.Task[None]] = {}
        self._active: set[RemoteLog] = set()
        self._backoffs: dict[RemoteLog, Backoff] = {}
        self._senders: dict[int, _Sender] = {}
        self._flush_handle: asyncio.Handle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._closed: KafkaError | None = None

    def close(self) -> None:
        """Give up all appends."""
        self._closed = NotSent("the server is stopping")
        if self._identifying is not None:
            self._identifying.cancel()
        for task in self._retrying.values():
            task.cancel()
        for timer in (self._expiry, self._flush_handle):
            if timer is not None:
                timer.cancel()
        for one in list(self._active):
            one.queue.fail(self._closed)

    def append(self, one: "RemoteLog", batch: memoryview, header: BatchHeader, appended: Appended) -> None:
        if self._closed is not None:
            appended(self._closed)
            return
        one.queue.add(batch, header, appended, self._loop.time())
        self._active.add(one)
        if self._expiry is None:
            self._expiry = self._loop.call_later(EXPIRY_SECONDS, self._expire)
        self.look_at(one)

    def look_at(self, one: "RemoteLog") -> None:
        """Send the next batch of a log at the end of this iteration, if there is one to send."""
        if one.queue.state is State.READY and one not in self._retrying:
            self._ready[one] = None
            if self._flush_handle is None:
                self._flush_handle = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_handle = None
        ready, self._ready = self._ready, {}
        senders: dict[_Sender, None] = {}
        for one in ready:
            queue = one.queue
            if queue.state is not State.READY or one in self._retrying:
                continue
            if queue.needs_producer_id:
                self._identify(one)
                continue
            sender = self._sender(one)
            if sender is None:
                self.retry(one)
            else:
                sender.add(one)
                senders[sender] = None
        for sender in senders:
            sender.send()

    def _sender(self, one: "RemoteLog") -> "_Sender | None":
        node = self._cluster.metadata.leader(one.topic, one.partition).node
        if node not in self._cluster.metadata.brokers:
            return None
        sender = self._senders.get(node)
        if sender is None:
            sender = self._senders[node] = _Sender(self, self._cluster, node)
        return sender

    # --- producer ids

    def _identify(self, one: "RemoteLog") -> None:
        """Give a log a producer id, and send its batch then."""
        if one.queue.producer_id == self._producer_id:
            # No later epoch of it is left.
            self._producer_id = NO_PRODUCER_ID
        self._unidentified[one] = None
        if self._producer_id != NO_PRODUCER_ID:
            self._use_producer_id()
        elif self._identifying is None:
            self._identifying = self._loop.create_task(self._ask_producer_id())

    def forget_producer_id(self) -> None:
        """A broker knows a later epoch of this producer id than this process."""
        self._producer_id = NO_PRODUCER_ID

    async def _ask_producer_id(self) -> None:
        backoff = self._cluster.backoff()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        while self._unidentified:
            try:
                response = await self._cluster.request_any(INIT_PRODUCER_ID, request)
                if not response.error_code:
                    self._producer_id = response.producer_id
                    break
                error: KafkaError = refusal("InitProducerId (an idempotent producer)", response.error_code)
            except KafkaError as failure:
                error = failure
            log.info("no producer id yet: %s", error)
            for one in self._unidentified:
                one.queue.not_ready(str(error))
            await asyncio.sleep(backoff.next_seconds())
        self._identifying = None
        self._use_producer_id()

    def _use_producer_id(self) -> None:
        waiting, self._unidentified = self._unidentified, {}
        for one in waiting:
            if one.queue.needs_producer_id:
                one.queue.use_producer(self._producer_id, 0)
            self.look_at(one)

    # --- outcomes

    def settle(self, one: "RemoteLog") -> None:
        """A batch of a log has its outcome."""
        one.release()
        if one.queue.state is State.IDLE:
            self._active.discard(one)
        self._backoffs.pop(one, None)
        self.look_at(one)

    def retry(self, one: "RemoteLog") -> None:
        """Try again after a pause, with the leader that the cluster has then."""
        one.release()
        if one in self._retrying or self._closed is not None:
            return
        backoff = self._backoffs.get(one)
        if backoff is None:
            backoff = self._backoffs[one] = self._cluster.backoff()
        self._retrying[one] = self._loop.create_task(self._retry(one, backoff.next_seconds()))

    async def _retry(self, one: "RemoteLog", pause_seconds: float) -> None:
        await asyncio.sleep(pause_seconds)
        try:
            await self._cluster.refresh([one.topic])
        except KafkaError as error:
            one.queue.not_ready(str(error))
        del self._retrying[one]
        self._forget_idle(one)
        self.look_at(one)

    def _expire(self) -> None:
        now = self._loop.time()
        self._expiry = None
        for one in list(self._active):
            one.queue.expire(now)
            self._forget_idle(one)
        if self._active:
            self._expiry = self._loop.call_later(EXPIRY_SECONDS, self._expire)

    def _forget_idle(self, one: "RemoteLog") -> None:
        """Keep nothing of a log whose appends all have their outcome, for example because the topic was deleted."""
        if one.queue.state is State.IDLE:
            self._active.discard(one)
            self._backoffs.pop(one, None)


class _Sender:
    """The requests to one broker."""

    def __init__(self, producer: Producer, cluster: Cluster, node: int) -> None:
        self._producer = producer
        self._cluster = cluster
        self._node = node
        self._ready: dict[RemoteLog, None] = {}
        self._in_flight = 0
        self._connecting: asyncio.Task[None] | None = None

    def add(self, one: "RemoteLog") -> None:
        self._ready[one] = None

    def send(self) -> None:
        """Send what is ready, as far as the broker may have requests."""
        if not self._ready:
            return
        try:
            link = self._cluster.link(self._node, Purpose.PRODUCE)
        except NotSent as error:
            self._return_ready(str(error))
            return
        if link.current is None:
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._connect(link))
            return
        while self._ready and self._in_flight < REQUESTS_IN_FLIGHT_MAX:
            self._send_one(link)

    async def _connect(self, link: Link) -> None:
        try:
            await link.connection()
        except KafkaError as error:
            self._return_ready(str(error))
        finally:
            self._connecting = None
        self.send()

    def _return_ready(self, reason: str) -> None:
        ready, self._ready = self._ready, {}
        for one in ready:
            one.queue.not_ready(reason)
            self._producer.retry(one)

    def _send_one(self, link: Link) -> None:
        sent: dict[RemoteLog, memoryview] = {}
        topics: dict[tuple[str, bytes], list[PartitionProduceData]] = {}
        size = 0
        for one in list(self._ready):
            if size >= REQUEST_BYTES_MAX:
                break
            del self._ready[one]
            if one.queue.state is not State.READY or one.queue.needs_producer_id:
                self._producer.look_at(one)
                continue
            data = sent[one] = one.queue.take()
            size += len(data)
            topics.setdefault((one.topic, one.topic_id), []).append(
                PartitionProduceData(index=one.partition, records=data)
            )
        if not sent:
            return
        request = ProduceRequest(
            acks=ALL_COPIES,
            timeout_ms=REPLICATION_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=name, topic_id=topic_id, partition_data=data)
                for (name, topic_id), data in topics.items()
            ],
        )
        connection = link.current
        try:
            if connection is None:
                raise NotSent("the connection was lost")
            response = connection.send(PRODUCE, request)
        except KafkaError as error:
            for one in sent:
                one.queue.not_sent(str(error))
                self._producer.retry(one)
            return
        self._in_flight += 1
        response.add_done_callback(partial(self._answered, sent))

    def _answered(self, sent: "dict[RemoteLog, memoryview]", response: "asyncio.Future[Any]") -> None:
        self._in_flight -= 1
        error = None if response.cancelled() else response.exception()
        if response.cancelled() or error is not None:
            for one in sent:
                if one.queue.state is State.SENT:
                    one.queue.lost(str(error or "cancelled"))
                    self._producer.retry(one)
        else:
            self._take(sent, response.result())
        self.send()

    def _take(self, sent: "dict[RemoteLog, memoryview]", response: Any) -> None:
        by_key: dict[tuple[str | bytes, int], RemoteLog]
        by_key = {(one.topic_id, one.partition): one for one in sent if one.topic_id != ZERO_UUID}
        by_key |= {(one.topic, one.partition): one for one in sent}
        unanswered = dict.fromkeys(sent)
        for topic in response.responses:
            key = topic.name or bytes(topic.topic_id)
            for answer in topic.partition_responses:
                one = by_key.get((key, answer.index))
                if one is not None and unanswered.pop(one, one) is None and one.queue.state is State.SENT:
                    self._settle(one, sent[one], answer)
        for one in unanswered:
            if one.queue.state is State.SENT:
                one.queue.lost("the broker did not answer for the partition")
                self._producer.retry(one)

    def _settle(self, one: "RemoteLog", data: memoryview, answer: Any) -> None:
        code = answer.error_code
        if not code:
            header = parse_header(data)
            if answer.base_offset >= 0:
                one.stored(answer.base_offset, header.record_count, len(data), header.max_timestamp)
            one.queue.stored(answer.base_offset)
            self._producer.settle(one)
            return
        log.debug("broker %d did not store a batch of %r: error %d", self._node, one, code)
        is_over = one.queue.refused(code, answer.error_message)
        if code in STALE_METADATA:
            self._cluster.metadata.lose_leader(one.topic, one.partition, self._node)
        if one.queue.producer_id == NO_PRODUCER_ID:
            self._producer.forget_producer_id()
        if is_over:
            self._producer.settle(one)
        else:
            self._producer.retry(one)
