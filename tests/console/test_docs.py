"""The page /docs, which describes the HTTP API: the design of the console, and readable names of its sections."""

from tests.console.driver import CONSOLE, Console
from tests.support.http_json import ask

pytestmark = CONSOLE

DESIGN = (
    "(() => { const of = (element, name) => getComputedStyle(element).getPropertyValue(name);"
    "const names = ['font-family', 'font-size', 'color', 'background-color'];"
    "const button = document.body.appendChild(document.createElement('button')); button.className = 'primary';"
    "const found = [document.body, button].flatMap(one => names.map(name => of(one, name)));"
    "button.remove(); return found; })()"
)
SECTIONS = "[...document.querySelectorAll('.tag h2')].map(one => one.innerText)"


def open_docs(console: Console) -> None:
    console.call("Page.navigate", url=f"{console.http_url}/docs")
    console.until("document.querySelectorAll('details.operation').length > 0")


def test_the_page_has_the_design_of_the_console(console: Console) -> None:
    designs = {}
    for theme in ("light", "dark"):
        console.set_theme(theme)
        console.open("/topics")
        designs[theme] = console.evaluate(DESIGN)
        open_docs(console)
        assert console.evaluate(DESIGN) == designs[theme]
    assert designs["light"] != designs["dark"]
    # The theme that was chosen in the console holds here, too.
    console.evaluate("localStorage.setItem('kwire.theme', 'light')")
    open_docs(console)
    assert console.evaluate(DESIGN) == designs["light"]
    console.evaluate("localStorage.removeItem('kwire.theme')")


def test_sections_have_readable_names(console: Console) -> None:
    open_api = ask(f"{console.http_url}/openapi.json").body
    open_docs(console)
    names = console.evaluate(SECTIONS)
    assert ("Event store" in names) == ("/events" in open_api["paths"])
    assert "Events of tenants" in names
    assert all(name[0].isupper() for name in names)
    assert console.evaluate("[...document.querySelectorAll('nav h2')].map(one => one.innerText)") == names
    console.evaluate("document.querySelector('#get-rooms').open = true")
    console.screenshot("docs")
