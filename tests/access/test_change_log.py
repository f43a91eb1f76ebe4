"""Changes and failed logins in the server's log: who did what, never twice, and only what clients do."""

import logging

import pytest

from kwire.access.audit.change_log import FACTS_LENGTH_MAX, log_failed_login
from kwire.access.audit.entries import HTTP, KAFKA, TOPIC, Actor, acting
from kwire.access.audit.queue import AuditQueue
from kwire.access.principal import Principal
from kwire.config.access import AuditConfig
from tests.support.clock import ManualClock

ALICE = Actor(Principal("User", "alice"), "10.0.0.7", KAFKA)


@pytest.fixture(params=[True, False], ids=["audited", "not audited"])
def queue(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> AuditQueue:
    caplog.set_level(logging.INFO)
    is_on = request.param
    return AuditQueue(
        AuditConfig(has_webhooks=is_on, has_changes=is_on, has_refusals=is_on, retention_ms=1), ManualClock()
    )


def test_a_change_by_a_client_is_logged_whether_or_not_it_is_audited(
    queue: AuditQueue, caplog: pytest.LogCaptureFixture
) -> None:
    with acting(ALICE):
        queue.changed("topic.created", TOPIC, "orders", {"partitions": 3, "settings": []})
        queue.changed("topic.records_deleted", TOPIC, "orders", {"startOffsets": {"0": 5}})
        queue.changed("topic.configured", TOPIC, "orders", {"set": ["retention.ms", "segment.ms"]})
    assert caplog.messages == [
        "topic orders: created by User:alice from 10.0.0.7 (kafka), partitions=3",
        "topic orders: records deleted by User:alice from 10.0.0.7 (kafka), startOffsets={'0': 5}",
        "topic orders: configured by User:alice from 10.0.0.7 (kafka), set=retention.ms,segment.ms",
    ]


def test_what_the_server_does_by_itself_is_not_logged_here(queue: AuditQueue, caplog: pytest.LogCaptureFixture) -> None:
    queue.changed("topic.deleted", TOPIC, "idle-room")
    with acting(ALICE):
        queue.changed("topic.created", TOPIC, "__consumer_offsets", {"partitions": 50})
    assert not caplog.messages


def test_long_facts_and_names_are_shortened(queue: AuditQueue, caplog: pytest.LogCaptureFixture) -> None:
    with acting(ALICE):
        queue.changed("group.offsets_deleted", "GROUP", "g" * 30_000, {"topics": ["t" * 200] * 100})
    assert len(caplog.messages[0]) < 2 * FACTS_LENGTH_MAX + 200


def test_a_failed_login_never_shows_a_name_that_may_be_a_password(caplog: pytest.LogCaptureFixture) -> None:
    log_failed_login("alice", "10.0.0.7", KAFKA, "PLAIN", "the password is wrong")
    log_failed_login(None, "10.0.0.8", HTTP, "basic", "the user name or the password is wrong")
    assert caplog.messages == [
        "login of user 'alice' failed: client 10.0.0.7 (kafka, PLAIN): the password is wrong",
        "login of an unknown user failed: client 10.0.0.8 (http, basic): the user name or the password is wrong",
    ]
