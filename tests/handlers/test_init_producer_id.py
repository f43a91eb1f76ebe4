"""InitProducerId: fresh ids, one for every call."""

import errno
from pathlib import Path

from kwire.errors import ErrorCode
from kwire.wire.apis import INIT_PRODUCER_ID
from kwire.wire.messages.init_producer_id import InitProducerIdRequest
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop


def request(
    transactional_id: str | None = None, producer_id: int = -1, producer_epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


@in_loop
async def test_every_call_gets_a_fresh_id_with_epoch_0(node: QuietNode) -> None:
    taken = []
    for version in INIT_PRODUCER_ID.versions:
        for asked in (request(), request(), request(producer_id=0, producer_epoch=5)):
            answer = await node.ask(asked, version)
            assert (answer.error_code, answer.producer_epoch, answer.throttle_time_ms) == (ErrorCode.NONE, 0, 0)
            taken.append(answer.producer_id)
    assert taken == list(range(3 * len(list(INIT_PRODUCER_ID.versions))))


@in_loop
async def test_transactional_ids_are_refused(node: QuietNode) -> None:
    for version in INIT_PRODUCER_ID.versions:
        for transactional_id in ("tx", ""):
            answer = await node.ask(request(transactional_id), version)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@in_loop
async def test_producer_is_told_to_come_back_while_the_disk_is_full(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        files.break_down("pwrite", errno.ENOSPC)
        for version in INIT_PRODUCER_ID.versions:
            answer = await node.ask(request(), version)
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        files.repair()
        assert (await node.ask(request(), 5)).error_code == ErrorCode.NONE
