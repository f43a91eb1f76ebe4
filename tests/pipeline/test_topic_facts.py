"""Errors of a job whose user lacks a right on the HTTP port."""

import asyncio
from pathlib import Path

import pytest

from kwire.access.acl import Operation, ResourceType
from kwire.pipeline.server import Login, Server
from kwire.pipeline.topic_facts import NotAllowed, TopicFactsReader
from tests.support.http_access import ADMIN, access_node
from tests.support.node import in_uvloop


@in_uvloop
async def test_a_right_that_the_http_port_refuses_is_named_with_the_command_that_adds_it(tmp_path: Path) -> None:
    async with access_node(tmp_path) as http:
        made = await http.ask("POST", "/topics/orders", {"num_partitions": 1}, Authorization=ADMIN)
        assert made.status == 201
        reader = TopicFactsReader(Server("127.0.0.1:1", http.url, http_login=Login("bob", "b-secret")))
        with pytest.raises(NotAllowed) as refused:
            await asyncio.to_thread(reader.topic, "orders")
        assert str(refused.value) == (
            "topic orders: user bob is not allowed to DESCRIBE it; add the right with "
            "kwire acl add --principal User:bob --allow describe --topic orders"
        )
        for operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS):
            await http.allow((operation, ResourceType.TOPIC, "orders"))
        assert (await asyncio.to_thread(reader.topic, "orders")).partition_count == 1


@in_uvloop
async def test_a_login_that_the_http_port_refuses_is_named(tmp_path: Path) -> None:
    async with access_node(tmp_path) as http:
        reader = TopicFactsReader(Server("127.0.0.1:1", http.url, http_login=Login("bob", "wrong")))
        with pytest.raises(NotAllowed, match=f"^{http.url}/topics/orders: "):
            await asyncio.to_thread(reader.topic, "orders")
