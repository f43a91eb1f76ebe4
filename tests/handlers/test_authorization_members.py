"""Rights that members lose, and what they match by a regular expression."""

import asyncio
import inspect
import struct

import pytest

from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import Principal
from kwire.coordinator.group.consumer.group import ConsumerGroup
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.handlers.offset_commit import OffsetCommitTemplateCache
from kwire.handlers.shared.context import DeferredFrame
from kwire.wire.apis import OFFSET_COMMIT
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
)
from tests.support.group_access import (
    ADMIN,
    ALICE,
    BOB,
    CONSUMERS,
    DESCRIBE,
    READ,
    REFUSALS,
    TOPIC,
    RestrictedNode,
    Right,
    World,
    codes,
    commit_request,
    consumer_join,
    group_right,
    prepared,
    topic_right,
)
from tests.support.node import in_every_version, in_loop

# Rights that are taken away


@in_loop
async def test_a_member_that_loses_read_is_refused_at_its_next_heartbeat(restricted: RestrictedNode) -> None:
    await prepared(restricted)
    group, topic = group_right(READ, CONSUMERS).acl(), topic_right(DESCRIBE).acl()
    await restricted.set_acls([group, topic])
    joined = await restricted.ask(consumer_join("mine", names=[TOPIC]), 1)
    assert joined.error_code == ErrorCode.NONE
    beat = ConsumerGroupHeartbeatRequest(group_id=CONSUMERS, member_id="mine", member_epoch=joined.member_epoch)
    assert (await restricted.ask(beat, 1)).error_code == ErrorCode.NONE
    await restricted.set_acls([topic])
    assert (await restricted.ask(beat, 1)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def completed(deferred: DeferredFrame) -> bytes:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    deferred.on_complete(future.set_result)
    return await future


class Committer:
    """A connection that repeats an OffsetCommit, as the server handles it: by the template if the request fits."""

    def __init__(self, restricted: RestrictedNode, world: World, version: int = 9) -> None:
        self.context = restricted.context(version)
        self.cache = OffsetCommitTemplateCache()
        self.template_count = 0
        self._request = commit_request(world, version, TOPIC)

    async def commit(self) -> ErrorCode:
        version = self.context.api_version
        body = encode_message(self._request, version)
        tags = bytes(version >= OFFSET_COMMIT.first_flexible)
        frame = memoryview(bytearray(struct.pack(">hhih4s", OFFSET_COMMIT.key, version, 1, 4, b"test") + tags + body))
        answer = self.cache.answer(frame)
        if answer is not None:
            self.template_count += 1
            frame_bytes = answer if isinstance(answer, bytes) else await completed(answer)
            response = decode_message(
                OFFSET_COMMIT.response, version, memoryview(bytearray(frame_bytes[8 + len(tags) :]))
            )
        else:
            request = decode_message(OffsetCommitRequest, version, memoryview(bytearray(body)))
            response = HANDLERS[OFFSET_COMMIT.key].handle(self.context, request)
            if inspect.isawaitable(response):
                response = await response
            self.cache.update(self.context, frame, request, response)
        (error,) = codes(response)
        return error


@in_every_version(OFFSET_COMMIT)
@pytest.mark.parametrize("lost", [group_right(READ), topic_right(READ)], ids=["group", "topic"])
@in_loop
async def test_a_lost_right_acts_on_a_template(restricted: RestrictedNode, lost: Right, version: int) -> None:
    world = await prepared(restricted)
    every = [group_right(READ).acl(), topic_right(READ).acl()]
    await restricted.set_acls(every)
    committer = Committer(restricted, world, version)
    assert [await committer.commit() for _ in range(4)] == [ErrorCode.NONE] * 4
    assert committer.template_count == 2
    await restricted.set_acls([one for one in every if one != lost.acl()])
    # Refused requests make no template, however often they are repeated.
    assert [await committer.commit() for _ in range(4)] == [REFUSALS[lost.resource_type]] * 4
    assert committer.template_count == 2
    await restricted.set_acls(every)
    assert [await committer.commit() for _ in range(4)] == [ErrorCode.NONE] * 4
    assert committer.template_count > 2


# Subscriptions by regular expression


class Reader:
    """A member with an expression. It has no partition to give up, so it confirms every revocation at once."""

    def __init__(
        self, restricted: RestrictedNode, member_id: str, principal: Principal = ALICE, regex: str = "topic-.*"
    ) -> None:
        self._restricted = restricted
        self._member_id = member_id
        self._principal = principal
        self._regex = regex
        self.epoch = 0
        self.topics: set[str] = set()

    async def beat(self) -> set[str]:
        """Send a heartbeat; return the names of the assigned topics."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=CONSUMERS,
            member_id=self._member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=30_000 if not self.epoch else -1,
            subscribed_topic_regex=None if self.epoch else self._regex,
            topic_partitions=[],
        )
        answer = await self._restricted.ask(request, 1, self._principal)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            names = {
                self._restricted.node.topics.catalogue.name_of(one.topic_id)
                for one in answer.assignment.topic_partitions
            }
            self.topics = {name for name in names if name is not None}
        return self.topics

    async def settled(self) -> set[str]:
        """Send heartbeats until the assignment is reconciled."""
        for _ in range(3):
            await self.beat()
        return self.topics


async def with_topics(restricted: RestrictedNode, *names: str) -> None:
    await restricted.node.topics.offsets_topic()
    for name in names:
        await restricted.node.create(name, 4)


READ_CONSUMERS = group_right(READ, CONSUMERS)


@in_loop
async def test_an_expression_matches_only_what_may_be_described(restricted: RestrictedNode) -> None:
    await with_topics(restricted, "topic-1", "topic-2", "secret")
    await restricted.set_acls([READ_CONSUMERS.acl(), topic_right(DESCRIBE, "topic-1").acl()])
    assert await Reader(restricted, "m", regex=".*").beat() == {"topic-1"}


@in_loop
async def test_an_expression_is_searched_again_when_rights_change(restricted: RestrictedNode) -> None:
    await with_topics(restricted, "topic-1", "topic-2")
    one, two = topic_right(DESCRIBE, "topic-1").acl(), topic_right(READ, "topic-2").acl()
    await restricted.set_acls([READ_CONSUMERS.acl(), one])
    reader = Reader(restricted, "m")
    assert await reader.settled() == {"topic-1"}
    # No time passes: the pause between searches for new topics does not delay a change of rights.
    await restricted.authorizer.add([two])
    assert await reader.settled() == {"topic-1", "topic-2"}
    await restricted.set_acls([READ_CONSUMERS.acl(), two])
    assert await reader.beat() == {"topic-2"}
    await restricted.set_acls([READ_CONSUMERS.acl()])
    assert await reader.beat() == set()


@in_loop
async def test_matches_of_one_principal_do_not_reach_another(restricted: RestrictedNode) -> None:
    await with_topics(restricted, "topic-1", "topic-2")
    await restricted.set_acls(
        [
            READ_CONSUMERS.acl(),
            READ_CONSUMERS.acl(BOB),
            topic_right(DESCRIBE, "topic-1").acl(),
            topic_right(DESCRIBE, "*").acl(BOB),
        ]
    )
    bob, alice = Reader(restricted, "b", BOB), Reader(restricted, "a")
    assert await bob.settled() == {"topic-1", "topic-2"}
    for _ in range(3):
        assert await alice.beat() <= {"topic-1"}
        await bob.beat()
    assert alice.topics == {"topic-1"}
    assert alice.topics | bob.topics == {"topic-1", "topic-2"}
    # Another group with the same expression has its own rights, too.
    await restricted.set_acls([group_right(READ, "*").acl(), topic_right(DESCRIBE, "topic-2").acl()])
    answer = await restricted.ask(consumer_join("m", regex="topic-.*", group_id="another"), 1)
    facts = restricted.node.topics.catalogue.find("topic-2")
    assert facts is not None
    assert [one.topic_id for one in answer.assignment.topic_partitions] == [facts.topic_id]


@in_loop
async def test_a_right_of_one_of_two_members_changes_its_assignment(restricted: RestrictedNode) -> None:
    """The stored topics of the group stay the same, because the other member still has them."""
    await with_topics(restricted, "topic-1", "topic-2")
    every = [READ_CONSUMERS.acl(), READ_CONSUMERS.acl(BOB), topic_right(DESCRIBE, "*").acl(BOB)]
    await restricted.set_acls(every)
    bob, alice = Reader(restricted, "b", BOB), Reader(restricted, "a")
    await bob.settled()
    assert await alice.settled() == set()
    await restricted.set_acls([*every, topic_right(DESCRIBE, "topic-2").acl()])
    for _ in range(4):
        await alice.beat()
        await bob.beat()
    assert alice.topics == {"topic-2"}
    await restricted.set_acls(every)
    assert await alice.beat() == set()


@in_loop
async def test_rights_hold_after_a_restart_and_nothing_is_assigned_anew(restricted: RestrictedNode) -> None:
    await with_topics(restricted, "topic-1", "topic-2")
    acls = [READ_CONSUMERS.acl(), topic_right(DESCRIBE, "topic-1").acl()]
    await restricted.set_acls(acls)
    reader, other = Reader(restricted, "m"), Reader(restricted, "n")
    for _ in range(4):
        await reader.beat()
        await other.beat()
    epoch = reader.epoch
    assert reader.topics | other.topics == {"topic-1"}
    restricted.node.restart()
    restricted.authorizer = AclAuthorizer(restricted.node.metastore, [ADMIN])
    restricted.node.groups.load()
    for _ in range(3):
        await reader.beat()
        await other.beat()
    assert reader.epoch == epoch
    assert reader.topics | other.topics == {"topic-1"}
    # A right that was taken away while the server was down.
    restricted.node.restart()
    restricted.authorizer = AclAuthorizer(restricted.node.metastore, [ADMIN])
    await restricted.set_acls([READ_CONSUMERS.acl()])
    assert await reader.beat() == set()


@in_loop
async def test_after_a_restart_one_member_does_not_take_topics_from_another(restricted: RestrictedNode) -> None:
    """The rights of a member are unknown until its next heartbeat."""
    await with_topics(restricted, "topic-1", "topic-2")
    describe_all = topic_right(DESCRIBE, "*").acl(BOB)
    await restricted.set_acls(
        [READ_CONSUMERS.acl(), READ_CONSUMERS.acl(BOB), topic_right(DESCRIBE).acl(), describe_all]
    )
    bob, alice = Reader(restricted, "b", BOB), Reader(restricted, "a")
    for _ in range(4):
        await bob.beat()
        await alice.beat()
    assert (alice.topics, bob.topics) == ({"topic-1"}, {"topic-2"})
    restricted.node.restart()
    restricted.authorizer = AclAuthorizer(restricted.node.metastore, [ADMIN])
    for _ in range(3):
        assert await alice.beat() == {"topic-1"}
    (group,) = restricted.node.groups.consumer_groups()
    assert group.resolved == {"topic-.*": {"topic-1", "topic-2"}}
    assert await bob.beat() == {"topic-2"}


@in_loop
async def test_a_lost_topic_is_revoked_before_the_next_assignment_is_computed(
    restricted: RestrictedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large group waits before it computes an assignment."""
    monkeypatch.setattr(ConsumerGroup, "may_assign", lambda self, moment: self.target_epoch == 0)
    await with_topics(restricted, "topic-1", "topic-2")
    await restricted.set_acls([READ_CONSUMERS.acl(), topic_right(DESCRIBE, "*").acl()])
    reader = Reader(restricted, "m")
    assert await reader.settled() == {"topic-1", "topic-2"}
    await restricted.set_acls([READ_CONSUMERS.acl(), topic_right(DESCRIBE).acl()])
    assert await reader.beat() == {"topic-1"}


@in_loop
async def test_a_member_that_joins_during_a_search_is_searched_for_next(
    restricted: RestrictedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.coordinator.group.consumer.regexes.WORK_PER_CHUNK", 1)
    monkeypatch.setattr("kwire.coordinator.group.consumer.heartbeat.SEARCH_PAUSE_MS", 0)
    await with_topics(restricted, "topic-1", "topic-2")
    await restricted.set_acls(
        [
            READ_CONSUMERS.acl(),
            READ_CONSUMERS.acl(BOB),
            topic_right(DESCRIBE).acl(),
            topic_right(DESCRIBE, "*").acl(BOB),
        ]
    )
    assert await Reader(restricted, "b", BOB).beat() == set()
    assert await Reader(restricted, "a").beat() == set()
    (group,) = restricted.node.groups.consumer_groups()
    chunk_count = 0
    while group.resolution is not None:
        chunk_count += 1
        await asyncio.sleep(0)
    assert chunk_count
    assert group.visibility.of("a", "topic-.*", group.resolved) == {"topic-1"}
    assert group.visibility.of("b", "topic-.*", group.resolved) == {"topic-1", "topic-2"}


@in_loop
async def test_a_search_in_chunks_reveals_nothing_before_it_ends(
    restricted: RestrictedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.coordinator.group.consumer.regexes.WORK_PER_CHUNK", 1)
    monkeypatch.setattr("kwire.coordinator.group.consumer.heartbeat.SEARCH_PAUSE_MS", 0)
    names = [f"topic-{number}" for number in range(5)]
    await with_topics(restricted, *names)
    await restricted.set_acls(
        [
            READ_CONSUMERS.acl(),
            READ_CONSUMERS.acl(BOB),
            topic_right(DESCRIBE, "topic-3").acl(),
            topic_right(DESCRIBE, "*").acl(BOB),
        ]
    )
    bob, alice = Reader(restricted, "b", BOB), Reader(restricted, "a")
    while alice.topics != {"topic-3"} or alice.topics | bob.topics != set(names):
        await bob.beat()
        assert await alice.beat() <= {"topic-3"}
        # The next chunk of the search runs in another iteration of the loop.
        await asyncio.sleep(0)
