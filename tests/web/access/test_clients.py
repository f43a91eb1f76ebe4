"""The clients that come with kwire log in: in Python with the header, in JavaScript with a ticket for the WebSocket."""

import pytest

from kwire.access.acl import Operation, ResourceType
from kwire.client import AsyncClient, Refused
from tests.support.engines import Engine
from tests.support.http_access import ADMIN, AccessHttp, access_http
from tests.support.javascript import JavaScriptError, javascript_client
from tests.support.node import in_uvloop

TOPIC = ResourceType.TOPIC


async def prepare(http: AccessHttp) -> None:
    for room in ("lobby", "secret"):
        await http.put(f"/rooms/{room}", {}, Authorization=ADMIN)
    await http.allow((Operation.READ, TOPIC, "lobby"), (Operation.WRITE, TOPIC, "lobby"))


@in_uvloop
async def test_the_python_client_logs_in(engine: Engine) -> None:
    async with access_http(engine) as http:
        await prepare(http)
        async with AsyncClient(http.url, user="bob", password="b-secret", timeout_s=10) as client:
            subscription = await client.stream.subscribe("lobby")
            await client.stream.publish("lobby", "message", 1)
            assert (await subscription.next_event()).data == 1
            assert [name async for name in client.rooms.list()] == ["lobby"]
            with pytest.raises(Refused) as refused:
                await client.stream.subscribe("secret")
            assert refused.value.code == "TOPIC_AUTHORIZATION_FAILED"
            with pytest.raises(Refused):
                await client.rooms.get("secret")
            # A subscription whose right is taken away ends, and does not retry for ever.
            await http.take_away()
            with pytest.raises(Refused) as refused:
                await subscription.next_event()
            assert refused.value.code == "Forbidden"
        async with AsyncClient(http.url, user="bob", password="wrong", timeout_s=10) as client:
            with pytest.raises(Refused) as refused:
                await client.rooms.get("lobby")
            assert refused.value.code == "Unauthorized"


@pytest.mark.needs_node
@pytest.mark.parametrize("transport", ["websocket", "lines"])
@in_uvloop
async def test_the_javascript_client_logs_in(engine: Engine, transport: str) -> None:
    async with access_http(engine) as http:
        await prepare(http)
        async with javascript_client(http.url, transport, user="bob", password="b-secret") as client:
            await client.call("subscribe", room="lobby", options={})
            await client.call("publish", room="lobby", type="message", data=1)
            assert await client.data(1) == [1]
            with pytest.raises(JavaScriptError) as refused:
                await client.call("subscribe", room="secret", options={}, subscription="t")
            assert refused.value.code == "TOPIC_AUTHORIZATION_FAILED"
        async with javascript_client(http.url, transport, user="bob", password="wrong") as client:
            with pytest.raises(JavaScriptError) as refused:
                await client.call("subscribe", room="lobby", options={})
            assert refused.value.code == "Unauthorized"
