"""The list of rooms, a room with its live events, its history, its subscribers and its chat, and changes of a room."""

import json
from pathlib import Path

from tests.console.driver import CONSOLE, BrowserThread, Console
from tests.console.secured import SecuredServer
from tests.support.http_json import ask
from tests.support.server import KwireProcess

pytestmark = CONSOLE

HISTORY_EVENTS = 250


def publish(server: KwireProcess, room: str, *data: object, event_type: str = "message") -> None:
    events = [{"event_type": event_type, "data": one} for one in data]
    answer = ask(f"{server.http_url}/rooms/{room}/events", "POST", events)
    assert answer.status == 201, answer


def test_rooms_are_listed_with_their_counts(console: Console, console_server: KwireProcess) -> None:
    publish(console_server, "prices", {"symbol": "KWR", "price": 12.5})
    publish(console_server, "support%2Fteam%201", {"user": "bob", "text": "Hi"})
    console.open("/rooms")
    console.wait_for("lobby")
    console.wait_for("support/team 1")
    console.wait_for("ago")
    console.wait_for("/s")
    console.screenshot("rooms")
    console.click("support/team 1")
    console.wait_for("Hi")
    assert console.path == "/console/rooms/support%2Fteam%201"


def test_a_room_is_created_changed_and_deleted(console: Console, console_server: KwireProcess) -> None:
    console.open("/rooms")
    console.click("Create room")
    console.type("Name", "short-lived")
    console.choose("Keep events", "by number of events")
    console.type("Events", "50")
    console.wait_for("kwire room create short-lived --retention-mode count --max-events 50")
    console.screenshot("room-create")
    console.click("Create room")
    console.wait_for("Room short-lived was created.")
    console.wait_for("keeps 50 events")
    console.wait_for("Waiting for events")
    console.click("Retention")
    console.type("Events", "70")
    console.click("Save")
    console.wait_for("keeps 70 events")
    described = ask(f"{console_server.http_url}/rooms/short-lived").body
    assert described["retention"] == {"mode": "count", "hours": None, "max_events": 70}
    console.click("Delete")
    console.type("Type short-lived to confirm", "short-lived")
    console.click("Delete room")
    console.until("location.pathname === '/console/rooms'")
    assert ask(f"{console_server.http_url}/rooms/short-lived").status == 404


def test_events_appear_live_and_can_be_paused_and_filtered(console: Console, console_server: KwireProcess) -> None:
    data = {"order": 7, "lines": [{"sku": "a-1", "quantity": 2}], "big": 12345678901234567890}
    publish(console_server, "live-orders", data, event_type="order.paid")
    console.open("/rooms/live-orders")
    console.wait_for("order.paid")
    console.wait_for("12345678901234567890")
    publish(console_server, "live-orders", {"order": 8})
    console.wait_for('{"order":8}')
    for number in range(3):
        publish(console_server, "live-orders", {"user": "carol", "text": f"message {number}"})
    console.wait_for("message 2")
    console.screenshot("room-live")
    console.click("Pause")
    publish(console_server, "live-orders", {"order": 9})
    console.wait_for("1 new")
    assert '{"order":9}' not in console.text()
    console.click("Resume")
    console.wait_for('{"order":9}')
    console.type("Filter Live events", "paid")
    console.wait_for("1 of 6 events")
    console.click("Event 0")
    console.wait_for("lines: [1 item]")
    console.wait_for("kwire room history live-orders --from-offset 0 --to-offset 0")
    console.screenshot("room-event")
    assert ask(f"{console_server.http_url}/rooms/live-orders", method="DELETE").status == 200
    # A name keeps its spelling, also at the beginning of an error.
    console.wait_for("'live-orders' was deleted")


def test_an_event_is_published_from_a_form(console: Console, console_server: KwireProcess) -> None:
    publish(console_server, "news", 0)
    console.open("/rooms/news")
    console.click("Publish")
    console.type("Type", "headline")
    console.type("Data", '{"id": 12345678901234567890,')
    console.wait_for("not valid yet")
    console.click("Publish")
    console.until("document.querySelector('[aria-invalid=true]') !== null")
    console.type("Data", '{"id": 12345678901234567890, "price": 1.10}')
    console.click("Format")
    console.until("findField('Data').value.includes('\\n  \"id\": 12345678901234567890,\\n  \"price\": 1.10')")
    console.type("Metadata", "source=console")
    console.screenshot("room-publish")
    console.click("Publish")
    console.wait_for("Published at offset 1; 1 subscriber notified.")
    console.wait_for("headline")
    event = ask(f"{console_server.http_url}/rooms/news/events/1").body
    assert event["data"] == {"id": 12345678901234567890, "price": 1.10}
    assert (event["type"], event["metadata"]["source"]) == ("headline", "console")


def test_the_history_goes_back_to_the_first_event(console: Console, console_server: KwireProcess) -> None:
    publish(console_server, "old-news", *[{"number": number} for number in range(HISTORY_EVENTS)])
    console.open("/rooms/old-news/history")
    console.wait_for("200 events")
    console.click("Load older")
    console.wait_for("250 events")
    console.wait_for("This is the oldest stored event.")
    console.type("Up to offset", "5")
    console.press("Tab")
    console.wait_for("6 events")
    console.screenshot("room-history")


def test_users_chat_in_a_room(console: Console, console_server: KwireProcess, browser: BrowserThread) -> None:
    publish(console_server, "chat", {"user": "alice", "text": "Hello everyone!"}, {"user": "alice", "text": "Anybody?"})
    publish(console_server, "chat", {"user": "bob"}, event_type="join")
    console.open("/rooms/chat/chat")
    console.wait_for("Hello everyone!")
    console.type("Your name", "bob")
    console.type("Message", "Hi Alice, I am here")
    console.press("Enter")
    console.until("document.querySelector('.chat-message.own')?.innerText.includes('Hi Alice')")
    with browser.console(console_server.http_url) as other:
        other.open("/rooms/chat/chat")
        other.wait_for("Hi Alice, I am here")
        assert other.evaluate("document.querySelector('.chat-message.own')") is None
        other.type("Your name", "alice")
        other.press("Tab")
        other.until("document.querySelectorAll('.chat-message.own').length === 2")
        other.type("Message", "Great to see you, Bob")
        other.click("Send")
        console.wait_for("Great to see you, Bob")
        console.screenshot("room-chat")
        console.click("Subscribers")
        console.wait_for("JSON lines")
        console.wait_for("User:ANONYMOUS")
        console.screenshot("room-subscribers")


def test_a_live_room_continues_after_a_restart_of_the_server(browser: BrowserThread, tmp_path: Path) -> None:
    server = KwireProcess(tmp_path)
    server.restart()
    try:
        publish(server, "steady", {"number": 1})
        with browser.console(server.http_url) as console:
            console.expect_error("ERR_")
            console.open("/rooms/steady")
            console.wait_for('{"number":1}')
            server.stop()
            console.wait_for("Reconnecting")
            server.restart()
            publish(server, "steady", {"number": 2})
            console.wait_for('{"number":2}')
            console.wait_for("Live")
            # The first event is not shown twice, and the figures of the page go on.
            console.wait_for("2 events")
            console.wait_for("offsets 0 to 1")
            console.expect_error("status of 404")
            assert ask(f"{server.http_url}/rooms/steady", "DELETE").status == 200
            console.wait_for("Ended")
            console.wait_for("There is no room")
    finally:
        server.kill()


def test_a_tenant_uses_rooms_of_its_scope(secured: Console, secured_server: SecuredServer) -> None:
    secured_server.log_in_as_tenant(secured, "/rooms")
    secured.click("Create room")
    secured.type("Name", "team: red")
    secured.click("Create room")
    secured.wait_for("Room team: red was created.")
    secured.wait_for("Waiting for events")
    secured.click("Publish")
    secured.click("Publish")
    secured.wait_for("Published at offset 0")
    secured.wait_for('"text":"Hello"')
    secured.click("Subscribers")
    secured.wait_for("kwire room describe")


def test_a_reader_may_read_a_room_but_not_write(secured: Console, secured_server: SecuredServer) -> None:
    secured_server.log_in(secured, "admin", "/rooms")
    secured.click("Create room")
    secured.type("Name", "announcements")
    secured.click("Create room")
    secured.wait_for("Room announcements was created.")
    secured.click("Log out")
    secured_server.log_in(secured, "rita", "/rooms")
    secured.wait_for("announcements")
    assert secured.evaluate("findControl('Create room')") is None
    secured.click("announcements")
    secured.wait_for("Waiting for events")
    for name in ("Publish", "Retention", "Delete"):
        assert secured.evaluate(f"findControl({json.dumps(name)})") is None
    secured.click("Chat")
    secured.wait_for("No messages yet")
    assert secured.evaluate("findField('Message')") is None
    secured.click("Subscribers")
    secured.wait_for("No subscribers")
    secured.screenshot("room-reader")
