"""What clients of a bridge see of the cluster through Kafka's requests: nothing that they may not describe."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType, operation_bits
from kwire.kafka_client.admin import Admin
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.settings import ClientSettings, addresses_of
from tests.support.bridge_access import BridgeHttp, bridge_with_users
from tests.support.engines import Engine
from tests.support.http_access import ADMIN, BASIC_SETTING, BOB, basic
from tests.support.kafka_request_cases import NEW_TOPIC, KafkaCase, new_producer
from tests.support.node import in_uvloop
from tests.web.bridge.test_kafka_requests import Cases, over_clusters, upstream_of
from tests.web.kafka_requests.test_requests import errors_in

GROUP, TOPIC, TRANSACTION = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
COMMITTED = {"partition_index": 0, "committed_offset": 0, "committed_metadata": None}


class Client:
    """A client of a bridge with credentials of its own."""

    def __init__(self, http: BridgeHttp, credentials: str) -> None:
        self._cases = Cases(http)
        self._credentials = credentials

    async def __call__(self, api: str, body: dict[str, Any], version: int | None = None) -> Any:
        return (await self._cases.ask(KafkaCase(api, body, version=version), "", self._credentials)).json

    async def does(self, api: str, body: dict[str, Any], version: int | None = None) -> Any:
        answer = await self(api, body, version)
        assert errors_in(answer) == [], (api, body, answer)
        return answer

    async def fails(self, api: str, body: dict[str, Any], version: int | None = None) -> set[str | None]:
        return {error for _, error in errors_in(await self(api, body, version))}

    async def create(self, name: str, group: str, transactional_id: str) -> str:
        """Create a topic, a group with an offset and a transactional id. Return the id of the topic."""
        created = await self.does("CreateTopics", {"topics": [{**NEW_TOPIC, "name": name}]})
        topics = [{"name": name, "partitions": [COMMITTED]}]
        await self.does("OffsetCommit", {"group_id": group, "member_id": "", "topics": topics}, 9)
        await self.does("InitProducerId", new_producer(transactional_id))
        topic_id: str = created["topics"][0]["topic_id"]
        return topic_id


# Requests for everything that there is.
LISTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Metadata", {"topics": None}),
    ("DescribeTopicPartitions", {"topics": []}),
    ("DescribeTopicPartitions", {"topics": [], "response_partition_limit": 1}),
    ("ListGroups", {}),
    ("ListTransactions", {"state_filters": [], "producer_id_filters": []}),
    ("ListTransactions", {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": ".*"}),
)


def by_id(topic_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests that name a topic by its id."""
    topic = {"name": None, "topic_id": topic_id}
    fetched = {"topic_id": topic_id, "partition_indexes": [0]}
    yield "Metadata", {"topics": [topic], "include_topic_authorized_operations": True}
    yield "DeleteTopics", {"topics": [topic], "timeout_ms": 1000}
    yield "OffsetFetch", {"groups": [{"group_id": "g", "topics": [fetched]}]}
    yield (
        "OffsetCommit",
        {"group_id": "g", "member_id": "", "topics": [{"topic_id": topic_id, "partitions": [COMMITTED]}]},
    )


@over_clusters
@in_uvloop
async def test_tenants_see_only_the_names_of_their_scopes(engine: Engine, tmp_path: Path) -> None:
    logins = "kwire.http.authentication=basic,key"
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine), logins) as http:
        ids, clients = {}, {}
        for scope in ("acme", "bolt"):
            made = await http.post("/keys", {"scope": scope}, Authorization=ADMIN)
            client = clients[scope] = Client(http, basic(made.json["id"], made.json["secret"]))
            ids[scope] = await client.create("orders", "g", "t")
            await client.create(f"only-{scope}", f"only-{scope}", f"only-{scope}")
        for scope, other in (("acme", "bolt"), ("bolt", "acme")):
            client = clients[scope]
            for api, body in LISTS:
                shown = str(await client.does(api, body))
                assert f"only-{other}" not in shown, (api, shown)
                assert "kws-" not in shown, (api, shown)
                assert "orders" in shown or "'g'" in shown or "'t'" in shown, (api, shown)
            for api, body in by_id(ids[other]):
                answer = await client(api, body)
                assert {error for _, error in errors_in(answer)} == {"UNKNOWN_TOPIC_ID"}, (api, answer)
                assert "orders" not in str(answer)
            for api, body in by_id(ids[scope]):
                if api != "DeleteTopics":
                    assert errors_in(await client(api, body)) == [], api
        await clients["acme"].does("DeleteTopics", {"topics": [{"name": "orders"}], "timeout_ms": 30_000})
        await clients["bolt"].does("Metadata", {"topics": [{"name": "orders"}]})
        refused = {"CLUSTER_AUTHORIZATION_FAILED"}
        brokers = {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]}
        assert await clients["bolt"].fails("DescribeConfigs", brokers) == refused
        assert await clients["bolt"].fails("ListConfigResources", {"resource_types": []}) == refused


@over_clusters
@in_uvloop
async def test_errors_of_the_cluster_name_topics_as_the_tenant_does(engine: Engine, tmp_path: Path) -> None:
    async with bridge_with_users(
        tmp_path / "bridge", upstream_of(engine), "kwire.http.authentication=basic,key"
    ) as http:
        made = await http.post("/keys", {"scope": "acme"}, Authorization=ADMIN)
        client = Client(http, basic(made.json["id"], made.json["secret"]))
        await client.create("orders", "g", "t")
        resource = {"resource_type": 2, "resource_name": "orders"}
        wrong, short = {"name": "retention.ms", "value": "forever"}, {"timeout_ms": 1000}
        requests: tuple[tuple[str, dict[str, Any], str], ...] = (
            ("CreateTopics", {"topics": [{**NEW_TOPIC, "name": "orders"}]}, "TOPIC_ALREADY_EXISTS"),
            ("CreateTopics", {"topics": [{**NEW_TOPIC, "name": "a b"}]}, "INVALID_TOPIC_EXCEPTION"),
            (
                "CreatePartitions",
                {"topics": [{"name": "orders", "count": 1, "assignments": None}], **short, "validate_only": False},
                "INVALID_PARTITIONS",
            ),
            ("DeleteTopics", {"topics": [{"name": "missing"}], **short}, "UNKNOWN_TOPIC_OR_PARTITION"),
            (
                "AlterConfigs",
                {"resources": [{**resource, "configs": [wrong]}], "validate_only": False},
                "INVALID_CONFIG",
            ),
            (
                "IncrementalAlterConfigs",
                {"resources": [{**resource, "configs": [{**wrong, "config_operation": 0}]}], "validate_only": False},
                "INVALID_CONFIG",
            ),
            (
                "DescribeConfigs",
                {"resources": [{"resource_type": 2, "resource_name": "missing", "configuration_keys": None}]},
                "UNKNOWN_TOPIC_OR_PARTITION",
            ),
            ("DeleteGroups", {"groups_names": ["missing"]}, "GROUP_ID_NOT_FOUND"),
        )
        for api, body, code in requests:
            answer = await client(api, body)
            assert {error for _, error in errors_in(answer)} == {code}, (api, answer)
            assert "kws-" not in str(answer), (api, answer)


@over_clusters
@in_uvloop
async def test_answers_have_nothing_that_the_client_may_not_describe(engine: Engine, tmp_path: Path) -> None:
    suffix = token_hex(6)
    seen, hidden = f"seen-{suffix}", f"hidden-{suffix}"
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine)) as http:
        admin, bob = Client(http, ADMIN), Client(http, BOB)
        await admin.create(seen, seen, seen)
        hidden_id = await admin.create(hidden, hidden, hidden)
        both = [{"name": name, "partitions": [COMMITTED]} for name in (seen, hidden)]
        await admin.does("OffsetCommit", {"group_id": seen, "member_id": "", "topics": both}, 9)
        await http.allow([(Operation.DESCRIBE, kind, seen) for kind in (TOPIC, GROUP, TRANSACTION)])
        for api, body in LISTS:
            shown = str(await bob.does(api, body))
            assert seen in shown, (api, shown)
            assert hidden not in shown, (api, shown)
        for version in (7, 9, 10):
            single = {"group_id": seen, "topics": None}
            asked = single if version < 8 else {"groups": [single]}
            assert f"'{hidden}'" not in str(await bob.does("OffsetFetch", asked, version))
            whole = await admin.does("OffsetFetch", asked, version)
            topics = whole["topics"] if version < 8 else whole["groups"][0]["topics"]
            assert len(topics) == 2
        for api, body in by_id(hidden_id):
            answer = await bob(api, body)
            assert hidden not in str(answer)
            assert all("AUTHORIZATION_FAILED" in (error or "") for _, error in errors_in(answer)), (api, answer)
            assert errors_in(answer), (api, answer)


@over_clusters
@in_uvloop
async def test_authorized_operations_are_those_of_the_client(engine: Engine, tmp_path: Path) -> None:
    name = f"it-{token_hex(6)}"
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine)) as http:
        await Client(http, ADMIN).create(name, name, name)
        await http.allow([(Operation.DESCRIBE, TOPIC, name), (Operation.DESCRIBE, GROUP, name)])
        await http.allow([(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)])
        bob, only_describe = Client(http, BOB), operation_bits((Operation.DESCRIBE,))
        answer = await bob("Metadata", {"topics": [{"name": name}], "include_topic_authorized_operations": True})
        assert answer["topics"][0]["topic_authorized_operations"] == only_describe
        answer = await bob("DescribeTopicPartitions", {"topics": [{"name": name}]})
        assert answer["topics"][0]["topic_authorized_operations"] == only_describe
        answer = await bob("DescribeGroups", {"groups": [name], "include_authorized_operations": True})
        assert answer["groups"][0]["authorized_operations"] == only_describe
        answer = await bob("DescribeCluster", {"include_cluster_authorized_operations": True})
        assert answer["cluster_authorized_operations"] == only_describe


@over_clusters
@in_uvloop
async def test_topics_of_the_cluster_itself_are_not_changed(engine: Engine, tmp_path: Path) -> None:
    cluster = Cluster(ClientSettings(addresses_of(upstream_of(engine))))
    name = f"__it_{token_hex(6)}"
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine)) as http:
        try:
            await Admin(cluster).create_topic(name, 1)
            admin, refused = Client(http, ADMIN), {"INVALID_TOPIC_EXCEPTION"}
            setting = {"name": "retention.ms", "value": "1000"}
            partition = {"partition_index": 0, "offset": -1}
            changes: tuple[tuple[str, dict[str, Any]], ...] = (
                ("CreateTopics", {"topics": [{**NEW_TOPIC, "name": f"{name}2"}]}),
                ("DeleteTopics", {"topics": [{"name": name}], "timeout_ms": 1000}),
                (
                    "CreatePartitions",
                    {
                        "topics": [{"name": name, "count": 2, "assignments": None}],
                        "timeout_ms": 1000,
                        "validate_only": False,
                    },
                ),
                ("DeleteRecords", {"topics": [{"name": name, "partitions": [partition]}], "timeout_ms": 1000}),
                (
                    "AlterConfigs",
                    {
                        "resources": [{"resource_type": 2, "resource_name": name, "configs": [setting]}],
                        "validate_only": False,
                    },
                ),
                (
                    "IncrementalAlterConfigs",
                    {
                        "resources": [
                            {
                                "resource_type": 2,
                                "resource_name": name,
                                "configs": [{**setting, "config_operation": 0}],
                            }
                        ],
                        "validate_only": False,
                    },
                ),
            )
            for api, body in changes:
                assert await admin.fails(api, body) == refused, api
            await admin.does("Metadata", {"topics": [{"name": name}]})
            # Whoever opens a transactional id fences the writer that has it.
            for writer in ("__writer", "kwire.webhooks.__kwire_webhooks"):
                assert await admin.fails("InitProducerId", new_producer(writer)) == {
                    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
                }, writer
        finally:
            await Admin(cluster).delete_topic(name)
            cluster.close()


@over_clusters
@in_uvloop
async def test_changes_are_logged_with_the_user_of_the_bridge(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"it-{token_hex(6)}"
    caplog.set_level(logging.INFO, "kwire.changes")
    async with bridge_with_users(tmp_path / "bridge", upstream_of(engine), BASIC_SETTING) as http:
        admin = Client(http, ADMIN)
        await admin.create(name, name, name)
        change = {"name": "retention.ms", "config_operation": 0, "value": "1000"}
        resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
        await admin.does("IncrementalAlterConfigs", {"resources": [resource], "validate_only": False})
        count = {"name": name, "count": 3, "assignments": None}
        await admin.does("CreatePartitions", {"topics": [count], "timeout_ms": 30_000, "validate_only": False})
        # The leaders of new partitions learn of them a moment later.
        partitions = [{"partition_index": index, "offset": -1} for index in range(3)]
        records = {"topics": [{"name": name, "partitions": partitions}], "timeout_ms": 30_000}
        async with asyncio.timeout(30):
            while await admin.fails("DeleteRecords", records):
                await asyncio.sleep(0.05)
        await admin.does("DeleteGroups", {"groups_names": [name]})
        await admin.does("DeleteTopics", {"topics": [{"name": name}], "timeout_ms": 30_000})
    shown = [one.getMessage() for one in caplog.records if name in one.getMessage()]
    who = "by User:admin from 127.0.0.1 (http)"
    assert shown[0] == f"topic {name}: created {who}, partitions=1"
    assert f"topic {name}: configured {who}, settings=retention.ms" in shown
    assert f"topic {name}: extended {who}, partitions=3" in shown
    assert any(one.startswith(f"topic {name}: records deleted {who}") for one in shown)
    assert f"group {name}: deleted {who}" in shown
    assert shown[-1] == f"topic {name}: deleted {who}"
