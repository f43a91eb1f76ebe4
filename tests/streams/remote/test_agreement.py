"""Whether a topic was deleted: what several brokers say, of which some lag behind or do not answer."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.backoff import Backoff
from kwire.kafka_client.cluster import Cluster
from kwire.streams.remote import agreement
from kwire.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.support.node import in_loop

TOPIC_ID, SUCCESSOR_ID, MISSING, DOWN = b"1" * 16, b"2" * 16, b"", None
Answers = Sequence[bytes | None]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "DELETION_SECONDS", 0.1)


def cluster_that_says(rounds: Sequence[Answers], monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """What each broker says in each round; the last round is repeated."""
    asked = -1

    async def refresh() -> None:
        nonlocal asked
        asked += 1

    async def response_of(cluster: Cluster, node: int, topic: str) -> MetadataResponse | None:
        answer = rounds[min(asked, len(rounds) - 1)][node]
        if answer is DOWN:
            return None
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if answer == MISSING else ErrorCode.NONE
        return cast(MetadataResponse, SimpleNamespace(topics=[topic_with(code, answer)]))

    monkeypatch.setattr(agreement, "_response_of", response_of)
    fake: Any = SimpleNamespace(
        refresh=refresh,
        metadata=SimpleNamespace(brokers=dict.fromkeys(range(len(rounds[0])))),
        backoff=lambda: Backoff(lambda: 0.5),
    )
    return cast(Cluster, fake)


def topic_with(code: int, topic_id: bytes) -> MetadataResponseTopic:
    return cast(MetadataResponseTopic, SimpleNamespace(error_code=code, topic_id=topic_id))


@in_loop
@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([[MISSING, MISSING, MISSING]], True),
        ([[MISSING]], True),
        ([[MISSING, MISSING, DOWN]], True),
        ([[SUCCESSOR_ID, SUCCESSOR_ID]], True),
        ([[SUCCESSOR_ID, MISSING]], True),
        ([[MISSING, TOPIC_ID, MISSING]], False),
        ([[SUCCESSOR_ID, TOPIC_ID]], False),
        ([[MISSING, MISSING], [MISSING, TOPIC_ID]], False),
    ],
)
async def test_a_topic_is_deleted_if_no_broker_describes_it(
    rounds: Sequence[Answers], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await agreement.is_deleted(cluster_that_says(rounds, monkeypatch), "t", TOPIC_ID) is expected


@in_loop
async def test_one_broker_of_several_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaError, match="too few brokers answer"):
        await agreement.is_deleted(cluster_that_says([[MISSING, DOWN, DOWN]], monkeypatch), "t", TOPIC_ID)
