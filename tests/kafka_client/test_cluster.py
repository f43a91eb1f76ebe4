"""Connections to a server with TLS and logins, and what a client does without a server."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import CHANGE_SECONDS, PARTITIONS_PER_CREATION_MAX, SHARED_CONFIGS_BYTES_MAX, Admin
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.connection import Connection
from kwire.kafka_client.errors import LoginRefused, NotSent, Unreachable
from kwire.kafka_client.link import Link
from kwire.kafka_client.login import MECHANISMS, Login
from kwire.kafka_client.settings import Address, ClientSettings, addresses_of
from kwire.testing.ports import unused_port
from kwire.wire.messages.create_topics import CREATE_TOPICS
from kwire.wire.messages.describe_configs import DESCRIBE_CONFIGS
from kwire.wire.schema import Api
from tests.support.certificates import Authority
from tests.support.node import in_loop, in_uvloop, running_node
from tests.support.sasl_server import SECRET, SaslServer, running_sasl_server
from tests.support.server import HOST

LARGE_BYTES = 300_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SaslServer]:
    settings = {
        "listener.security.protocol.map": "OPEN:PLAINTEXT,SASL:SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server()),
    }
    with running_sasl_server(tmp_path_factory.mktemp("server"), settings) as running:
        running.set_password("alice")
        yield running


def settings(server: SaslServer, authority: Authority, mechanism: str, password: str = SECRET) -> ClientSettings:
    tls = ssl.create_default_context(cafile=str(authority.path))
    return ClientSettings((Address(*server.address),), tls, mechanism, Login("alice", password))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@in_uvloop
async def test_a_login_over_tls(server: SaslServer, authority: Authority, mechanism: str) -> None:
    cluster = Cluster(settings(server, authority, mechanism))
    await cluster.refresh()
    admin = Admin(cluster)
    # A request and a response that are larger than the buffers.
    await admin.create_topic(f"t-{mechanism}", 1)
    assert await admin.topic_configs(f"t-{mechanism}")
    await cluster.refresh(["x" * 200 + str(number) for number in range(LARGE_BYTES // 200)])
    assert len(cluster.metadata.missing) == LARGE_BYTES // 200
    cluster.close()


@in_loop
async def test_a_wrong_password_is_reported_without_it(server: SaslServer, authority: Authority) -> None:
    cluster = Cluster(settings(server, authority, "SCRAM-SHA-256", "not-the-password"))
    with pytest.raises(LoginRefused, match="user alice") as refused:
        await cluster.refresh()
    assert "not-the-password" not in str(refused.value)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    # It stays down for a while, so that a wrong password is not tried again and again.
    with pytest.raises(LoginRefused):
        await cluster.refresh()
    cluster.close()


@in_loop
async def test_a_certificate_of_another_authority_is_refused(
    server: SaslServer, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    cluster = Cluster(settings(server, other, "PLAIN"))
    with pytest.raises(NotSent, match="not trusted"):
        await cluster.refresh()
    cluster.close()


@in_loop
async def test_nobody_listens() -> None:
    address = Address(HOST, unused_port())
    cluster = Cluster(ClientSettings((address, address._replace(port=unused_port()))))
    with pytest.raises(NotSent, match="cannot be reached"):
        await cluster.refresh()
    cluster.close()
    with pytest.raises(NotSent, match="closed"):
        await cluster.refresh()


@in_uvloop
async def test_a_request_that_misses_its_deadline_ends_its_connection() -> None:
    writers: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: writers.append(writer), HOST, 0)
    port = silent.sockets[0].getsockname()[1]
    cluster = Cluster(ClientSettings((Address(HOST, port),), connect_seconds=0.2))
    with pytest.raises(Unreachable, match=r"within 0\.2 s"):
        await cluster.refresh()
    cluster.close()
    for writer in writers:
        writer.transport.abort()
    silent.close()
    await silent.wait_closed()


@in_uvloop
async def test_queries_and_heartbeats_do_not_wait_for_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node(tmp_path) as node:
        cluster = Cluster(ClientSettings(addresses_of(node.kafka_listeners[0].address)))
        topics = node._shared.services.topics
        create, begun, released = topics.create, asyncio.Event(), asyncio.Event()

        async def held(*arguments: Any) -> Any:
            begun.set()
            await released.wait()
            return await create(*arguments)

        monkeypatch.setattr(topics, "create", held)
        creation = asyncio.create_task(Admin(cluster).create_topic("slow", 1))
        async with asyncio.timeout(10):
            await begun.wait()
            # A server answers the requests of one connection in order.
            await cluster.refresh(["slow"])
        assert not creation.done()
        released.set()
        await creation
        cluster.close()


@in_uvloop
async def test_all_changes_have_a_connection_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node(tmp_path) as node:
        cluster = Cluster(ClientSettings(addresses_of(node.kafka_listeners[0].address)))
        waits: dict[str, float] = {}
        used: dict[str, Link] = {}
        request = Link.request

        async def recorded(link: Link, api: Api, message: Any, **options: Any) -> Any:
            used[api.name], waits[api.name] = link, options.get("wait_seconds", 0)
            return await request(link, api, message, **options)

        monkeypatch.setattr(Link, "request", recorded)
        admin = Admin(cluster)
        await admin.create_topic("orders", 1)
        await cluster.refresh(["orders"])
        await admin.topic_configs("orders")
        await admin.add_partitions("orders", 2)
        await admin.change_configs("orders", {"retention.ms": "1000"})
        await admin.delete_records("orders", 0, 0)
        await admin.delete_topic("orders", cluster.metadata.topics["orders"].topic_id)
        changes = {"CreateTopics", "CreatePartitions", "IncrementalAlterConfigs", "DeleteRecords", "DeleteTopics"}
        assert {name for name, link in used.items() if link is used["CreateTopics"]} == changes
        assert {name for name, seconds in waits.items() if seconds == CHANGE_SECONDS} == changes
        assert used["Metadata"] is used["DescribeConfigs"]
        cluster.close()


@in_uvloop
async def test_a_request_whose_link_is_closed_while_it_connects_is_not_cancelled() -> None:
    """As when a broker leaves the cluster: its callers try others."""
    accepted = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        accepted.set()

    silent = await asyncio.start_server(accept, HOST, 0)
    cluster = Cluster(ClientSettings((Address(HOST, silent.sockets[0].getsockname()[1]),)))
    (link,) = cluster.query_links()
    request, cancelled = (asyncio.create_task(link.request(CREATE_TOPICS, None)) for _ in range(2))
    try:
        await accepted.wait()
        cancelled.cancel()
        link.close()
        outcomes = await asyncio.gather(request, cancelled, return_exceptions=True)
        assert [type(one) for one in outcomes] == [NotSent, asyncio.CancelledError]
    finally:
        cluster.close()
        for writer in writers:
            writer.transport.abort()
        silent.close()
        await silent.wait_closed()


@in_loop
async def test_the_second_bootstrap_server_is_used_if_the_first_is_down(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        host, _, port = node.kafka_listeners[0].address.rpartition(":")
        down = Address(HOST, unused_port())
        cluster = Cluster(ClientSettings((down, Address(host, int(port)))))
        await cluster.refresh()
        assert list(cluster.metadata.brokers.values()) == [Address(host, int(port))]
        with pytest.raises(KafkaError) as refused:
            await Admin(cluster).delete_topic("nothing")
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cluster.close()


@in_loop
async def test_topics_that_are_created_together_share_requests_and_have_errors_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, int]] = []
    send = Connection.send

    def counted(connection: Connection, api: Api, message: Any, **options: Any) -> "asyncio.Future[Any]":
        if api in (CREATE_TOPICS, DESCRIBE_CONFIGS):
            sent.append((api.name, len(message.topics if api is CREATE_TOPICS else message.resources)))
        return send(connection, api, message, **options)

    monkeypatch.setattr(Connection, "send", counted)
    async with running_node(tmp_path) as node:
        cluster = Cluster(ClientSettings(addresses_of(node.kafka_listeners[0].address)))
        await cluster.refresh()
        admin = Admin(cluster)
        long = "kwire.retention.messages" + "x" * SHARED_CONFIGS_BYTES_MAX
        outcomes = await asyncio.gather(
            admin.create_topic("a", 1, {"retention.ms": "1000"}),
            admin.create_topic("a", 1),
            admin.create_topic("b/c", 1),
            admin.create_topic("d", 1, {"retention.ms": "soon"}),
            admin.create_topic("e", PARTITIONS_PER_CREATION_MAX),
            admin.create_topic("f", 1, {long: "1"}),
            admin.create_topic("g", 2),
            return_exceptions=True,
        )
        assert [one.code if isinstance(one, KafkaError) else one for one in outcomes] == [
            None,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_CONFIG,
            None,
            ErrorCode.INVALID_CONFIG,
            None,
        ]
        assert sent == [("CreateTopics", count) for count in (3, 1, 1, 1, 1)]
        sent.clear()
        configs = await asyncio.gather(
            admin.topic_configs("a", ["retention.ms"]),
            admin.topic_configs("nothing", ["retention.ms"]),
            admin.topic_configs("g", ["retention.ms"]),
            return_exceptions=True,
        )
        assert configs[0] == {"retention.ms": "1000"}
        assert isinstance(configs[1], KafkaError)
        assert configs[1].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert configs[2] == {"retention.ms": "604800000"}
        assert sent == [("DescribeConfigs", 3)]
        cluster.close()
