"""The first use of many remote logs: what is asked about them at the same time shares requests."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.connection import Connection
from kwire.streams.log import Usage
from kwire.wire.schema import Api
from storage.batch.record_batch import Record
from tests.support.engines import append_batch
from tests.support.node import in_uvloop, running_node
from tests.support.remote_worlds import remote_logs
from tests.support.stream_worlds import NOW_MS

LOGS = 60


@in_uvloop
async def test_logs_that_are_used_together_share_requests_and_have_their_own_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: Counter[str] = Counter()
    send = Connection.send

    def counted(connection: Connection, api: Api, message: Any, **options: Any) -> "asyncio.Future[Any]":
        sent[api.name] += 1
        return send(connection, api, message, **options)

    monkeypatch.setattr(Connection, "send", counted)
    async with running_node(tmp_path, "log.retention.ms=-1") as node:
        address = node.kafka_listeners[0].address
        names = [f"room-{number}" for number in range(LOGS)]
        with remote_logs(address) as logs:
            await asyncio.gather(*(logs.admin.create_topic(name, 1) for name in names))
            opened = await asyncio.gather(*(logs.open(name) for name in names))
            for number, log in enumerate(opened[:5]):
                for _ in range(number):
                    await append_batch(log, [Record(None, b"event", NOW_MS + number)])
            await logs.close()
        sent.clear()
        with remote_logs(address) as logs:
            opened = await asyncio.gather(*(logs.open(name) for name in names))
            await asyncio.gather(*(log.ready() for log in opened))
            # The bounds and the newest timestamp are four questions for each log.
            assert sent["ListOffsets"] <= 8, sent
            assert sent["DescribeLogDirs"] <= 2, sent
            assert sent["DescribeConfigs"] <= 2, sent
            assert [log.bounds() for log in opened[:6]] == [(0, number, number) for number in (0, 1, 2, 3, 4, 0)]
            assert opened[0].usage() == Usage(0, None)
            assert opened[4].usage().last_timestamp_ms == NOW_MS + 4
            assert opened[4].usage().size_bytes == 2 * opened[2].usage().size_bytes > 0
            # The error of one log is not that of the others.
            await logs.admin.delete_topic(names[0])
            asked = await asyncio.gather(*(log.ask_bounds() for log in opened[:5]), return_exceptions=True)
            assert isinstance(asked[0], KafkaError)
            assert asked[0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert asked[1:] == [None] * 4
            await logs.close()
