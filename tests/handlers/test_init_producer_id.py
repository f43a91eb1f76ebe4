"""InitProducerId: fresh ids, one for every call; ids that transactional producers keep."""

import errno
from pathlib import Path

import pytest

from kwire.errors import ErrorCode
from kwire.wire.apis import INIT_PRODUCER_ID
from tests.support.faulty_files import FaultyFiles
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.transactional_requests import init_request, sent, started

VERSIONS = list(INIT_PRODUCER_ID.versions)


@in_loop
async def test_every_call_gets_a_fresh_id_with_epoch_0(node: QuietNode) -> None:
    taken = []
    for version in VERSIONS:
        for asked in (init_request(None), init_request(None), init_request(None, producer_id=0, producer_epoch=5)):
            answer = await node.ask(asked, version)
            assert (answer.error_code, answer.producer_epoch, answer.throttle_time_ms) == (ErrorCode.NONE, 0, 0)
            taken.append(answer.producer_id)
    assert taken == list(range(3 * len(VERSIONS)))


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(node: QuietNode, version: int) -> None:
    first = await started(node, version=version)
    second = await started(node, version=version)
    other = await started(node, "other", version=version)
    assert second.producer_id == first.producer_id != other.producer_id
    assert (first.epoch, second.epoch, other.epoch) == (0, 1, 0)


@in_loop
async def test_id_outlives_a_restart(node: QuietNode) -> None:
    first = await started(node)
    node.restart()
    second = await started(node)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_what_makes_no_sense_is_refused(node: QuietNode, version: int) -> None:
    await node.topics.transactions_topic()
    refusals = [(init_request(""), ErrorCode.INVALID_REQUEST)]
    for timeout_ms in (0, -1, 900_001):
        refusals.append((init_request(timeout_ms=timeout_ms), ErrorCode.INVALID_TRANSACTION_TIMEOUT))
    if version >= 3:
        refusals.append((init_request(producer_id=7), ErrorCode.INVALID_REQUEST))
        refusals.append((init_request(producer_epoch=7), ErrorCode.INVALID_REQUEST))
    for asked, error in refusals:
        answer = await node.ask(asked, version)
        assert (ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch) == (error, -1, -1)


@pytest.mark.parametrize(
    ("version", "error"), [(3, "INVALID_PRODUCER_EPOCH"), (4, "PRODUCER_FENCED"), (5, "PRODUCER_FENCED")]
)
@in_loop
async def test_zombie_is_told_in_words_of_its_version(node: QuietNode, version: int, error: str) -> None:
    zombie = await started(node)
    for _ in range(2):  # one who is only one epoch behind may have lost the answer
        await started(node)
    answer = await node.ask(init_request("tx", zombie.producer_id, zombie.epoch), version)
    assert ErrorCode(answer.error_code).name == error


@in_loop
async def test_open_transaction_of_the_one_before_is_aborted(node: QuietNode) -> None:
    topic = await node.create("t")
    zombie = await started(node)
    assert await sent(node, zombie, topic, b"lost") is ErrorCode.NONE
    answer = await node.ask(init_request(), 5)
    while answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        answer = await node.ask(init_request(), 5)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.NONE, zombie.producer_id)
    assert answer.producer_epoch > zombie.epoch
    partition = topic.partitions[0]
    assert partition.last_stable_offset == partition.high_watermark == 2
    assert [one.producer_id for one in log_of(partition).aborted_between(0, 2)] == [zombie.producer_id]
    assert await sent(node, zombie, topic, b"late", sequence=1) is ErrorCode.INVALID_PRODUCER_EPOCH


@in_loop
async def test_producer_is_told_to_come_back_while_the_disk_is_full(tmp_path: Path) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        await node.topics.transactions_topic()
        files.break_down("pwrite", errno.ENOSPC)
        for version in VERSIONS:
            for transactional_id in (None, "tx"):
                answer = await node.ask(init_request(transactional_id), version)
                assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        files.repair()
        assert (await node.ask(init_request(None), 5)).error_code == ErrorCode.NONE
        assert (await node.ask(init_request(), 5)).error_code == ErrorCode.NONE
