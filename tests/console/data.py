"""The data of the server that the tests of the console share: topics, records, a room and a group that lags."""

import subprocess
import sys

from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.support.http_json import ask
from tests.support.server import KwireProcess

ORDER_COUNT = 500
ORDERS_PER_REQUEST = 100
STOP_TIMEOUT_S = 10.0
RECORDS = "application/vnd.kafka.json.v2+json"


def order(number: int) -> dict[str, object]:
    return {
        "id": number,
        "customer": f"customer-{number % 40}",
        "total": round(9.5 + number * 1.25, 2),
        "lines": [{"sku": f"sku-{number % 7}", "quantity": number % 3 + 1}],
        "is_paid": number % 4 != 0,
    }


def produce(server: KwireProcess, topic: str, values: list[dict[str, object]]) -> None:
    records = [{"key": f"{value['customer']}", "value": value} for value in values]
    answer = ask(f"{server.http_url}/topics/{topic}", "POST", {"records": records}, RECORDS)
    assert answer.status == 200, answer


def fill(server: KwireProcess) -> None:
    url = server.http_url
    for name, body in (
        ("orders", {"num_partitions": 6}),
        ("payments", {"num_partitions": 3}),
        ("customers", {"num_partitions": 3, "configs": {"cleanup.policy": "compact"}}),
        ("clicks", {"num_partitions": 12, "configs": {"retention.ms": "86400000"}}),
    ):
        assert ask(f"{url}/topics/{name}", "POST", body).status == 201
    for first in range(0, ORDER_COUNT, ORDERS_PER_REQUEST):
        produce(server, "orders", [order(number) for number in range(first, first + ORDERS_PER_REQUEST)])
    fill_rooms(server)
    commit_offset(server, "billing", "orders", 20)


def fill_rooms(server: KwireProcess) -> None:
    for text in ("Hello everyone!", "Hi Alice", "Has anybody seen the new console?"):
        event = {"event_type": "message", "data": {"user": "alice", "text": text}}
        assert ask(f"{server.http_url}/rooms/lobby/events", "POST", event).status == 201


def create_topic(server: KwireProcess, name: str, partition_count: int = 1, **configs: str) -> None:
    """Create a topic with Kafka's defaults. Dots in the names of settings are written as underscores."""
    topic = {
        "name": name,
        "num_partitions": partition_count,
        "replication_factor": -1,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    body = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
    answer = ask(f"{server.http_url}/kafka/CreateTopics", "POST", body)
    assert answer.body["topics"][0]["error_code"] == 0, answer


def commit_offset(server: KwireProcess, group: str, topic: str, offset: int) -> None:
    """Commit an offset of partition 0, so that the group lags behind."""
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, group_id=group, enable_auto_commit=False)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.commit({partition: OffsetAndMetadata(offset, "", -1)})
    finally:
        consumer.close()


class Traffic:
    """A gentle load from a process of its own, so that the charts move. It ends with its standard input.

    In a thread, its clients would use Python's global random numbers, which disturbs Hypothesis in later tests.
    """

    def __init__(self, server: KwireProcess) -> None:
        command = [sys.executable, "-m", "tests.console.traffic", server.bootstrap]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def close(self) -> None:
        self._process.communicate(timeout=STOP_TIMEOUT_S)
