"""Visits to every page of the console that a session is offered, for checks that hold on all pages.

The list of pages is that of the console (`js/pages.js`), so that a new page is checked, too. A path with a parameter,
such as `/topics/:topic/:tab?`, is reached by a link of another page; the tabs of a page are visited as well.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.console.driver import Console

# The most paths that the links of one session may have.
PATHS_MAX = 1_000
# The number of resources, for example topics, whose page is visited. The first topic is the audit log.
RESOURCES_MAX = 2

# Runs before the scripts of a page. Counts requests that have no answer yet, and keeps those that were refused: by
# their status, or by an error of Kafka's protocol in a successful answer.
WATCH = """
window.pendingRequests = 0;
window.refusedRequests = [];
const send = window.fetch;
window.fetch = async (address, options) => {
  window.pendingRequests += 1;
  const what = `${options?.method ?? "GET"} ${address}`;
  try {
    const answer = await send(address, options);
    if (!answer.ok) window.refusedRequests.push(`${answer.status} ${what}`);
    else if ((answer.headers.get("Content-Type") ?? "").startsWith("application/json")) {
      const found = (await answer.clone().text()).match(/[A-Z_]*AUTHORIZATION_FAILED/);
      if (found) window.refusedRequests.push(`${found[0]} ${what}`);
    }
    return answer;
  } finally {
    // The page handles the answer first, and may send the next request.
    setTimeout(() => requestAnimationFrame(() => (window.pendingRequests -= 1)));
  }
};
"""

PAGES = """
await (async () => {
  const load = (name) => import(new URL(name, document.querySelector("script[type=module]").src));
  const { exists } = await load("session.js");
  return (await load("pages.js")).PAGES.map((page) => (
    {path: page.path, name: page.name ?? "", isListed: page.section !== undefined, isServed: exists(page)}));
})()
"""

# The addresses of all links in the navigation and on the page, without their queries.
PATHS = """.map(link => new URL(link.href).pathname)
  .filter(path => path.startsWith('/console')).map(path => path.slice('/console'.length) || '/')"""
LINKS = f"[...document.querySelectorAll('.side-nav a, main a')]{PATHS}"
TABS = f"[...document.querySelectorAll('main [role=tab]')]{PATHS}"


class Page(NamedTuple):
    """A page of `js/pages.js`. `is_listed`: it belongs in the navigation. `is_served`: the engine has such a page."""

    path: str
    name: str
    is_listed: bool
    is_served: bool

    def matches(self, path: str) -> bool:
        parts = [
            "(/[^/]+)?" if part.endswith("?") else "/[^/]+" if part.startswith(":") else f"/{re.escape(part)}"
            for part in self.path.split("/")[1:]
        ]
        return re.fullmatch("".join(parts), path) is not None


class Visitor:
    """Visits the pages that a session is offered. Create it before the session logs in."""

    def __init__(self, console: Console) -> None:
        self._console = console
        console.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)

    def pages(self) -> list[Page]:
        found = self._console.evaluate(PAGES)
        return [Page(one["path"], one["name"], one["isListed"], one["isServed"]) for one in found]

    def go(self, path: str) -> None:
        """Show a page without loading the document again, and wait until it has loaded its data."""
        address = f"/console{'' if path == '/' else path}"
        self._console.evaluate(
            f"history.pushState(null, '', {address!r}); dispatchEvent(new PopStateEvent('popstate'))"
        )
        self.settle()

    def settle(self) -> None:
        self._console.until(
            "document.querySelector('main h1') !== null && pendingRequests === 0"
            " && document.querySelector('main .skeleton') === null"
        )

    def visit(self) -> Iterator[tuple[Page, str]]:
        """Show the pages to which links lead, with all their tabs; generate each with its path."""
        pages = self.pages()
        self.go("/")
        waiting = dict.fromkeys(self._console.evaluate(LINKS))
        tabs: set[str] = set()
        visited = Counter[Page]()
        seen: set[str] = set()
        while waiting:
            path = next(iter(waiting))
            del waiting[path]
            seen.add(path)
            page = next((one for one in pages if one.matches(path)), None)
            assert page is not None, f"a link leads to {path}, but no page has this path"
            if path not in tabs:
                visited[page] += 1
                if visited[page] > RESOURCES_MAX:
                    continue
            assert len(seen) < PATHS_MAX, "the links have no end"
            self.go(path)
            tabs.update(self._console.evaluate(TABS))
            waiting.update(dict.fromkeys(one for one in self._console.evaluate(LINKS) if one not in seen))
            yield page, path

    def refused(self) -> list[str]:
        found: list[str] = self._console.evaluate("refusedRequests")
        return found
