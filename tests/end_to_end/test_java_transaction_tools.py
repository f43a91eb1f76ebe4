"""Apache Kafka's tool for transactions, unchanged: kafka-transactions in all its forms."""

from collections.abc import Iterator

import pytest

from tests.support.clients import DEADLINE_S, Topics, unique_name
from tests.support.hanging_transactions import leave_hanging
from tests.support.java import JavaTools
from tests.support.server import Broker, wait_until
from tests.support.tool_server import ToolAnswer, ToolServer
from tests.support.transaction_states import wait_for_state
from tests.support.transaction_tests import assert_reads
from tests.support.transactional_clients.interface import TRANSACTION_TIMEOUT_MS, Refused
from tests.support.transactional_clients.with_confluent import ConfluentClients

# The first run fetches the tools with Maven. One worker runs all tests of the tools, in one JVM.
pytestmark = [
    pytest.mark.needs_java,
    pytest.mark.needs_mvn,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kafka-tools"),
]

TOOL = "TransactionsCommand"
# How the tool is told that a transaction of any age may be hanging.
ANY_AGE = ("--max-transaction-timeout", "0")


def rows(table: str, about: str = "") -> list[dict[str, str]]:
    """The rows under a header that contain `about`, by column; names in other rows may hold tabs and ends of lines."""
    header, *lines = (line for line in table.splitlines() if line)
    return [
        {name.strip(): cell.strip() for name, cell in zip(header.split("\t"), cells, strict=True) if name.strip()}
        for cells in (line.split("\t") for line in lines if about in line)
    ]


class TransactionTools:
    """kafka-transactions against one broker."""

    def __init__(self, server: ToolServer, bootstrap: str) -> None:
        self.server = server
        self.bootstrap = bootstrap

    def run(self, *arguments: str) -> str:
        return self.server.run(TOOL, "--bootstrap-server", self.bootstrap, *arguments)

    def refused(self, *arguments: str) -> str:
        """What the tool complains of."""
        answer: ToolAnswer = self.server.call(TOOL, "--bootstrap-server", self.bootstrap, *arguments)
        assert answer.exit_code == 1
        assert answer.stdout == ""
        return answer.stderr

    def table(self, *arguments: str, about: str = "") -> list[dict[str, str]]:
        return rows(self.run(*arguments), about)

    def listed(self, pattern: str, *arguments: str) -> dict[str, str]:
        """States by transactional id."""
        rows = self.table("list", "--transactional-id-pattern", pattern, *arguments)
        return {row["TransactionalId"]: row["TransactionState"] for row in rows}

    def described(self, transactional_id: str) -> dict[str, str]:
        (row,) = self.table("describe", "--transactional-id", transactional_id)
        return row

    def producers(self, topic: str) -> dict[int, dict[str, str]]:
        rows = self.table("describe-producers", "--topic", topic, "--partition", "0")
        return {int(row["ProducerId"]): row for row in rows}

    def hanging(self, *arguments: str) -> list[dict[str, str]]:
        return self.table("find-hanging", *ANY_AGE, *arguments)

    def hanging_on(self, node: str, topic: str) -> list[dict[str, str]]:
        """Those of a topic among all on a node. The tool fails when a topic of another test is deleted meanwhile."""
        arguments = ("find-hanging", *ANY_AGE, "--broker-id", node)

        def output() -> str:
            answer = self.server.call(TOOL, "--bootstrap-server", self.bootstrap, *arguments)
            return answer.stdout if answer.exit_code == 0 else ""

        return rows(wait_until(output, "the tool searches every partition of the node", DEADLINE_S), topic)


@pytest.fixture(scope="module")
def tools(broker: Broker, java: JavaTools) -> TransactionTools:
    return TransactionTools(java.server, broker.bootstrap)


@pytest.fixture
def clients(broker: Broker) -> Iterator[ConfluentClients]:
    clients = ConfluentClients(broker.bootstrap)
    yield clients
    clients.close()


def test_transactions_are_listed_and_described(
    broker: Broker, tools: TransactionTools, topics: Topics, clients: ConfluentClients
) -> None:
    topic, stem = topics.create("txn-tools"), unique_name("listed")
    ids = {state: f"{stem}-{state}" for state in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")}
    producers = {state: clients.producer(transactional_id) for state, transactional_id in ids.items()}
    for state in ("CompleteCommit", "CompleteAbort", "Ongoing"):
        producers[state].begin()
        producers[state].send(topic, state)
        producers[state].flush()
    producers["CompleteCommit"].commit()
    producers["CompleteAbort"].abort()
    for state, transactional_id in ids.items():
        wait_for_state(broker.bootstrap, transactional_id, state)

    everything = {transactional_id: state for state, transactional_id in ids.items()}
    assert tools.listed(f"{stem}-.*") == everything
    every_row = {row["TransactionalId"]: row for row in tools.table("list", about=stem)}
    assert {name: row["TransactionState"] for name, row in every_row.items()} == everything
    assert tools.listed(f"{stem}-Complete") == {}, "a pattern matches the whole id"
    assert set(tools.listed(f"{stem}-Complete(Commit|Abort)")) == {ids["CompleteCommit"], ids["CompleteAbort"]}
    # One that never ran has run for ever; of the others none has for an hour.
    assert tools.listed(f"{stem}-.*", "--duration-filter", "3600000") == {ids["Empty"]: "Empty"}
    assert tools.listed(f"{stem}-.*", "--duration-filter", "-1") == everything
    assert "failed" in tools.refused("list", "--transactional-id-pattern", "(").lower()

    ongoing = tools.described(ids["Ongoing"])
    assert (ongoing["TransactionState"], ongoing["TransactionTimeoutMs"]) == ("Ongoing", str(TRANSACTION_TIMEOUT_MS))
    assert (ongoing["ProducerEpoch"], ongoing["TopicPartitions"]) == ("0", f"{topic}-0")
    assert ongoing["ProducerId"] == every_row[ids["Ongoing"]]["ProducerId"]
    assert 0 <= int(ongoing["TransactionDurationMs"]) < 600_000
    empty = tools.described(ids["Empty"])
    assert (empty["CurrentTransactionStartTimeMs"], empty["TopicPartitions"]) == ("None", "")
    assert tools.described(ids["CompleteCommit"])["TopicPartitions"] == ""
    assert "could not be found" in tools.refused("describe", "--transactional-id", unique_name("nobody"))

    states = tools.producers(topic)
    by_state = {state: states[int(every_row[name]["ProducerId"])] for state, name in ids.items() if state != "Empty"}
    assert len(states) == len(by_state)
    assert by_state["Ongoing"]["CurrentTransactionStartOffset"] == "2"
    assert by_state["Ongoing"]["LatestCoordinatorEpoch"] == "-1"
    for state in ("CompleteCommit", "CompleteAbort"):
        assert by_state[state]["CurrentTransactionStartOffset"] == "None"
        assert int(by_state[state]["LatestCoordinatorEpoch"]) >= 0
        assert by_state[state]["LastSequence"] == "0"


def test_a_hanging_transaction_is_found_and_aborted(
    broker: Broker, tools: TransactionTools, topics: Topics, clients: ConfluentClients
) -> None:
    topic = topics.create("txn-hanging")
    busy_id = unique_name("busy")
    busy = clients.producer(busy_id)
    producer_id, offset = leave_hanging(broker, topic)
    busy.begin()
    busy.send(topic, "busy")
    busy.flush()
    (found,) = tools.hanging("--topic", topic)
    assert found == tools.hanging("--topic", topic, "--partition", "0")[0]
    node = tools.table("list", about=busy_id)[0]["Coordinator"]
    assert tools.hanging_on(node, topic) == [found]
    expected = {"ProducerId": str(producer_id), "ProducerEpoch": "0", "StartOffset": str(offset), "Partition": "0"}
    assert expected.items() <= found.items()
    assert found["CoordinatorEpoch"] == "-1"
    # It is too young for the tool's own idea of hanging.
    assert tools.table("find-hanging", "--topic", topic) == []

    busy.commit()
    wait_for_state(broker.bootstrap, busy_id, "CompleteCommit")
    # What comes after the hanging transaction waits for it.
    assert_reads(clients, topic, [])
    abort = ("abort", "--topic", topic, "--partition", "0", "--start-offset", str(offset))
    assert tools.run(*abort) == ""
    assert_reads(clients, topic, ["busy"])
    assert tools.hanging("--topic", topic) == []
    assert "Could not find any open transactions" in tools.refused(*abort)
    assert int(tools.producers(topic)[producer_id]["LatestCoordinatorEpoch"]) >= 0


def test_a_transaction_is_ended_by_force(tools: TransactionTools, topics: Topics, clients: ConfluentClients) -> None:
    topic, transactional_id = topics.create("txn-force"), unique_name("forced")
    producer = clients.producer(transactional_id)
    producer.begin()
    producer.send(topic, "forced")
    producer.flush()
    assert tools.run("forceTerminateTransaction", "--transactionalId", transactional_id) == ""
    described = tools.described(transactional_id)
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Empty", "")
    assert int(described["ProducerEpoch"]) > 0
    with pytest.raises(Refused, match="FENCED"):
        producer.commit()
    assert_reads(clients, topic, [])
    assert_reads(clients, topic, ["forced"], is_committed=False)
