"""What administrators, readers and tenants are offered, on every page of the console."""

import re

import pytest

from tests.console.driver import CONSOLE, Console
from tests.console.secured import SCOPE, SecuredServer
from tests.console.visits import Page, Visitor

pytestmark = CONSOLE

# The names of controls that change something begin with one of these words.
VERBS = (
    "Abort|Add|Cancel|Change|Create|Delete|Disable|Edit|Enable|New|Pause|Produce|Publish|Register|Remove|Reset|Resume"
    "|Retry|Revoke|Rotate|Run|Save|Send|Set|Start|Stop|Submit|Upload"
)
ACTIONS = f"""[...document.querySelectorAll('main :is(button, a, [role=tab])')].filter(isShown).map(accessibleName)
  .filter(name => /^({VERBS})\\b/.test(name))"""
NAVIGATION = "[...document.querySelectorAll('.side-nav a')].map(link => link.textContent)"

# The role reader has READ on groups and topics. Kafka asks for nothing else to commit offsets, nor kwire for a webhook.
# "Pause" holds the list of a live page.
READER_MAY = {"Reset offsets", "Create webhook", "Pause"}


@pytest.fixture
def visitor(secured: Console) -> Visitor:
    return Visitor(secured)


def visit_all(console: Console, visitor: Visitor) -> dict[str, Page]:
    """Visit every page. Each shows its data, and no request is refused. Returns the pages by path."""
    visited = {}
    for page, path in visitor.visit():
        assert visitor.refused() == [], f"requests of {path} were refused"
        assert console.evaluate("document.querySelector('main .empty.bad')?.innerText") is None, path
        assert "Not allowed" not in console.text(), path
        console.check_names()
        console.check_width()
        console.check_commands()
        visited[path] = page
    return visited


def served(visitor: Visitor, *paths: str) -> set[str]:
    """Return those of the pages that the engine has."""
    return {page.path for page in visitor.pages() if page.is_served and page.path in paths}


def check_others(console: Console, visitor: Visitor, visited: dict[str, Page]) -> None:
    """Pages that are not offered say so, without a request that is refused."""
    names = set(console.evaluate(NAVIGATION))
    for page in visitor.pages():
        if not page.is_listed:
            continue
        assert (page.name in names) == (page in visited.values()), page
        if page.name not in names and page.path != "/":
            visitor.go(page.path)
            assert ("Not allowed" if page.is_served else "Not served by a bridge") in console.text(), page
    assert visitor.refused() == []


def test_an_administrator_opens_every_page(secured: Console, secured_server: SecuredServer, visitor: Visitor) -> None:
    secured_server.log_in(secured, "admin")
    visited = visit_all(secured, visitor)
    settings = [path for path in visited if re.fullmatch("/topics/[^/]+/settings", path)]
    assert len(settings) == 2, settings
    if not secured_server.is_bridge:
        visitor.go("/topics/kwire-audit/settings")
        assert secured.evaluate(ACTIONS) == [], "nobody changes the audit log"
    missing = [page.path for page in visitor.pages() if page.is_served and page not in visited.values()]
    assert not missing, f"no link leads to {missing}: create what they show in secured.py"
    assert visitor.refused() == []


def test_a_reader_is_offered_nothing_that_it_may_not_do(
    secured: Console, secured_server: SecuredServer, visitor: Visitor
) -> None:
    secured_server.log_in(secured, "rita")
    visited = {}
    for page, path in visitor.visit():
        assert visitor.refused() == [], f"requests of {path} were refused"
        assert set(secured.evaluate(ACTIONS)) <= READER_MAY, path
        visited[path] = page
    assert {"/topics", *served(visitor, "/groups", "/audit")} <= set(visited)
    assert not {"/users", "/keys", "/acls", "/quotas", "/server"} & set(visited)
    check_others(secured, visitor, visited)


def test_an_operator_sees_users_and_acls_but_changes_only_quotas(
    secured: Console, secured_server: SecuredServer, visitor: Visitor
) -> None:
    secured_server.log_in(secured, "olivia", "/topics")
    for path, actions in (("/users", set()), ("/acls", set()), ("/quotas", {"Set quotas"})):
        visitor.go(path)
        assert set(secured.evaluate(ACTIONS)) == actions, path
    check_others(secured, visitor, visit_all(secured, visitor))


def test_a_tenant_sees_only_its_scope(secured: Console, secured_server: SecuredServer, visitor: Visitor) -> None:
    secured_server.log_in_as_tenant(secured)
    visited = {}
    for page, path in visitor.visit():
        assert visitor.refused() == [], f"requests of {path} were refused"
        text = secured.text()
        assert "payments" not in text, path
        assert "kws-" not in text, f"{path} shows the prefix of the scope {SCOPE}"
        visited[path] = page
    expected = {"/topics", "/topics/acme-orders"}
    if served(visitor, "/groups"):
        expected.add("/groups/acme-billing")
    assert expected <= set(visited)
    assert not {"/users", "/keys", "/acls", "/quotas", "/audit", "/server", "/"} & set(visited)
    check_others(secured, visitor, visited)
