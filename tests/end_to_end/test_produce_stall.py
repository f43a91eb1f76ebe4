"""One Produce request of very many tiny records does not stop the server for everybody else."""

import asyncio
from collections.abc import Callable

import pytest

from kwire.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire.wire.messages.metadata import MetadataRequest
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.batch.format import ZSTD
from storage.batch.record_batch import Record, build_batch
from tests.end_to_end.test_http import metrics
from tests.server.frames import Client
from tests.support.effort import Effort, chosen_effort
from tests.support.server import KwireProcess

RECORDS_PER_BATCH = 100_000
# To check one of these batches takes a tenth of a second.
BATCHES = 25 if chosen_effort() is Effort.QUICK else 300
STALL_SECONDS_MAX = 1.0
DEADLINE_S = 90.0
NONE, REQUEST_TIMED_OUT = 0, 7


@pytest.mark.parametrize("key", [b"k", None], ids=["good", "refused"])
def test_a_request_of_many_tiny_records_for_a_compacted_topic(
    start_kwire: Callable[..., KwireProcess], monkeypatch: pytest.MonkeyPatch, key: bytes | None
) -> None:
    monkeypatch.setattr("tests.server.frames.RECEIVE_TIMEOUT_S", DEADLINE_S)
    process = start_kwire()
    asyncio.run(asyncio.wait_for(_attack(process, key), DEADLINE_S))
    stall = metrics(process)["kwire_loop_stall_seconds_max"].samples[0].value
    print(f"the longest stall took {stall:.3f} s")
    assert stall < STALL_SECONDS_MAX


async def _attack(process: KwireProcess, key: bytes | None) -> None:
    assert process.kafka_port is not None
    async with await Client.connect(process.kafka_port) as attacker, await Client.connect(process.kafka_port) as good:
        compacted = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
        topic = CreatableTopic(
            name="t", num_partitions=BATCHES, replication_factor=1, assignments=[], configs=compacted
        )
        await good.ask(CreateTopicsRequest(topics=[topic]), 5)
        batch = memoryview(build_batch([Record(key, b"", 0)] * RECORDS_PER_BATCH, compression=ZSTD))
        data = [PartitionProduceData(index=index, records=batch) for index in range(BATCHES)]
        attacker.send(
            ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=data)]), 9
        )
        receiving = asyncio.ensure_future(attacker.receive())
        asked = 0
        while not receiving.done():
            await good.ask(MetadataRequest(topics=None), 9)
            asked += 1
            await asyncio.sleep(0.01)
        answers = (await receiving).responses[0].partition_responses
        assert asked > 1, "others are served meanwhile"
        codes = {one.error_code for one in answers}
        # A worker that gets no processor time may not be done within the request's time-out.
        assert codes <= {NONE if key else 87, REQUEST_TIMED_OUT}
        assert answers[0].error_code != REQUEST_TIMED_OUT
        assert (answers[0].base_offset == 0) is (key is not None)
