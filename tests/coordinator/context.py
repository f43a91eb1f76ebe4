"""A handler context for group requests, with an in-memory coordinator and a few topics."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from kwire.access.access import Unrestricted
from kwire.access.audit.entries import NO_AUDIT
from kwire.coordinator.group.commands import JoinAnswer, JoinGroup, SyncGroup
from kwire.handlers.shared.context import Context
from kwire.handlers.shared.views import Views
from kwire.wire.codec import decode_message, encode_message
from tests.coordinator.world import World

R = TypeVar("R")
ANSWER_SECONDS_MAX = 5.0


class FakeTopics:
    """Topics by name and id; each has three partitions."""

    def __init__(self, *names: str) -> None:
        self.known = {name: SimpleNamespace(name=name, topic_id=topic_id(name), partitions=[0, 1, 2]) for name in names}
        self.created: list[str] = []

    def get(self, name: str) -> Any:
        return self.known.get(name)

    def get_by_id(self, wanted: bytes) -> Any:
        return next((topic for topic in self.known.values() if topic.topic_id == wanted), None)

    async def offsets_topic(self) -> Any:
        self.created.append("__consumer_offsets")

    async def transactions_topic(self) -> Any:
        self.created.append("__transaction_state")


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\x01")


def context_of(world: World, version: int, topics: FakeTopics | None = None) -> Context:
    services = SimpleNamespace(
        audit=NO_AUDIT,
        groups=world.groups,
        topics=topics or FakeTopics("t"),
        node=SimpleNamespace(node_id=7),
    )
    peer = SimpleNamespace(client_host="10.0.0.9", endpoint=("broker", 9092))
    views = Views(cast(Any, services), Unrestricted())
    return Context(cast(Any, services), cast(Any, peer), version, "client", views)


def call(handle: Callable[[Context, Any], R | Awaitable[R]], context: Context, request: Any) -> R:
    """What the handler answers to the request, both having been through the bytes of this version."""
    request = decode_message(type(request), context.api_version, encode_message(request, context.api_version))

    async def answer() -> R:
        response = handle(context, request)
        if inspect.isawaitable(response):
            return await asyncio.wait_for(response, ANSWER_SECONDS_MAX)
        return response

    response = asyncio.run(answer())
    return decode_message(type(response), context.api_version, encode_message(response, context.api_version))


def joined(world: World, client_id: str = "m", group_id: str = "g") -> str:
    """Take a single member through join and sync, to generation 1; its id."""
    answers: list[JoinAnswer] = []
    command = JoinGroup(
        group_id=group_id,
        client_id=client_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b"topics"),),
        requires_member_id=False,
        fresh_id=world.groups.fresh_id(),
    )
    world.groups.submit(command, answers.append)
    (answer,) = answers
    sync = SyncGroup(
        group_id=group_id,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments={answer.member_id: b"mine"},
    )
    world.groups.submit(sync, lambda _: None)
    return answer.member_id
