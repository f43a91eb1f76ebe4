"""The Tab key reaches every control of every page."""

from tests.console.driver import CONSOLE, Console
from tests.console.secured import SecuredServer
from tests.console.visits import Visitor

pytestmark = CONSOLE

# Controls are compared by what a screen reader says, because a page that refreshes replaces its elements.
NAMES = """[...new Set(controls().filter(one => !one.disabled && one.tabIndex >= 0)
  .map(one => `${one.tagName} ${accessibleName(one)}`))]"""
FOCUSED = """(one => one && one !== document.body && one !== document.documentElement
  ? `${one.tagName} ${accessibleName(one)}` : "")(document.activeElement)"""
# Tabs are a group: Tab reaches the chosen one, and the arrow keys the others.
SKIPPED = "controls().filter(one => one.tabIndex < 0 && one.role !== 'tab').map(one => one.outerHTML.slice(0, 200))"
# The Tab key is pressed at most this number of times more than there are controls.
PRESSES_BEYOND = 40


def test_tab_reaches_every_control(secured: Console, secured_server: SecuredServer) -> None:
    visitor = Visitor(secured)
    secured_server.log_in(secured, "admin")
    for _, path in visitor.visit():
        assert secured.evaluate(SKIPPED) == [], path
        missed = missed_by_tab(secured)
        assert not missed, f"Tab does not reach these controls of {path}: {missed}"


def missed_by_tab(console: Console) -> set[str]:
    console.evaluate("document.activeElement.blur()")
    wanted = set(console.evaluate(NAMES))
    count = console.evaluate("controls().length")
    reached: set[str] = set()
    for _ in range(count + PRESSES_BEYOND):
        console.press("Tab")
        reached.add(console.evaluate(FOCUSED))
        if wanted <= reached:
            return set()
    return wanted - reached
