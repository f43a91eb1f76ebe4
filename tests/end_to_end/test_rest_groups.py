"""Consumer groups over HTTP against a real server: Kafka's tools see them, Kafka's clients get along with them, and a
kill of the server loses nothing that was answered."""

from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import CommitFailedError, NoError, UnknownMemberIdError
from kafka.structs import OffsetAndMetadata

from tests.support.clients import DEADLINE_S, unique_name
from tests.support.rest_groups import RestError, RestGroups
from tests.support.server import KwireProcess, wait_until

PARTITIONS = 4
# kafka-python 3.0.12 may forget a join that ends between two polls, though it was answered, and has no partitions from
# then on; it does so with Apache Kafka too.
POLL_MS = 1_000


@pytest.fixture
def rest(kwire: KwireProcess) -> RestGroups:
    return RestGroups(kwire)


@pytest.fixture
def topic(rest: RestGroups) -> str:
    name = unique_name("rest-groups")
    rest.create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def admin(kwire: KwireProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kwire.bootstrap)
    yield client
    client.close()


def position(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


def described(process: KwireProcess, group: str) -> ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    found: ConsumerGroupDescription = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    return found


def classic_consumer(process: KwireProcess, group: str, topic: str) -> KafkaConsumer:
    """It may join before it knows how many partitions the topic has, and then gets none until it looks again."""
    return KafkaConsumer(
        topic,
        bootstrap_servers=process.bootstrap,
        group_id=group,
        enable_auto_commit=False,
        metadata_max_age_ms=500,
    )


@pytest.mark.proves("S0-85", "S0-92", "S0-1")
def test_events_are_published_consumed_and_committed_by_a_group(rest: RestGroups, topic: str) -> None:
    group = unique_name("group")
    sent = {f"v{number}" for number in range(40)}
    for one in sorted(sent):
        rest.publish(topic, one, key=one)
    rest.create(group, topic, partition_count=PARTITIONS)
    members = [rest.join(group) for _ in range(2)]
    received = set()
    for partitions in rest.settled(group, members):
        for partition in partitions:
            events = rest.consume(topic, partition, 0)
            received |= {one["data"] for one in events}
            rest.commit(group, partition, events[-1]["offset"] + 1 if events else 0)
    assert received == sent
    stats = rest.stats(group)
    assert (stats["state"], stats["member_count"], stats["committed_partitions"]) == ("Stable", 2, PARTITIONS)
    assert sum(rest.committed(group, partition) or 0 for partition in range(PARTITIONS)) == len(sent)


def test_kafkas_tools_see_groups_members_and_offsets(
    kwire: KwireProcess, rest: RestGroups, admin: KafkaAdminClient, topic: str
) -> None:
    group = unique_name("group")
    rest.create(group, topic, strategy="range")

    def listed() -> dict[str, str]:
        return {one["group_id"]: one["group_state"] for one in admin.list_groups()}

    assert listed()[group] == "Empty"
    members = [rest.join(group) for _ in range(2)]
    shares = rest.settled(group, members)
    rest.commit(group, 0, 11)
    rest.commit(group, 3, 33, member_id=members[0])
    assert listed()[group] == "Stable"
    found = admin.list_group_offsets({group: None})[group]
    assert {place.partition: one.offset for place, one in found.items()} == {0: 11, 3: 33}
    seen = described(kwire, group)
    assert (seen.type, seen.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
    assert seen.partition_assignor == "range"
    assigned = {
        one.member_id: sorted(place.partition for place in one.assignment.topic_partitions) for one in seen.members
    }
    assert assigned == dict(zip(members, shares, strict=True))


def test_offsets_are_altered_from_either_side_as_kafka_allows_it(
    rest: RestGroups, admin: KafkaAdminClient, topic: str
) -> None:
    group, place = unique_name("group"), TopicPartition(topic, 0)
    rest.create(group, topic)
    assert admin.alter_group_offsets(group, {place: position(7)}) == {place: NoError}
    assert rest.committed(group, 0) == 7
    member = rest.join(group)
    # Kafka's rule: an administrator, or a consumer that assigns itself, has to wait until nobody is in the group.
    assert admin.alter_group_offsets(group, {place: position(8)}) == {place: UnknownMemberIdError}
    rest.commit(group, 0, 9)
    assert rest.committed(group, 0) == 9
    rest.ask("DELETE", f"/consumer-groups/{group}/members/{member}/leave")
    assert admin.alter_group_offsets(group, {place: position(10)}) == {place: NoError}
    assert rest.committed(group, 0) == 10


def test_a_kafka_consumer_without_a_membership_commits_only_in_an_empty_group(
    kwire: KwireProcess, rest: RestGroups, topic: str
) -> None:
    group, place = unique_name("group"), TopicPartition(topic, 1)
    rest.create(group, topic)
    consumer = KafkaConsumer(bootstrap_servers=kwire.bootstrap, group_id=group, enable_auto_commit=False)
    try:
        consumer.assign([place])
        consumer.commit({place: position(3)})
        assert rest.committed(group, 1) == 3
        rest.join(group)
        with pytest.raises((CommitFailedError, UnknownMemberIdError)):
            consumer.commit({place: position(4)})
        assert rest.committed(group, 1) == 3
    finally:
        consumer.close()


def test_a_kafka_member_and_a_rest_member_share_the_partitions(
    kwire: KwireProcess, rest: RestGroups, topic: str
) -> None:
    group = unique_name("group")
    rest.create(group, topic, strategy="range", session_timeout_secs=60)
    member = rest.join(group)
    assert rest.settled(group, [member]) == [[0, 1, 2, 3]]
    consumer = Consumer(
        {
            "bootstrap.servers": kwire.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])

        def shares() -> list[list[int]]:
            consumer.poll(0.05)
            return [
                rest.assignment(group, member)["partitions"],
                sorted(one.partition for one in consumer.assignment()),
            ]

        wait_until(lambda: sorted(map(len, shares())) == [2, 2], "both have two", DEADLINE_S)
        theirs = [one.partition for one in consumer.assignment()]
        assert sorted(shares()[0] + theirs) == [0, 1, 2, 3]
        consumer.commit(offsets=[Place(topic, theirs[0], 5)], asynchronous=False)
        assert rest.committed(group, theirs[0]) == 5
    finally:
        consumer.close()
    assert rest.settled(group, [member]) == [[0, 1, 2, 3]]


def test_a_classic_consumer_joins_beside_a_rest_member_while_groups_may_migrate(
    kwire: KwireProcess, rest: RestGroups, topic: str
) -> None:
    group = unique_name("group")
    rest.create(group, topic)
    member = rest.join(group)
    consumer = classic_consumer(kwire, group, topic)
    try:

        def shares() -> list[int]:
            consumer.poll(POLL_MS)
            return sorted([len(rest.assignment(group, member)["partitions"]), len(consumer.assignment())])

        wait_until(lambda: shares() == [2, 2], "both have two", DEADLINE_S)
        (classic,) = {one.member_id for one in described(kwire, group).members} - {member}
        # A member that speaks for itself is nobody else's to speak for.
        for method, path in (("POST", "heartbeat"), ("DELETE", "leave")):
            with pytest.raises(RestError) as refused:
                rest.ask(method, f"/consumer-groups/{group}/members/{classic}/{path}")
            assert (refused.value.status, refused.value.code) == (404, "UNKNOWN_MEMBER_ID")
    finally:
        consumer.close()


def test_where_groups_may_not_migrate_the_kinds_keep_apart(start_kwire: Callable[..., KwireProcess]) -> None:
    process = start_kwire(settings={"group.consumer.migration.policy": "disabled"})
    rest = RestGroups(process)
    rest.create_topic("t", 1)
    rest.create("g", "t")
    consumer = classic_consumer(process, "g", "t")
    try:
        wait_until(lambda: consumer.poll(POLL_MS) == {} and consumer.assignment() != set(), "it has joined", DEADLINE_S)
        with pytest.raises(RestError) as refused:
            rest.join("g")
        assert (refused.value.status, refused.value.code) == (409, "INCONSISTENT_GROUP_PROTOCOL")
        with pytest.raises(RestError) as refused:
            rest.commit("g", 0, 1)
        assert (refused.value.status, refused.value.code) == (409, "INCONSISTENT_GROUP_PROTOCOL")
        assert rest.stats("g")["member_count"] == 1
        with pytest.raises(RestError) as refused:
            rest.ask("POST", "/consumer-groups/other", {"topic": "nowhere"})
        assert refused.value.status == 404
    finally:
        consumer.close()
    wait_until(lambda: rest.stats("g")["member_count"] == 0, "it has left", DEADLINE_S)
    assert rest.settled("g", [rest.join("g")]) == [[0]]


def test_sessions_end_by_themselves(rest: RestGroups, topic: str) -> None:
    group = unique_name("group")
    rest.create(group, topic)
    silent, alive = rest.join(group, session_timeout_secs=1), rest.join(group)
    rest.settled(group, [silent, alive])
    found = wait_until(
        lambda: rest.assignment(group, alive)["partitions"] == [0, 1, 2, 3], "the other is out", DEADLINE_S
    )
    assert found
    with pytest.raises(RestError) as refused:
        rest.assignment(group, silent)
    assert (refused.value.status, refused.value.code) == (404, "UNKNOWN_MEMBER_ID")


def test_a_kill_loses_neither_definition_nor_members_nor_commits(killable: KwireProcess) -> None:
    rest, topic, group = RestGroups(killable), unique_name("orders"), unique_name("group")
    rest.create_topic(topic, PARTITIONS)
    rest.create(group, topic, strategy="sticky", session_timeout_secs=120)
    members = [rest.join(group) for _ in range(2)]
    shares = rest.settled(group, members)
    stats = rest.stats(group)
    for number in range(1, 4):
        for partition in range(PARTITIONS):
            rest.commit(
                group, partition, 10 * number + partition, member_id=members[0] if partition in shares[0] else None
            )
        killable.kill()
        killable.restart()
        assert [rest.committed(group, partition) for partition in range(PARTITIONS)] == [
            10 * number + partition for partition in range(PARTITIONS)
        ]
        assert rest.settled(group, members) == shares
        # The same definition again is no error, another one is: the group is known.
        rest.create(group, topic, strategy="sticky", session_timeout_secs=120)
        with pytest.raises(RestError) as refused:
            rest.create(group, topic, strategy="range")
        assert refused.value.status == 409
        found = rest.stats(group)
        assert found.pop("last_rebalance_secs") >= 0
        expected = {**stats, "committed_partitions": PARTITIONS}
        del expected["last_rebalance_secs"]
        assert found == expected


def test_a_stream_goes_on_after_a_kill_and_after_a_stop_where_it_had_committed(
    killable: KwireProcess,
) -> None:
    rest, topic, group = RestGroups(killable), unique_name("streamed"), unique_name("group")
    rest.create_topic(topic, 1)
    rest.create(group, topic, session_timeout_secs=120)
    member = rest.join(group)
    for number in range(6):
        rest.publish(topic, number)

    def taken(query: str, count: int) -> list[int]:
        with rest.stream(group, member, query) as lines:
            return [one["data"] for one in islice((one for one in lines if "control" not in one), count)]

    with rest.stream(group, member, "?limit=2") as lines:
        assert [one["data"] for one in lines if "control" not in one] == [0, 1]
    # A client that goes away has committed nothing of what it took.
    assert taken("", 2) == [2, 3]
    killable.kill()
    killable.restart()
    assert taken("?auto_commit=false", 2) == [2, 3]
    # A server that stops commits what it has sent.
    with rest.stream(group, member) as lines:
        events = (one for one in lines if "control" not in one)
        assert [one["data"] for one in islice(events, 4)] == [2, 3, 4, 5]
        assert killable.stop() == 0
    killable.restart()
    assert rest.committed(group, 0) == 6
