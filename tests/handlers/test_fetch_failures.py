"""A Fetch that fails while it waits for records is answered all the same."""

import asyncio
import logging

import pytest

from kwire.errors import ErrorCode
from kwire.wire.apis import FETCH
from tests.handlers.test_fetch import LONG_MS, append, at, request
from tests.support.node import QuietNode, in_every_version, in_loop, received

ANSWER_TIMEOUT_S = 5.0


def explode(*_: object, **__: object) -> None:
    raise RuntimeError("planted")


@in_every_version(FETCH)
@in_loop
async def test_fetch_that_fails_while_it_waits_is_answered_with_an_error(
    node: QuietNode, version: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await node.create_partition()
    topic = node.topics.get("t")
    asked = request(topic, at(0), max_wait_ms=LONG_MS, session_epoch=-1)
    waiting = asyncio.ensure_future(node.start(asked, version))
    await asyncio.sleep(0)
    monkeypatch.setattr(type(partition), "read", explode)
    with caplog.at_level(logging.ERROR, "kwire.handlers"):
        append(partition)
        answer = received(await asyncio.wait_for(waiting, ANSWER_TIMEOUT_S), version)
    assert "Fetch failed while it waited" in caplog.text
    assert "planted" in caplog.text
    if version >= 7:
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    if version < 13:
        codes = [one.error_code for one in answer.responses[0].partitions]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR]
