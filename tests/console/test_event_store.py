"""The event store: its topics, browsing events, schemas, and publishing with a form made from a schema."""

import json
from typing import Any

import pytest

from tests.console.driver import CONSOLE, Console
from tests.console.secured import SecuredServer
from tests.support.http_json import ask
from tests.support.server import KwireProcess

pytestmark = [*CONSOLE, pytest.mark.only_server("the event store", path="/events")]

ORDER_PLACED = {
    "eventType": "order.placed",
    "title": "A customer has placed an order",
    "type": "object",
    "required": ["id", "customer", "total", "lines", "is_gift"],
    "properties": {
        "id": {"type": "integer", "minimum": 1, "description": "Number of the order"},
        "customer": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 60},
                "email": {"type": "string", "pattern": "^[^@]+@[^@]+$", "examples": ["ada@example.com"]},
            },
        },
        "total": {"type": "number", "minimum": 0, "maximum": 10000},
        "state": {"enum": ["new", "paid", "sent"]},
        "placed_at": {"type": "string", "format": "date-time"},
        "is_gift": {"type": "boolean"},
        "lines": {
            "type": "array",
            "minItems": 1,
            "maxItems": 50,
            "items": {"$ref": "#/$defs/line"},
        },
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "extra": {"anyOf": [{"type": "string"}, {"type": "object"}]},
    },
    "$defs": {
        "line": {
            "type": "object",
            "required": ["sku", "quantity"],
            "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer", "minimum": 1}},
        }
    },
}
ORDER_SENT = {
    "eventType": "order.sent",
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}},
}
EVENTS = 130


def order(number: int) -> dict[str, Any]:
    line = {"sku": f"sku-{number}", "quantity": number % 3 + 1}
    return {"id": number, "customer": {"name": "Ada"}, "total": number * 2.5, "is_gift": False, "lines": [line]}


@pytest.fixture(scope="module")
def shop(console_server: KwireProcess) -> KwireProcess:
    """The server with a topic of the event store that has events."""
    url = console_server.http_url
    assert ask(f"{url}/topics", "POST", {"name": "shop", "schemas": [ORDER_PLACED, ORDER_SENT]}).status == 201
    audit = {"eventType": "user.verified", "type": "object", "required": ["verified"]}
    assert ask(f"{url}/topics", "POST", {"name": "audit", "schemas": [audit]}).status == 201
    events = [{"topic": "shop", "type": "order.placed", "payload": order(number)} for number in range(1, EVENTS)]
    events.append({"topic": "shop", "type": "order.sent", "payload": {"id": 12345678901234567890}, "key": "k"})
    events.append({"topic": "audit", "type": "user.verified", "payload": {"verified": True}})
    assert ask(f"{url}/events", "POST", events).status == 201
    return console_server


def test_topics_and_all_events_are_shown(console: Console, shop: KwireProcess) -> None:
    console.open("/event-store")
    console.wait_for("user.verified")
    console.wait_for("order.sent")
    console.screenshot("event-store")
    console.click("All events")
    console.wait_for("audit-1")
    console.wait_for("order.sent")
    console.screenshot("event-store-all")


def test_events_are_browsed_with_filters(console: Console, shop: KwireProcess) -> None:
    console.open("/event-store/topics/shop")
    console.wait_for("100 events")
    console.wait_for(f"shop-{EVENTS}")
    console.click("Load more")
    console.wait_for(f"{EVENTS} events")
    console.type("After event", "shop-125")
    console.click("Browse")
    console.wait_for("5 events")
    console.wait_for("kwire event list shop --since shop-125 --newest-first --limit 100")
    console.screenshot("event-topic")
    console.click(f"Event shop-{EVENTS}")
    console.wait_for("12345678901234567890")
    console.wait_for(f"kwire event list shop --since shop-{EVENTS - 1} --limit 1")
    assert console.path.endswith(f"event=shop-{EVENTS}")
    console.click("Event below")
    console.wait_for("lines: [1 item]")
    console.screenshot("event-detail")
    console.press("Escape")
    console.type("After event", "")
    console.type("Day (UTC)", "")
    console.evaluate("const day = findField('Day (UTC)'); day.value = '2001-02-03';")
    console.click("Browse")
    console.wait_for("No stored event matches.")
    console.expect_error("status of 400")
    console.evaluate("findField('Day (UTC)').value = '';")
    console.type("After event", "audit-1")
    console.click("Browse")
    console.wait_for("belongs to topic audit")


@pytest.mark.only_server("a bridge does not show the record of an event")
def test_an_event_has_an_address(console: Console, shop: KwireProcess) -> None:
    console.open("/event-store/topics/shop?event=shop-1")
    console.wait_for("sku-1")
    console.click("Show the record")
    console.until("location.pathname === '/console/topics/shop'")


def test_an_event_is_published_with_a_form_from_its_schema(console: Console, shop: KwireProcess) -> None:
    create = {"name": "new-orders", "schemas": [ORDER_SENT, ORDER_PLACED]}
    assert ask(f"{shop.http_url}/topics", "POST", create).status == 201
    console.open("/event-store/topics/new-orders")
    console.click("Publish event")
    console.choose("Event type", "order.placed")
    console.wait_for("Number of the order · at least 1")
    console.click("Publish")
    console.until("document.querySelector('[aria-invalid=true]')?.labels[0].innerText.startsWith('id')")
    console.type("id", "0")
    console.click("Publish")
    console.until("findField('id').validity.rangeUnderflow && findField('id').ariaInvalid === 'true'")
    console.type("id", "4711")
    console.type("name", "Grace Hopper")
    console.type("email", "not an address")
    console.type("total", "19.5")
    console.choose("state", "paid")
    console.choose("is_gift", "true")
    console.evaluate("findField('placed_at').value = '2026-11-18T12:30:00'")
    console.type("sku", "a-1")
    console.type("quantity", "2")
    console.click("Add to tags")
    console.type("tags 1", "new")
    console.click("Add to tags")
    console.type("tags 2", "new")
    console.type("extra", '{"any": "thing"}')
    console.wait_for('"sku": "a-1"')
    console.screenshot("event-publish")
    console.expect_error("status of 400")
    console.click("Publish")
    # The server checks the pattern, and the page shows its error at the field.
    console.until("findField('email').ariaInvalid === 'true'")
    console.wait_for('"not an address" does not match')
    console.screenshot("event-publish-error")
    console.type("email", "grace@example.com")
    console.click("Publish")
    console.wait_for("non-unique")
    console.click("Remove tags 2")
    console.click("JSON")
    payload = json.loads(console.until("findField('Payload as JSON').value"))
    console.click("Form")
    console.until("findField('sku').value === 'a-1'")
    console.click("Publish")
    console.wait_for("Event new-orders-1 was stored.")
    event = ask(f"{shop.http_url}/events/new-orders-1").body
    assert event["payload"] == payload
    assert event["payload"]["lines"] == [{"sku": "a-1", "quantity": 2}]
    assert (event["payload"]["tags"], event["payload"]["extra"]) == (["new"], {"any": "thing"})
    assert event["payload"]["placed_at"].endswith("Z")


def test_forms_have_null_constants_dates_large_numbers_and_nested_lists(console: Console, shop: KwireProcess) -> None:
    odd = {
        "eventType": "odd",
        "type": "object",
        "required": ["note", "kind", "matrix"],
        "properties": {
            "note": {"type": ["string", "null"]},
            "kind": {"const": "x"},
            "day": {"type": "string", "format": "date"},
            "big": {"type": "integer", "default": 12345678901234567890},
            "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "left_out": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
        },
    }
    text = {"eventType": "text", "type": "string", "minLength": 3}
    assert ask(f"{shop.http_url}/topics", "POST", {"name": "odd", "schemas": [odd, text]}).status == 201
    console.open("/event-store/topics/odd")
    console.click("Publish event")
    console.choose("kind", "x")
    console.evaluate("findField('day').value = '2026-01-02'")
    console.click("Add to matrix")
    console.click("Add to matrix 1")
    console.type("matrix 1 1", "5")
    console.type("big", "12345678901234567891")
    console.click("Publish")
    console.wait_for("Event odd-1 was stored.")
    payload = ask(f"{shop.http_url}/events/odd-1").body["payload"]
    assert payload == {"note": None, "kind": "x", "day": "2026-01-02", "big": 12345678901234567891, "matrix": [[5]]}
    console.click("Publish event")
    console.choose("Event type", "text")
    console.type("Payload", "ab")
    console.expect_error("status of 400")
    console.click("Publish")
    console.wait_for("is shorter than 3 characters")
    console.type("Payload", "abc")
    console.click("Publish")
    console.wait_for("Event odd-2 was stored.")
    assert ask(f"{shop.http_url}/events/odd-2").body["payload"] == "abc"


def test_schemas_are_shown_and_registered(console: Console, shop: KwireProcess) -> None:
    console.open("/event-store/topics/audit/schemas")
    console.wait_for("user.verified")
    console.click("Register schema")
    console.type("Event type", "user.deleted")
    console.type("JSON Schema", '{"type": "objekt"}')
    console.expect_error("status of 4")
    console.click("Register")
    console.wait_for("'objekt' is not a type of JSON Schema")
    console.type("JSON Schema", '{"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}')
    console.screenshot("event-schema-register")
    console.click("Register")
    console.wait_for("The schema of user.deleted was registered.")
    console.wait_for("2 event types")
    schemas = ask(f"{shop.http_url}/topics/audit/schemas").body["schemas"]
    assert [one["eventType"] for one in schemas] == ["user.verified", "user.deleted"]
    console.open("/event-store/topics/shop/schemas")
    console.wait_for("lines[].sku")
    console.click("JSON Schema")
    console.wait_for("$defs")
    console.evaluate("scrollTo(0, 0)")
    console.screenshot("event-schemas")


def test_a_topic_is_created_and_deleted(console: Console, shop: KwireProcess) -> None:
    console.open("/event-store")
    console.click("Create topic")
    console.type("Name", "payments-made")
    console.type("Event type", "payment.made")
    console.screenshot("event-topic-create")
    console.click("Create topic")
    console.wait_for("Topic payments-made was created.")
    console.wait_for("No stored event matches.")
    console.click("Live")
    console.wait_for("Waiting for events")
    body = {"topic": "payments-made", "type": "payment.made", "payload": {"id": "p-1"}}
    assert ask(f"{shop.http_url}/events", "POST", body).status == 201
    console.wait_for('{"id":"p-1"}')
    console.click("Delete")
    console.type("Type payments-made to confirm", "payments-made")
    console.click("Delete topic")
    console.until("location.pathname === '/console/event-store'")
    assert ask(f"{shop.http_url}/topics/payments-made").status == 404


def test_a_tenant_publishes_to_a_topic_of_its_scope(secured: Console, secured_server: SecuredServer) -> None:
    secured_server.log_in_as_tenant(secured, "/event-store")
    secured.click("Create topic")
    secured.type("Name", "tenant-events")
    secured.type("Event type", "it.happened")
    secured.click("Create topic")
    secured.wait_for("Topic tenant-events was created.")
    secured.click("Publish event")
    secured.type("id", "7")
    secured.click("Publish")
    secured.wait_for("Event tenant-events-1 was stored.")
    secured.click("Event tenant-events-1")
    secured.wait_for("it.happened")


def test_a_reader_sees_events_but_no_actions(secured: Console, secured_server: SecuredServer) -> None:
    secured_server.log_in(secured, "admin", "/event-store")
    secured.click("Create topic")
    secured.type("Name", "read-only")
    secured.type("Event type", "it.happened")
    secured.click("Create topic")
    secured.wait_for("Topic read-only was created.")
    secured.click("Log out")
    secured_server.log_in(secured, "rita", "/event-store")
    assert secured.evaluate("findControl('Create topic')") is None
    secured.click("read-only")
    secured.wait_for("No stored event matches.")
    assert secured.evaluate("findControl('Publish event') ?? findControl('Delete')") is None
    secured.click("Schemas")
    secured.wait_for("it.happened")
    secured.wait_for("date-time")
    assert secured.evaluate("findControl('Register schema') ?? findControl('Extend') ?? findControl('Publish')") is None
