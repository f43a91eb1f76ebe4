"""EndTxn: transactions end as asked, once, and readers of committed data see it."""

import pytest

from kwire.errors import ErrorCode
from kwire.wire.apis import END_TXN
from tests.support.hooked_node import until
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of
from tests.support.transactional_requests import V1, added, ended, next_of, sent, started

FIRST_GENERATION = [version for version in END_TXN.versions if version < 5]


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", FIRST_GENERATION)
@in_loop
async def test_first_generation_keeps_its_epoch(node: QuietNode, version: int, is_commit: bool) -> None:
    topic = await node.create("t")
    producer = await started(node)
    for turn in range(3):
        assert await added(node, producer, "t", 0) == [ErrorCode.NONE]
        assert await sent(node, producer, topic, b"one", sequence=turn, version=V1) is ErrorCode.NONE
        assert topic.partitions[0].last_stable_offset == 2 * turn
        answer = await ended(node, producer, is_commit=is_commit, version=version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, -1, -1)
        assert topic.partitions[0].last_stable_offset == 2 * turn + 2
    aborted = log_of(topic.partitions[0]).aborted_between(0, 6)
    assert [(one.first_offset, one.last_offset) for one in aborted] == ([] if is_commit else [(0, 1), (2, 3), (4, 5)])


@pytest.mark.parametrize("is_commit", [True, False])
@in_loop
async def test_second_generation_gets_an_epoch_for_each_transaction(node: QuietNode, is_commit: bool) -> None:
    topic = await node.create("t")
    producer = await started(node)
    for turn in range(3):
        assert await sent(node, producer, topic, b"one") is ErrorCode.NONE
        following = next_of(producer, await ended(node, producer, is_commit=is_commit))
        assert (following.producer_id, following.epoch) == (producer.producer_id, producer.epoch + 1)
        # A request of the transaction that is over does not slip into the next one.
        assert await sent(node, producer, topic, b"late", sequence=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        producer = following
        assert topic.partitions[0].last_stable_offset == 2 * turn + 2


@in_loop
async def test_end_that_is_asked_for_twice_is_answered_twice_and_decided_once(node: QuietNode) -> None:
    topic = await node.create("t")
    producer = await started(node)
    assert await sent(node, producer, topic, b"one") is ErrorCode.NONE
    first = await ended(node, producer)
    again = await ended(node, producer)
    assert again == first
    assert topic.partitions[0].high_watermark == 2
    other = await ended(node, producer, is_commit=False)
    assert ErrorCode(other.error_code) in (ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("version", FIRST_GENERATION)
@in_loop
async def test_abort_after_a_commit_is_refused_if_nothing_has_begun(node: QuietNode, version: int) -> None:
    # As it comes from a client whose AddPartitionsToTxn went away with a server; it cannot be told from an abort of the
    # committed transaction.
    topic = await node.create("t")
    producer = await started(node)
    assert await added(node, producer, "t", 0) == [ErrorCode.NONE]
    assert await sent(node, producer, topic, b"one", version=V1) is ErrorCode.NONE
    assert (await ended(node, producer, version=version)).error_code == ErrorCode.NONE
    answer = await ended(node, producer, is_commit=False, version=version)
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("version", "error"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED"), (5, "PRODUCER_FENCED")]
)
@in_loop
async def test_zombie_is_told_in_words_of_its_version(node: QuietNode, version: int, error: str) -> None:
    zombie = await started(node)
    for _ in range(3):
        await started(node)
    answer = await ended(node, zombie, version=version)
    assert ErrorCode(answer.error_code).name == error


@in_loop
async def test_unknown_id_is_refused(node: QuietNode) -> None:
    producer = await started(node)
    answer = await ended(node, producer._replace(transactional_id="nobody"))
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("is_commit", [True, False])
@in_loop
async def test_restart_between_decision_and_markers_completes_them(node: QuietNode, is_commit: bool) -> None:
    topic = await node.create("t")
    producer = await started(node)
    assert await sent(node, producer, topic, b"one") is ErrorCode.NONE
    node.markers.write_all = lambda request, done: None  # type: ignore[method-assign]  # killed before they are written
    node.transactions._write_markers = node.markers.write_all
    assert (await ended(node, producer, is_commit=is_commit)).error_code == ErrorCode.NONE
    assert topic.partitions[0].last_stable_offset == 0
    node.restart()
    node.transactions.load()
    topic = node.topics.get("t")  # type: ignore[assignment]
    await until(lambda: topic.partitions[0].last_stable_offset == 2)
    assert len(log_of(topic.partitions[0]).aborted_between(0, 2)) == (0 if is_commit else 1)
