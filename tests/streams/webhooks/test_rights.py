"""A webhook has the rights of its creator, and stops when the creator loses them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.access.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kwire.access.audit.entries import HTTP, Actor, acting
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import ANONYMOUS, Principal
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.webhooks import rights
from kwire.streams.webhooks.definition import Definition, checked_secrets, parse_webhook
from tests.support.event_store import draft
from tests.support.hooked_node import URL, FakeReceiver, Hooked, hooked, until
from tests.support.node import QuietNode, in_loop

ALICE, ADMIN = Principal("User", "alice"), Principal("User", "admin")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def fast_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rights.CHECK_SECONDS <= 2
    monkeypatch.setattr(rights, "CHECK_SECONDS", 0.01)


def may_read(principal: Principal, topic: str = "orders") -> Acl:
    return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, principal, "*", Operation.READ, Permission.ALLOW)


def by(principal: Principal) -> Actor:
    return Actor(principal, "10.0.0.1", HTTP)


async def authorizer_of(node: QuietNode, *acls: Acl) -> AclAuthorizer:
    await node.event_store.open()
    await node.create_event_topic("orders")
    made = AclAuthorizer(node.metastore, [ADMIN])
    await made.add(acls)
    return made


async def publish(node: QuietNode, *numbers: int) -> None:
    await node.event_store.store([draft("orders", {"n": number}) for number in numbers])


async def registered(one: Hooked, principal: Principal = ALICE) -> str:
    with acting(by(principal)):
        return (await one.register()).webhook_id


@in_loop
async def test_a_webhook_whose_creator_lost_the_right_stops_until_it_is_resumed(node: QuietNode) -> None:
    authorizer = await authorizer_of(node, may_read(ALICE))
    receiver = FakeReceiver()
    async with hooked(node, receiver, authorizer=authorizer) as one:
        webhook_id = await registered(one)
        await publish(node, 1)
        await receiver.has(1)
        await authorizer.remove([AclFilter(principal=str(ALICE))])
        await until(lambda: one.webhooks.get(webhook_id).definition.state == "disabled")
        definition = one.webhooks.get(webhook_id).definition
        assert "User:alice" in definition.reason
        assert "'orders'" in definition.reason
        (noted,) = await one.until_audited("webhook.disabled")
        assert (noted["reason"], noted["principal"]) == (definition.reason, "Server:kwire")
        await publish(node, 2)
        with pytest.raises(KafkaError) as refused:
            await one.webhooks.resume(webhook_id)
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # The right alone does not start it again.
        await authorizer.add([may_read(ALICE)])
        seen = authorizer.revision
        await until(lambda: one.webhooks._rights._revision == seen)
        assert one.webhooks.get(webhook_id).definition.state == "disabled"
        assert len(receiver.requests) == 1
        with acting(by(ADMIN)):
            await one.webhooks.resume(webhook_id)
        await receiver.has(2)
        assert one.webhooks.get(webhook_id).definition.creator == ALICE
    await node.event_store.close()


@pytest.mark.parametrize("is_new", [True, False], ids=["registered", "resumed"])
@in_loop
async def test_a_right_that_is_lost_while_the_webhook_is_stored_stops_it(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    authorizer = await authorizer_of(node, may_read(ALICE))
    async with hooked(node, authorizer=authorizer) as one:
        webhook_id = "" if is_new else await registered(one)
        if not is_new:
            await one.webhooks.pause(webhook_id)
        definitions = one.webhooks._definitions
        put = definitions.put

        async def put_late(definition: Definition) -> None:
            monkeypatch.undo()
            await put(definition)
            await authorizer.remove([AclFilter(principal=str(ALICE))])
            one.webhooks._rights._revision = authorizer.revision  # the check of all webhooks ran now

        monkeypatch.setattr(definitions, "put", put_late)
        if is_new:
            webhook_id = await registered(one)
        else:
            await one.webhooks.resume(webhook_id)
        definition = one.webhooks.get(webhook_id).definition
        assert definition.state == "disabled"
        assert "may not read" in definition.reason
    await node.event_store.close()


@in_loop
async def test_a_right_that_was_lost_while_the_server_was_down_stops_the_webhook_at_the_start(node: QuietNode) -> None:
    authorizer = await authorizer_of(node, may_read(ALICE))
    async with hooked(node, authorizer=authorizer) as one:
        webhook_id = await registered(one)
    await authorizer.remove([AclFilter()])
    receiver = FakeReceiver()
    async with hooked(node, receiver, authorizer=authorizer) as one:
        assert one.webhooks.get(webhook_id).definition.state == "disabled"
        await publish(node, 1)
        await asyncio.sleep(0.05)
        assert not receiver.requests
    await node.event_store.close()


@in_loop
async def test_nobody_registers_a_webhook_for_a_topic_that_he_may_not_read(node: QuietNode) -> None:
    authorizer = await authorizer_of(node)
    async with hooked(node, authorizer=authorizer) as one:
        with pytest.raises(KafkaError) as refused:
            await registered(one)
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # Outside of a request, too.
        with pytest.raises(KafkaError):
            await one.register()
        assert len(one.webhooks) == 0
    await node.event_store.close()


@in_loop
async def test_a_change_keeps_the_creator_unless_the_client_takes_over(node: QuietNode) -> None:
    authorizer = await authorizer_of(node, may_read(ALICE))
    async with hooked(node, authorizer=authorizer) as one:
        webhook_id = await registered(one)
        with acting(by(ADMIN)):
            kept = await one.webhooks.change(webhook_id, parse_webhook({"description": "x"}, is_new=False))
            assert kept.definition.creator == ALICE
            taken = await one.webhooks.change(webhook_id, parse_webhook({"takeOver": True}, is_new=False))
        assert taken.definition.creator == ADMIN
        assert taken.definition.shown()["creator"] == "User:admin"
        noted = await one.until_audited("webhook.changed", 2)
        assert [entry["creator"] for entry in noted] == ["User:alice", "User:admin"]
        assert {entry["principal"] for entry in noted} == {"User:admin"}
        assert {entry["host"] for entry in noted} == {"10.0.0.1"}
        await authorizer.remove([AclFilter(principal=str(ALICE))])
        seen = authorizer.revision
        await until(lambda: one.webhooks._rights._revision == seen)
        assert one.webhooks.get(webhook_id).definition.state == "active"
    await node.event_store.close()


def test_a_stored_definition_without_a_creator_is_anonymous() -> None:
    made = Definition(webhook_id="1", url=URL, topics={}, secrets=checked_secrets(None), creator=ALICE)
    stored = made.stored()
    assert Definition.from_stored("1", stored).creator == ALICE
    del stored["creator"]
    assert Definition.from_stored("1", stored).creator == ANONYMOUS
