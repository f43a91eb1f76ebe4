"""The examples in the browser: people in several tabs see each other, and reports are drawn."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kwire.client import Client
from tests.console.conftest import screenshots_of
from tests.console.driver import CONSOLE, BrowserThread, Console
from tests.console.secured import PASSWORD, SecuredServer
from tests.support.cli import run_here
from tests.support.server import KwireProcess

pytestmark = CONSOLE

MESSAGES = "[...document.querySelectorAll('.message')].map(one => one.querySelector('.bubble').innerText)"
PLAYERS = "[...document.querySelectorAll('.players li > span:nth-child(2)')].map(one => one.innerText)"
RUN_S = 60.0
WIDE = 1920


@contextmanager
def tab(browser: BrowserThread, server: KwireProcess, path: str) -> Iterator[Console]:
    with browser.console(server.http_url, screenshots_of(server)) as opened:
        open_example(opened, path)
        yield opened


def open_example(console: Console, path: str) -> None:
    console.call("Page.navigate", url=f"{console.http_url}/examples{path}")
    console.until("document.readyState === 'complete' && document.querySelector('main h1') !== null")


def test_two_tabs_chat_with_each_other(browser: BrowserThread, console_server: KwireProcess) -> None:
    with (
        tab(browser, console_server, "/chat?room=talk") as alice,
        tab(browser, console_server, "/chat?room=talk") as bob,
    ):
        alice.screenshot("example-chat-join")
        for page, name in ((alice, "alice"), (bob, "bob")):
            page.type("Your name", name)
            page.click("Join the chat")
            page.wait_for("Live")
        for page, text in (
            (alice, "Good morning! Is the new release out?"),
            (bob, "Almost. The last tests are running."),
            (bob, "I will write here when it is done, which should take another ten minutes or so on a slow machine."),
            (alice, "Thank you!"),
        ):
            page.type("Message", text)
            page.press("Enter")
            for reader in (alice, bob):
                reader.until(f"{MESSAGES}.includes({text!r})")
        assert alice.evaluate(MESSAGES) == bob.evaluate(MESSAGES)
        alice.screenshot("example-chat")
        alice.resize(WIDE)
        alice.check_width()
        shown = bob.evaluate(MESSAGES)
        bob.call("Page.reload")
        bob.wait_for("Live")
        assert bob.evaluate(MESSAGES) == shown


def test_players_of_a_lobby_see_each_other(browser: BrowserThread, console_server: KwireProcess) -> None:
    path = "/lobby?room=arena&user="
    with tab(browser, console_server, f"{path}alice") as alice:
        alice.click("Attack enemy-1")
        alice.wait_for("9 of 10")
        # The second player joins late and has the same board.
        with tab(browser, console_server, f"{path}bob") as bob:
            bob.wait_for("9 of 10")
            for page in (alice, bob):
                page.until(f"{PLAYERS}.join() === 'alice,bob'")
            bob.click("Attack enemy-5")
            alice.until("document.querySelector('[aria-label=\"Health of enemy-5\"]').ariaValueNow === '9'")
            alice.screenshot("example-lobby")
            with Client(console_server.http_url) as client:
                for enemy, hits in (("enemy-1", 9), ("enemy-2", 10), ("enemy-5", 9)):
                    for _ in range(hits):
                        client.stream.publish("arena", "player_move", {"player": "carol", "target": enemy})
            for page in (alice, bob):
                page.wait_for("All enemies are defeated.")
            bob.screenshot("example-lobby-won")
            bob.click("New round")
            alice.until("document.body.innerText.split('10 of 10').length === 4")
            bob.call("Page.navigate", url="about:blank")
        alice.until(f"{PLAYERS}.join() === 'alice'")


def test_monitoring_draws_what_machines_report(browser: BrowserThread, console_server: KwireProcess) -> None:
    with tab(browser, console_server, "/monitoring") as page:
        page.wait_for("No reports yet")
        reports = ("example", "monitoring", "--http", console_server.http_url, "--every", "0.2", "--count")
        machines = [
            subprocess.Popen(
                [sys.executable, "-m", "kwire", *reports, "12", "--name", name], stdout=subprocess.PIPE, text=True
            )
            for name in ("alpha", "beta")
        ]
        for machine in machines:
            shown, _ = machine.communicate(timeout=RUN_S)
            assert machine.returncode == 0
            assert shown.startswith(f"open {console_server.http_url}/examples/monitoring\n")
        for name in ("alpha", "beta"):
            page.until(f"document.querySelector('main').innerText.includes('{name}')")
        page.until("document.querySelectorAll('.chart path.line').length === 6")
        page.screenshot("example-monitoring")
        page.resize(WIDE)
        page.check_width()


def test_the_list_of_examples_leads_to_each(browser: BrowserThread, console_server: KwireProcess) -> None:
    with tab(browser, console_server, "") as page:
        page.screenshot("examples")
        page.click("Open Monitoring")
        page.until("location.pathname === '/examples/monitoring'")
        open_page = "document.querySelector('main').innerText.includes('no such example')"
        page.call("Page.navigate", url=f"{page.http_url}/examples/nothing")
        page.until(open_page)


def test_an_example_asks_for_a_login_and_has_the_rights_of_the_user(
    secured: Console, secured_server: SecuredServer
) -> None:
    open_example(secured, "/chat?room=staff")
    secured.type("User", "admin")
    secured.type("Password", PASSWORD)
    secured.click("Log in")
    secured.until("findField('Your name')?.value === 'admin'")
    secured.click("Join the chat")
    secured.wait_for("Live")
    secured.type("Message", "Only for staff")
    secured.press("Enter")
    secured.until(f"{MESSAGES}.includes('Only for staff')")
    url = secured_server.process.http_url
    printed = run_here("example", "chat", "--room", "staff", "--http", url)
    assert printed.out == f"open {url}/examples/chat?room=staff\n"
