"""What the HTTP port adds to Kafka's requests: bounds, quotas, the audit log, and addresses."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from kwire.handlers import HANDLERS
from kwire.node import Node
from kwire.server.kafka import http_requests
from kwire.web.kafka_requests import routes, writing
from kwire.wire.messages.describe_cluster import DESCRIBE_CLUSTER
from tests.support.http import Http, http_node
from tests.support.http_access import ADMIN, BOB, SETTINGS, access_node
from tests.support.kafka_request_cases import CASES, NEW_TOPIC, load_transactions
from tests.support.node import in_uvloop, running_node
from tests.web.access.route_rows import filled
from tests.web.test_audit_topic import recorded
from tests.web.test_quotas import limit

STRING_BYTES_MAX = 0x7FFF


def new_topics(*names: str) -> dict[str, Any]:
    return {"topics": [{**NEW_TOPIC, "name": name} for name in names]}


@in_uvloop
async def test_the_longest_names_are_answered(tmp_path: Path) -> None:
    """Messages of errors quote names, and have a maximum length, too."""
    async with http_node(tmp_path) as http:
        await load_transactions(http)
        for case in CASES:
            answer = await http.post(case.path, filled(case.body, {"name": "n" * STRING_BYTES_MAX}))
            assert answer.status == 200, (case, answer)


@in_uvloop
async def test_bodies_and_responses_have_a_maximum_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_node(tmp_path) as http:
        with monkeypatch.context() as patch:
            patch.setattr(routes, "REQUEST_BYTES_MAX", 1000)
            answer = await http.post("/kafka/CreateTopics", new_topics(*(f"t-{one}" for one in range(20))))
            assert (answer.status, answer.code) == (413, "BodyTooLarge")
        assert (await http.post("/kafka/CreateTopics", new_topics(*(f"t-{one}" for one in range(20))))).status == 200
        for module, name in ((routes, "RESPONSE_BYTES_MAX"), (writing, "JSON_BYTES_MAX")):
            with monkeypatch.context() as patch:
                patch.setattr(module, name, 1000)
                answer = await http.post("/kafka/Metadata", {"topics": None})
                assert (answer.status, answer.code) == (413, "ResponseTooLarge"), name
        assert (await http.post("/kafka/Metadata", {"topics": None})).status == 200


@in_uvloop
async def test_large_requests_are_answered(tmp_path: Path) -> None:
    """More elements than a connection decodes at once."""
    async with http_node(tmp_path) as http:
        answer = await http.post("/kafka/Metadata", {"topics": [{"name": f"t-{one}"} for one in range(3_000)]})
        assert answer.status == 200
        assert len(answer.json["topics"]) == 3_000


@in_uvloop
async def test_a_response_that_is_not_ready_in_time_is_a_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_requests, "RESPONSE_SECONDS_MAX", 0.05)

    async def never(context: object, request: object) -> None:
        await asyncio.Event().wait()

    key = DESCRIBE_CLUSTER.key

    def replace(node: Node) -> None:
        node._handlers = {**HANDLERS, key: HANDLERS[key]._replace(handle=never)}

    async with running_node(tmp_path, prepare=replace) as node, aiohttp.ClientSession() as session:
        http = Http(node, session)
        answer = await http.post("/kafka/DescribeCluster", {"include_cluster_authorized_operations": False})
    assert (answer.status, answer.code) == (503, "REQUEST_TIMED_OUT")
    assert "DescribeCluster was not ready in time" in answer.json["error"]["message"]


@in_uvloop
async def test_changes_are_in_the_audit_log_with_the_http_port(tmp_path: Path) -> None:
    async with http_node(tmp_path, "kwire.audit=all") as http:
        await http.post("/kafka/CreateTopics", new_topics("orders"))
        made = await recorded(http, "topic.created", "orders")
        assert (made["principal"], made["host"], made["port"]) == ("User:ANONYMOUS", "127.0.0.1", "http")
        body = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": -1}]}], "timeout_ms": 9}
        await http.post("/kafka/DeleteRecords", body)
        assert (await recorded(http, "topic.records_deleted", "orders"))["port"] == "http"


@in_uvloop
async def test_refusals_are_in_the_audit_log_with_the_http_port(tmp_path: Path) -> None:
    async with access_node(tmp_path, *SETTINGS, "kwire.audit=all") as http:
        body = {"topics": [{"name": "orders", "partition_indexes": [0]}]}
        answer = await http.post("/kafka/DescribeProducers", body, Authorization=BOB)
        assert b"TOPIC_AUTHORIZATION_FAILED" in answer.body
        async with asyncio.timeout(20):
            found = b""
            while b"orders" not in found:
                found = (await http.get("/rooms/kwire-audit/events?limit=1000", Authorization=ADMIN)).body
                await asyncio.sleep(0.01)
    (refused,) = [one["data"] for one in msgspec.json.decode(found)["events"] if one["type"] == "access.denied"]
    assert (refused["principal"], refused["port"]) == ("User:bob", "http")
    assert refused["resource"] == {"type": "TOPIC", "name": "orders"}


@in_uvloop
async def test_a_client_above_its_quota_of_changes_is_refused(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        await limit(http, 0.1, "controller_mutation_rate")
        answer = await http.post("/kafka/CreateTopics", new_topics("t-0", "t-1", "t-2"))
        errors = [one.get("error") for one in answer.json["topics"]]
        assert errors[0] is None
        assert errors[-1] == "THROTTLING_QUOTA_EXCEEDED"
        answer = await http.post("/kafka/CreateTopics", new_topics("t-3"))
        assert (answer.status, answer.code) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert (await http.post("/kafka/Metadata", {"topics": None})).status == 200


@in_uvloop
async def test_the_addresses_are_those_of_the_kafka_port(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        (broker,) = (await http.post("/kafka/Metadata", {"topics": []})).json["brokers"]
        assert (broker["host"], broker["port"]) == ("127.0.0.1", http.node.kafka_listeners[0].port)


@in_uvloop
async def test_requests_count_in_the_metrics_of_the_api(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        latency = http.node._shared.metrics.requests[DESCRIBE_CLUSTER.key]
        before = latency.count
        await http.post("/kafka/DescribeCluster", {"include_cluster_authorized_operations": False})
        assert latency.count == before + 1


@in_uvloop
async def test_every_setting_has_a_documentation(tmp_path: Path) -> None:
    """Settings of topics, the node, groups and client metrics. Loggers have none, as in Kafka."""
    async with http_node(tmp_path) as http:
        await http.post("/kafka/CreateTopics", new_topics("orders"))
        kinds = {2: "orders", 4: "1", 32: "billing", 16: "metrics"}
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in kinds.items()
        ]
        answer = await http.post("/kafka/DescribeConfigs", {"resources": resources, "include_documentation": True})
        for result in answer.json["results"]:
            assert result["configs"]
            for config in result["configs"]:
                assert config["documentation"].endswith("."), config
