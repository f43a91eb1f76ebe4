"""The queue of audit entries: what is recorded, what is counted, and what is lost if there is too much."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kwire.access.access import Unrestricted
from kwire.access.acl import Operation, ResourceType
from kwire.access.audit import queue as audit_queue
from kwire.access.audit.entries import HTTP, KAFKA, TOPIC, Actor, AuditEntry, acting, changed_names
from kwire.access.audit.queue import ENTRY_BYTES_MAX, NAME_LENGTH_MAX, WAITING_MAX, AuditQueue
from kwire.access.audit.repeats import INTERVAL_SECONDS, KEYS_MAX, RepeatCounter
from kwire.access.principal import Principal
from kwire.config.access import AuditConfig
from tests.support.clock import ManualClock

ALICE = Principal("User", "alice")
ALL = AuditConfig(has_webhooks=True, has_changes=True, has_refusals=True, retention_ms=-1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def waiting(queue: AuditQueue) -> list[tuple[str, dict[str, Any]]]:
    return [(one.type, msgspec.json.decode(one.data)) for one in queue.take(WAITING_MAX, 2**40)]


def refuse(queue: AuditQueue, name: str = "orders", host: str = "10.0.0.1") -> None:
    queue.refused(Unrestricted(ALICE, host), KAFKA, Operation.WRITE, ResourceType.TOPIC, name)


def in_loop(loop: asyncio.AbstractEventLoop, work: Any) -> None:
    async def run() -> None:
        work()

    loop.run_until_complete(run())


def test_a_refusal_says_who_where_what_and_on_which_resource(
    clock: ManualClock, loop: asyncio.AbstractEventLoop
) -> None:
    queue = AuditQueue(ALL, clock)
    in_loop(loop, lambda: refuse(queue))
    ((what, fields),) = waiting(queue)
    assert what == "access.denied"
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "principal": "User:alice",
        "host": "10.0.0.1",
        "port": "kafka",
        "outcome": "denied",
        "resource": {"type": "TOPIC", "name": "orders"},
        "operation": "WRITE",
    }


def test_logins_have_their_outcome(clock: ManualClock, loop: asyncio.AbstractEventLoop) -> None:
    queue = AuditQueue(ALL, clock)

    def log_in() -> None:
        queue.login(ALICE, "10.0.0.1", KAFKA, "SCRAM-SHA-256")
        queue.login_failed("mallory", "10.0.0.2", HTTP, "Basic", "wrong password")
        queue.login_failed(None, "10.0.0.3", KAFKA, "PLAIN", "wrong password")

    in_loop(loop, log_in)
    (first, granted), (second, failed), (third, unknown) = waiting(queue)
    assert first == second == third == "access.login"
    assert (unknown["principal"], unknown["outcome"], unknown["host"]) == ("Unknown:user", "failure", "10.0.0.3")
    assert (granted["principal"], granted["outcome"], granted["mechanism"]) == (
        "User:alice",
        "success",
        "SCRAM-SHA-256",
    )
    assert (failed["principal"], failed["outcome"], failed["port"]) == ("User:mallory", "failure", "http")


def test_a_change_is_by_the_actor_of_the_request_or_by_the_server(clock: ManualClock) -> None:
    queue = AuditQueue(ALL, clock)
    with acting(Actor(ALICE, "10.0.0.1", HTTP)):
        queue.changed("topic.created", TOPIC, "orders", {"partitions": 3})
    queue.changed("topic.deleted", TOPIC, "orders")
    (_, by_client), (_, by_server) = waiting(queue)
    assert (by_client["principal"], by_client["host"], by_client["port"]) == ("User:alice", "10.0.0.1", "http")
    assert by_client["partitions"] == 3
    assert (by_server["principal"], by_server["port"]) == ("Server:kwire", "server")


@pytest.mark.parametrize(
    ("config", "recorded"),
    [
        (ALL, {"access.denied", "access.login", "topic.created", "webhook.removed"}),
        (ALL._replace(has_refusals=False), {"access.login", "topic.created", "webhook.removed"}),
        (ALL._replace(has_refusals=False, has_changes=False), {"webhook.removed"}),
        (AuditConfig(False, False, False, -1), set()),
    ],
)
def test_the_setting_decides_what_is_recorded(
    config: AuditConfig, recorded: set[str], clock: ManualClock, loop: asyncio.AbstractEventLoop
) -> None:
    queue = AuditQueue(config, clock)

    def record_all() -> None:
        refuse(queue)
        queue.login(ALICE, "h", KAFKA, "PLAIN")
        queue.changed("topic.created", TOPIC, "orders")
        queue.record(AuditEntry("webhook.removed", Actor(ALICE, "h", HTTP), "success"))

    in_loop(loop, record_all)
    assert {what for what, _ in waiting(queue)} == recorded


def test_repeated_refusals_become_one_entry_per_interval_with_a_count(clock: ManualClock) -> None:
    counter, entry = RepeatCounter(), _refusal("orders")
    assert counter.admit(entry, 0.0)
    assert not any(counter.admit(entry, 1.0) for _ in range(500))
    assert counter.admit(_refusal("others"), 1.0)
    assert counter.take_due(INTERVAL_SECONDS - 0.1) == []
    (due,) = counter.take_due(INTERVAL_SECONDS + 0.1)
    assert (due.resource, due.times) == ("orders", 500)
    # The next interval has begun, and nothing was repeated in it.
    assert not counter.admit(entry, INTERVAL_SECONDS + 0.2)
    assert [one.times for one in counter.take_due(2 * INTERVAL_SECONDS + 1)] == [1]
    assert counter.take_due(4 * INTERVAL_SECONDS) == []
    assert len(counter) == 0
    assert counter.admit(entry, 5 * INTERVAL_SECONDS)
    assert counter.counted == 501


def test_a_client_that_tries_many_names_causes_few_entries() -> None:
    counter = RepeatCounter()
    admitted = sum(counter.admit(_refusal(f"t{number}"), 0.0) for number in range(20 * KEYS_MAX))
    assert admitted == KEYS_MAX
    assert len(counter) == KEYS_MAX + 1
    (due,) = counter.take_due(INTERVAL_SECONDS)
    assert due.times == 19 * KEYS_MAX
    assert due.resource == ""


def test_counted_repetitions_are_recorded_when_the_queue_is_closed(
    clock: ManualClock, loop: asyncio.AbstractEventLoop
) -> None:
    queue = AuditQueue(ALL, clock)

    def refuse_often() -> None:
        for _ in range(10):
            refuse(queue)
        queue.close()

    in_loop(loop, refuse_often)
    assert [fields.get("count", 1) for _, fields in waiting(queue)] == [1, 9]


def test_entries_beyond_the_bound_are_dropped_counted_and_logged(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_queue, "WAITING_MAX", 3)
    queue = AuditQueue(ALL, clock)
    with caplog.at_level(logging.WARNING, "kwire.audit"):
        for number in range(5):
            queue.changed("topic.created", TOPIC, f"t{number}")
    # What was recorded first is kept: an attacker cannot displace it.
    assert [fields["resource"]["name"] for _, fields in waiting(queue)] == ["t0", "t1", "t2"]
    assert (queue.recorded, queue.dropped) == (3, 2)
    assert "lost" in caplog.text
    assert "topic.created" in caplog.text


def test_the_bytes_that_wait_are_bounded(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_queue, "WAITING_BYTES_MAX", 1000)
    queue = AuditQueue(ALL, clock)
    for _ in range(100):
        queue.changed("topic.created", TOPIC, "x" * 200)
    assert sum(len(one.data) for one in queue.take(WAITING_MAX, 2**40)) <= 1000
    queue.changed("topic.created", TOPIC, "again")
    assert len(queue) == 1


def test_long_names_and_large_facts_are_shortened(clock: ManualClock) -> None:
    queue = AuditQueue(ALL, clock)
    queue.changed("group.deleted", "GROUP", "g" * 30_000)
    queue.changed("config.changed", "BROKER", "1", {"set": ["x" * 1000] * (ENTRY_BYTES_MAX // 500)})
    (_, named), (_, large) = waiting(queue)
    assert len(named["resource"]["name"]) <= NAME_LENGTH_MAX + 1
    assert large["shortened"] is True
    assert "set" not in large


def test_a_name_that_is_not_unicode_is_recorded(clock: ManualClock, loop: asyncio.AbstractEventLoop) -> None:
    queue = AuditQueue(ALL, clock)
    in_loop(loop, lambda: queue.login_failed("bad\udcff", "h", KAFKA, "PLAIN", "wrong password"))
    assert len(waiting(queue)) == 1


def test_changes_of_settings_name_them_without_values() -> None:
    facts = changed_names({"a": "1", "b": "2"}, {"b": "secret", "c": "secret"})
    assert facts == {"set": ["b", "c"], "removed": ["a"]}


def _refusal(name: str) -> AuditEntry:
    actor = Actor(ALICE, "10.0.0.1", KAFKA)
    return AuditEntry("access.denied", actor, "denied", "TOPIC", name, {"operation": "WRITE"})
