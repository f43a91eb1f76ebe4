"""Logging in with a user or a key, and what the console offers to each of them."""

import pytest

from tests.console.driver import CONSOLE, Console
from tests.console.secured import SCOPE, SecuredServer

pytestmark = CONSOLE

NAVIGATION = "[...document.querySelectorAll('.side-nav a')].map(link => link.textContent)"


@pytest.mark.only_server("a bridge has no page of the server")
def test_an_administrator_sees_every_page(secured: Console, secured_server: SecuredServer) -> None:
    secured.open("/server")
    secured.screenshot("login")
    secured_server.log_in(secured, "admin", "/server")
    secured.wait_for("Data directories")
    secured.wait_for("admin")
    assert {"Overview", "Topics", "Server"} <= set(secured.evaluate(NAVIGATION))
    secured.click("Log out")
    secured.until("findControl('Password') !== null")
    secured.open("/server")
    secured.until("findControl('Password') !== null")


def test_a_wrong_password_is_reported(secured: Console) -> None:
    secured.expect_error("/session")
    secured.open("/")
    secured.type("User", "admin")
    secured.type("Password", "wrong")
    secured.press("Enter")
    secured.until("document.querySelector('.notice.bad') !== null")
    assert "The user name or the password is wrong" in secured.text()


def test_a_reader_is_offered_no_changes(secured: Console, secured_server: SecuredServer) -> None:
    secured_server.log_in(secured, "rita")
    secured.wait_for("payments")
    assert secured.path == "/console/topics"
    assert not {"Overview", "Server"} & set(secured.evaluate(NAVIGATION))
    assert secured.evaluate("findControl('Create topic')") is None
    secured.screenshot("topics-reader")
    secured.click("orders")
    secured.wait_for("No records")
    assert secured.evaluate("findControl('Produce') ?? findControl('Segments') ?? findControl('Settings')") is None
    secured.click("Partitions")
    secured.wait_for("Next offset")
    assert secured.evaluate("findControl('Delete') ?? findControl('Add partitions')") is None
    secured.screenshot("topic-reader")
    secured.open("/server")
    secured.wait_for("Not served by a bridge" if secured_server.is_bridge else "Not allowed")


def test_a_tenant_sees_the_topics_of_its_scope(secured: Console, secured_server: SecuredServer) -> None:
    secured_server.log_in_as_tenant(secured)
    secured.wait_for("acme-orders")
    secured.wait_for(f"scope {SCOPE}")
    assert "payments" not in secured.text()
    secured.click("acme-orders")
    secured.wait_for("No records")
    secured.screenshot("topic-tenant")
