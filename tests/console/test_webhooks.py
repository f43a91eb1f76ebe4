"""Webhooks: create one, see its deliveries and dead letters, send them again, pause, rotate the secret, delete."""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest

from tests.console.driver import CONSOLE, BrowserThread, Console
from tests.console.secured import SecuredServer
from tests.support.http_json import HttpAnswer, ask
from tests.support.server import KwireProcess
from tests.support.webhook_receiver import Receiver, Reply

pytestmark = [*CONSOLE, pytest.mark.only_server("the event store", path="/events")]

NUMBERS = count(1)
SCHEMA = {"eventType": "order.paid", "type": "object", "required": ["id"]}


@pytest.fixture
def receiver(browser: BrowserThread) -> Iterator[Receiver]:
    """A receiver on loopback, in the event loop of the browser's thread."""
    receiver = Receiver()
    browser.run(receiver.start())
    yield receiver
    browser.run(receiver.stop())


class Paid(NamedTuple):
    """A topic of the event store."""

    server: KwireProcess
    topic: str

    def publish(self, *ids: int) -> None:
        events = [{"topic": self.topic, "type": "order.paid", "payload": {"id": one}} for one in ids]
        assert ask(f"{self.server.http_url}/events", "POST", events).status == 201

    def create_webhook(self, url: str, **more: object) -> str:
        body = {"url": url, "topics": {self.topic: "latest"}, **more}
        answer = ask(f"{self.server.http_url}/webhooks", "POST", body)
        assert answer.status == 201, answer
        webhook_id: str = answer.body["id"]
        return webhook_id

    def webhook(self, webhook_id: str, method: str = "GET") -> HttpAnswer:
        return ask(f"{self.server.http_url}/webhooks/{webhook_id}", method)


@pytest.fixture
def paid(console_server: KwireProcess) -> Paid:
    """A topic for one test, so that its events are numbered from 1."""
    topic = f"paid{next(NUMBERS)}"
    assert ask(f"{console_server.http_url}/topics", "POST", {"name": topic, "schemas": [SCHEMA]}).status == 201
    return Paid(console_server, topic)


def test_a_webhook_is_created_and_its_failed_deliveries_are_sent_again(
    console: Console, paid: Paid, receiver: Receiver, browser: BrowserThread
) -> None:
    receiver.reply = lambda got: Reply(500, body=b'{"error": "the database is down"}')
    console.open("/webhooks")
    console.click("Create webhook")
    console.type("URL", receiver.url)
    console.type("Topics", "nowhere")
    console.expect_error("status of 4")
    console.click("Create webhook")
    console.until("findField('Topics').ariaInvalid === 'true'")
    console.type("Topics", paid.topic)
    console.type("Description", "Shipping")
    console.type("Headers", "X-Shop=7")
    console.type("Only event types", "order.paid")
    console.wait_for(
        f"kwire webhook create {receiver.url} {paid.topic}=latest "
        "--header X-Shop=7 --description Shipping --types order.paid"
    )
    console.screenshot("webhook-create")
    console.click("Create webhook")
    console.wait_for("This is the only time that the secret is shown.")
    console.wait_for("whsec_")
    console.screenshot("webhook-secret")
    console.click("I have stored it")
    paid.publish(1, 2)
    # Each event is tried three times, then it is a dead letter.
    console.until("document.querySelectorAll('table .badge.bad').length === 2")
    console.wait_for("500")
    console.screenshot("webhook")
    console.click(f"Attempt 3 of {paid.topic}-1")
    console.wait_for("the database is down")
    console.screenshot("webhook-attempt")
    console.press("Escape")
    console.click("Dead letters")
    console.wait_for("2 dead letters")
    console.screenshot("webhook-dead")
    receiver.reply = lambda got: Reply()
    console.click(f"Send again {paid.topic}-1")
    console.wait_for(f"{paid.topic}-1 will be sent again.")
    console.wait_for("1 dead letter")
    console.click("Send all again")
    console.wait_for("--dead")
    console.click("Send all again")
    console.wait_for("1 event will be sent again.")
    console.wait_for("No dead letters")
    got = browser.run(receiver.received(8))
    assert {one.json["id"] for one in got[-2:]} == {f"{paid.topic}-1", f"{paid.topic}-2"}
    assert got[-1].headers["x-shop"] == "7"
    console.click("Deliveries")
    console.until("document.querySelectorAll('table .badge.good').length === 2")
    console.click("Failed only")
    console.until("document.querySelectorAll('table .badge.good').length === 0")
    console.open("/webhooks")
    console.wait_for("active")
    console.screenshot("webhooks")


def test_a_dead_letter_is_dropped(console: Console, paid: Paid, receiver: Receiver) -> None:
    receiver.reply = lambda got: Reply(500)
    webhook_id = paid.create_webhook(receiver.url)
    paid.publish(3)
    console.open(f"/webhooks/{webhook_id}/dead")
    console.click("Drop paid")
    console.wait_for("this webhook gives it up")
    console.click("Drop")
    console.wait_for("was dropped.")
    console.wait_for("No dead letters")
    assert paid.webhook(webhook_id).body["deadLetters"] == 0
    assert paid.webhook(webhook_id, "DELETE").status == 200


def test_a_webhook_is_tested_paused_and_resumed(console: Console, paid: Paid, receiver: Receiver) -> None:
    receiver.answer(Reply(503, body=b"not yet"))
    webhook_id = paid.create_webhook(receiver.url, description="Billing")
    console.open(f"/webhooks/{webhook_id}")
    console.wait_for("No deliveries yet")
    console.click("Send test")
    console.wait_for("not yet")
    console.screenshot("webhook-test")
    console.press("Escape")
    console.click("Send test")
    console.wait_for("The receiver has accepted the delivery.")
    console.press("Escape")
    console.click("Pause")
    console.wait_for(f"kwire webhook pause {webhook_id}")
    console.click("Pause")
    console.wait_for("The webhook is paused: on request.")
    assert paid.webhook(webhook_id).body["state"] == "paused"
    paid.publish(4)
    console.click("Positions")
    console.until("document.querySelector('table td.number')?.innerText === '1'")
    console.screenshot("webhook-positions")
    console.click("Resume")
    console.wait_for("continues where it has stopped")
    console.click("Resume")
    console.wait_for("The webhook is active.")
    console.until("document.querySelector('table td.number')?.innerText === '0'")
    assert paid.webhook(webhook_id, "DELETE").status == 200


def test_a_webhook_is_changed_replayed_and_deleted(
    console: Console, paid: Paid, receiver: Receiver, browser: BrowserThread
) -> None:
    paid.publish(5)
    webhook_id = paid.create_webhook(receiver.url)
    console.open(f"/webhooks/{webhook_id}/settings")
    console.click("Edit")
    console.type("Filter", "data.id ==")
    console.expect_error("status of 400")
    console.click("Save")
    console.until("findField('Filter').ariaInvalid === 'true'")
    console.wait_for("syntax error")
    console.type("Filter", "data.id == 5")
    console.choose("Deliver", "several at a time")
    console.type("At a time", "3")
    console.screenshot("webhook-edit")
    console.click("Save")
    console.wait_for("The webhook was changed.")
    console.wait_for("up to 3 at a time")
    console.screenshot("webhook-settings")
    console.click("Rotate secret")
    console.type("Hours with both secrets", "1")
    console.click("Rotate secret")
    console.wait_for("1 previous secret also sign.")
    console.click("I have stored it")
    console.click("Positions")
    console.click("Replay")
    console.wait_for(f"kwire webhook replay {webhook_id} --from-beginning")
    console.screenshot("webhook-replay")
    console.click("Replay")
    console.wait_for("The webhook sends the events again.")
    (got, *_) = browser.run(receiver.received(1))
    assert got.json["payload"] == {"id": 5}
    assert len(got.headers["webhook-signature"].split()) == 2
    console.click("Delete")
    console.wait_for("Nothing more is sent to")
    console.click("Delete webhook")
    console.until("location.pathname === '/console/webhooks'")
    assert paid.webhook(webhook_id).status == 404


def test_a_reader_sees_no_webhooks_of_others(secured: Console, secured_server: SecuredServer) -> None:
    secured_server.log_in(secured, "rita", "/webhooks")
    secured.wait_for("No webhooks yet")
    secured.screenshot("webhooks-empty")
