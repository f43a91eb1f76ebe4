"""Event topics: created with their schemas in one commit, found after a restart, extended, deleted, created again."""

import asyncio
from typing import Any

import pytest

from kwire.broker.topics.catalogue import SCHEMAS_PREFIX
from kwire.broker.topics.topics import NewTopic
from kwire.errors import (
    ErrorCode,
    IncompatibleSchema,
    InvalidSchema,
    KafkaError,
    NotAnEventTopic,
    StreamError,
    TopicNotFound,
)
from kwire.streams.event_store import schema_store as schema_store_module
from kwire.streams.event_store.event_topics import EventTopics
from kwire.streams.event_store.schemas.worker import SchemaWorker
from storage.errors import DiskFailure
from tests.support.node import QuietNode, in_loop, run_here

CREATED = {"type": "user.created", "properties": {"id": {"type": "string"}}, "required": ["id"]}
DELETED = {"type": "user.deleted"}


def stored_ids(node: QuietNode) -> list[str]:
    return [key.removeprefix(SCHEMAS_PREFIX) for key, _ in node.metastore.entries(SCHEMAS_PREFIX)]


def code_of(error: Exception) -> str:
    if isinstance(error, KafkaError):
        return error.code.name
    assert isinstance(error, StreamError)
    return error.code


@pytest.mark.proves("S2-2", "S2-12", "S2-38")
@in_loop
async def test_a_topic_is_found_with_its_schemas_after_a_restart(node: QuietNode) -> None:
    made = await node.event_topics.create("users", [CREATED])
    await node.event_topics.create("audit", [DELETED], {"retention.ms": "5000"})
    node.restart()
    topics = node.event_topics
    assert topics.names() == ["audit", "users"]
    users = topics.find("users")
    assert users.topic_id == made.topic_id
    assert topics.schemas(users).as_json() == [CREATED]
    assert topics.schemas(topics.find("audit")).as_json() == [DELETED]
    assert users.settings.is_event_topic
    assert len(users.partitions) == 1
    assert topics.find("audit").settings.retention_ms == 5000


@in_loop
async def test_events_are_kept_for_ever_unless_the_topic_says_otherwise(node: QuietNode) -> None:
    settings = (await node.event_topics.create("users", [CREATED])).settings
    assert (settings.retention_ms, settings.retention_bytes, settings.retention_messages) == (-1, -1, -1)
    assert not settings.is_compacted


@pytest.mark.parametrize(
    ("name", "raw", "configs", "expected"),
    [
        ("users", [], {}, "InvalidSchema"),
        ("users", [{"type": "a", "minimum": "x"}], {}, "InvalidSchema"),
        ("users", [CREATED], {"cleanup.policy": "compact"}, "INVALID_CONFIG"),
        ("users", [CREATED], {"cleanup.policy": "compact,delete"}, "INVALID_CONFIG"),
        ("users", [CREATED], {"kwire.events": "true"}, "INVALID_CONFIG"),
        ("users", [CREATED], {"kwire.room": "true"}, "INVALID_CONFIG"),
        ("users", [CREATED], {"nonsense": "1"}, "INVALID_CONFIG"),
        ("us/ers", [CREATED], {}, "INVALID_TOPIC_EXCEPTION"),
        ("__events", [CREATED], {}, "INVALID_TOPIC_EXCEPTION"),
        ("kwire-audit", [CREATED], {}, "INVALID_TOPIC_EXCEPTION"),
        ("there", [CREATED], {}, "TOPIC_ALREADY_EXISTS"),
    ],
)
@in_loop
async def test_what_cannot_be_made_leaves_nothing(
    node: QuietNode, name: str, raw: object, configs: dict[str, str], expected: str
) -> None:
    await node.create("there")
    with pytest.raises((KafkaError, StreamError)) as caught:
        await node.event_topics.create(name, raw, configs)
    assert code_of(caught.value) == expected
    assert stored_ids(node) == []
    assert node.event_topics.names() == []


@in_loop
async def test_of_two_who_make_the_same_topic_one_succeeds_and_its_schemas_are_kept(node: QuietNode) -> None:
    topics = node.event_topics
    asked = [topics.create("users", [schema]) for schema in (CREATED, DELETED)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, KafkaError)]
    assert [one.code for one in refused] == [ErrorCode.TOPIC_ALREADY_EXISTS]
    (made,) = [one for one in outcomes if not isinstance(one, BaseException)]
    assert stored_ids(node) == [made.topic_id.hex()]
    assert topics.schemas(made).as_json() == [CREATED if outcomes[0] is made else DELETED]


@in_loop
async def test_a_topic_that_is_made_again_has_schemas_of_its_own(node: QuietNode) -> None:
    topics = node.event_topics
    first = await topics.create("users", [CREATED])
    await node.topics.delete(first)
    assert stored_ids(node) == []
    assert topics.names() == []
    with pytest.raises(TopicNotFound):
        topics.find("users")
    second = await topics.create("users", [DELETED])
    assert topics.schemas(second).types == ["user.deleted"]
    await node.topics.delete(second)
    await node.create("users")
    with pytest.raises(NotAnEventTopic):
        topics.find("users")


@in_loop
async def test_a_topic_without_schemas_takes_nothing(node: QuietNode) -> None:
    (bare,) = await node.topics.create([NewTopic("bare", 1, {"kwire.events": "true"})])
    with pytest.raises(NotAnEventTopic):
        node.event_topics.schemas(bare)


# --- evolution


@in_loop
async def test_schemas_grow_and_stay_grown(node: QuietNode) -> None:
    topics = node.event_topics
    users = await topics.create("users", [CREATED])
    assert (await topics.evolve(users, [DELETED], is_whole=False)).as_json() == [CREATED, DELETED]
    wider = {**CREATED, "properties": {**CREATED["properties"], "name": {"type": "string"}}}  # type: ignore[dict-item]
    await topics.evolve(users, [wider, DELETED], is_whole=True)
    assert topics.schemas(users).as_json() == [wider, DELETED]
    node.restart()
    topics = node.event_topics
    assert topics.schemas(topics.find("users")).as_json() == [wider, DELETED]


@in_loop
async def test_what_is_no_addition_changes_nothing(node: QuietNode) -> None:
    topics = node.event_topics
    users = await topics.create("users", [CREATED])
    with pytest.raises(IncompatibleSchema):
        await topics.evolve(users, [DELETED], is_whole=True)
    with pytest.raises(InvalidSchema):
        await topics.evolve(users, [{"type": "b", "minimum": "x"}], is_whole=False)
    assert topics.schemas(users).as_json() == [CREATED]


@in_loop
async def test_additions_at_the_same_time_are_all_kept(node: QuietNode) -> None:
    topics = node.event_topics
    users = await topics.create("users", [CREATED])
    added = [topics.evolve(users, [{"type": f"t{number}"}], is_whole=False) for number in range(4)]
    await asyncio.gather(*added)
    assert sorted(topics.schemas(users).types) == ["t0", "t1", "t2", "t3", "user.created"]


@in_loop
async def test_schemas_do_not_come_back_for_a_topic_that_is_deleted_meanwhile(node: QuietNode) -> None:
    topics: EventTopics
    is_deleted = False

    async def slow(function: Any, *args: Any) -> Any:
        nonlocal is_deleted
        if topics.names() and not is_deleted:
            is_deleted = True
            await node.topics.delete(topics.find("users"))
        return function(*args)

    topics = EventTopics(node.topics, node.metastore, slow)
    users = await topics.create("users", [CREATED])
    with pytest.raises(TopicNotFound):
        await topics.evolve(users, [DELETED], is_whole=False)
    assert stored_ids(node) == []


@in_loop
async def test_a_change_that_the_disk_refuses_is_not_in_force(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = node.event_topics
    users = await topics.create("users", [CREATED])

    async def fail(changes: object) -> int:
        raise DiskFailure("no")

    monkeypatch.setattr(node.metastore, "commit", fail)
    with pytest.raises(KafkaError) as caught:
        await topics.evolve(users, [DELETED], is_whole=False)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert topics.schemas(users).as_json() == [CREATED]


# --- bounds


@in_loop
async def test_only_so_many_topics_are_kept_compiled(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_store_module, "COMPILED_MAX", 2)
    topics = node.event_topics
    made = [await topics.create(f"t{number}", [{"type": f"made{number}"}]) for number in range(4)]
    for _ in range(2):
        for number, topic in enumerate(made):
            assert topics.schemas(topic).types == [f"made{number}"]
            assert len(topics._compiled) <= 2


@in_loop
async def test_large_schemas_are_kept_compiled_in_smaller_numbers(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_store_module, "COMPILED_JSON_BYTES_MAX", 2500)
    topics = node.event_topics
    made = [await topics.create(f"t{number}", [{"type": f"made{number}", "title": "x" * 1000}]) for number in range(4)]
    for topic in made:
        assert len(topics.schemas(topic).types) == 1
    assert list(topics._compiled) == [topic.topic_id for topic in made[2:]]
    await topics.evolve(made[3], [{"type": "more"}], is_whole=False)
    assert topics._compiled_bytes == sum(schemas.size_bytes for schemas, _ in topics._compiled.values())
    # Schemas larger than the whole cache work too.
    huge = await topics.create("huge", [{"type": "huge", "title": "x" * 5000}])
    assert topics.schemas(huge).types == ["huge"]
    assert not topics._compiled
    assert topics._compiled_bytes == 0


@in_loop
async def test_only_so_many_schemas_wait_to_be_judged(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_store_module, "PENDING_VALIDATIONS_MAX", 1)
    going = asyncio.Event()

    async def wait(function: Any, *args: Any) -> Any:
        await going.wait()
        return await run_here(function, *args)

    topics = EventTopics(node.topics, node.metastore, wait)
    first = asyncio.ensure_future(topics.create("a", [CREATED]))
    await asyncio.sleep(0)
    with pytest.raises(KafkaError) as caught:
        await topics.create("b", [CREATED])
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    going.set()
    assert (await first).name == "a"


@in_loop
async def test_a_worker_judges_schemas_in_its_own_process(node: QuietNode) -> None:
    worker = SchemaWorker()
    topics = EventTopics(node.topics, node.metastore, worker.run)
    try:
        users = await topics.create("users", [CREATED])
        assert topics.schemas(users).as_json() == [CREATED]
        with pytest.raises(InvalidSchema) as caught:
            await topics.create("others", [{"type": "a", "properties": {"b": {"minimum": "x"}}}])
        assert caught.value.path == "$[0].properties.b.minimum"
    finally:
        await worker.close()
    with pytest.raises(KafkaError) as closed:
        await topics.create("late", [CREATED])
    assert closed.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
