"""What the producer keeps of logs that it has finished with."""

from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from kwire.kafka_client.admin import Admin
from kwire.wire.messages.produce import PRODUCE, ProduceRequest, ProduceResponse
from tests.support.edited_responses import edit_responses
from tests.support.node import in_uvloop, running_node
from tests.support.remote_worlds import remote_logs, until
from tests.support.stream_worlds import NOW_MS, Appends


@in_uvloop
async def test_a_topic_that_is_deleted_while_appends_are_repeated_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path) as node:
        with remote_logs(node.kafka_listeners[0].address) as logs:
            await Admin(logs.cluster).create_topic("orders", 1)
            log = await logs.open("orders")
            await log.ready()

            def refuse(_: ProduceRequest, response: ProduceResponse) -> ProduceResponse:
                response.responses[0].partition_responses[0].error_code = ErrorCode.NOT_ENOUGH_REPLICAS
                return response

            edit_responses(monkeypatch, {PRODUCE: refuse})
            appends, producer = Appends(), logs.producer
            appends.send(log, b"event", at_ms=NOW_MS)
            await until(lambda: producer._retrying)
            log.delete()
            await until(lambda: not producer._retrying)
            assert len(appends) == 1
            assert not producer._backoffs
            assert not producer._active
            await logs.close()
