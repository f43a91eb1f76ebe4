"""Drives the console as its users do: by the names that a screen reader reads, with real clicks and keys.

A `Console` is a page of its own, without cookies of others. Its methods wait until what they need is there, at most
`CALL_TIMEOUT_S` of `tests/support/chromium.py`. When it is closed, errors in the browser's console fail the test.
"""

import asyncio
import base64
import json
import re
import shlex
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kwire.cli import program_parser
from tests.support.chromium import Browser, Page, chromium

T = TypeVar("T")

# The marks of every test of the console: they share one browser and one server.
CONSOLE = [pytest.mark.needs_chromium, pytest.mark.xdist_group("console")]

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
SIZES = {1280: 860, 390: 844}
WIDE = 1920
THEMES = ("light", "dark")
# A screenshot shows the page down to this height.
SCREENSHOT_HEIGHT_MAX = 2400
START_TIMEOUT_S = 60.0
KEYS = {
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    "Delete": 46,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "ArrowUp": 38,
}

# Runs in every page before its own scripts: collects long tasks, and finds elements by their accessible names.
IN_THE_PAGE = """
window.longTasks = [];
new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((one) => one.duration)))
  .observe({type: "longtask", buffered: true});

const CONTROLS = "a[href], button, input, select, textarea, summary, [role=tab], [tabindex='0']";

window.isShown = (element) => element.checkVisibility({visibilityProperty: true}) && !element.closest("[inert]");

window.accessibleName = (element) => {
  const by = element.getAttribute("aria-labelledby");
  if (by) return by.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
  const label = element.getAttribute("aria-label") ?? element.labels?.[0]?.textContent;
  return (label ?? (element.textContent.trim() || element.title || "")).replace(/\\s+/g, " ").trim();
};

// Complains about errors that begin with a word in lower case. Names of settings and topics keep their spelling.
const complained = new Set();
new MutationObserver(() => {
  for (const one of document.querySelectorAll("[role=alert], .toast > span, .notice.bad, .empty.bad p")) {
    const text = one.textContent.trim();
    if (!/^[a-z]+[ ,]/.test(text) || complained.has(text)) continue;
    complained.add(text);
    console.error(`an error begins in lower case: ${text}`);
  }
}).observe(document, {subtree: true, childList: true, characterData: true});

// An open dialog makes everything else inert.
window.controls = () => {
  const dialogs = [...document.querySelectorAll("dialog[open]")];
  const root = dialogs.at(-1) ?? document;
  return [...root.querySelectorAll(CONTROLS)].filter(window.isShown);
};

// A control beyond the edge of the window that no scrolling brings back.
window.isCut = (element) => {
  const box = element.getBoundingClientRect();
  if (box.right <= innerWidth + 1 && box.left >= -1) return false;
  for (let one = element.parentElement; one; one = one.parentElement) {
    if (["auto", "scroll"].includes(getComputedStyle(one).overflowX)) return false;
  }
  return element.className !== "skip";
};

// Headings of columns that are cut, and times that are cut or take two lines.
window.crampedCells = () => {
  const lines = (one) => {
    const range = document.createRange();
    // Without the boxes of elements in the cell, such as that of a button.
    range.selectNodeContents(document.createTreeWalker(one, NodeFilter.SHOW_TEXT).nextNode());
    return range.getClientRects().length;
  };
  const isTime = (one) => /^\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d/.test(one.textContent.trim());
  return [...document.querySelectorAll("table.data th, table.data td")]
    .filter((one) => isShown(one) && (one.matches("th") || isTime(one)))
    .filter((one) => one.scrollWidth > one.clientWidth + 1 || (one.matches("td") && lines(one) > 1))
    .map((one) => one.textContent.trim());
};

window.linesOf = (element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return range.getClientRects().length;
};

// Short words of a table that take two lines.
window.brokenWords = () => {
  const isBroken = (one) => one.textContent.length <= 8 && !/\\W/.test(one.textContent) && linesOf(one) > 1;
  return [...document.querySelectorAll("table.data td a")].filter((one) => isShown(one) && isBroken(one))
    .map((one) => one.textContent);
};

// The remarks of key figures that take two lines: the figures beside them would be out of line.
window.brokenRemarks = () =>
  [...document.querySelectorAll(".figure-about")]
    .filter((one) => isShown(one) && linesOf(one) > 1).map((one) => one.textContent);

window.findControl = (name, kind = "*") => {
  const found = window.controls().filter((one) => one.matches(kind));
  return found.find((one) => accessibleName(one) === name)
    ?? found.find((one) => accessibleName(one).startsWith(name)) ?? null;
};

window.findField = (name) => findControl(name, "input, textarea, select");

window.centreOf = (name) => {
  const found = findControl(name);
  if (!found || found.disabled) return null;
  found.scrollIntoView({block: "center", inline: "nearest", behavior: "instant"});
  const box = found.getBoundingClientRect();
  const at = {x: box.left + box.width / 2, y: box.top + box.height / 2};
  const hit = document.elementFromPoint(at.x, at.y);
  return hit && (found.contains(hit) || hit.contains(found)) ? at : null;
};
"""


class BrowserThread:
    """One browser for all tests, in an event loop of its own, so that tests are plain functions."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._thread.start()
        self._context = chromium()
        self.browser: Browser = self.run(self._context.__aenter__())

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(START_TIMEOUT_S)

    def close(self) -> None:
        self.run(self._context.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)
        self._loop.close()

    @contextmanager
    def console(self, http_url: str, screenshots: str = "") -> Iterator["Console"]:
        """A page for one test. Errors that it did not expect fail the test.

        The names of its screenshots begin with `screenshots`.
        """
        console = Console(self, self.run(self.browser.blank_page(is_private=True)), http_url, screenshots)
        try:
            console.call("Page.addScriptToEvaluateOnNewDocument", source=IN_THE_PAGE)
            console.resize(1280)
            yield console
            assert not console.errors(), console.errors()
        finally:
            self.run(console.page.close())


class Console:
    def __init__(self, thread: BrowserThread, page: Page, http_url: str, screenshots: str = "") -> None:
        self._thread = thread
        self.page = page
        self.http_url = http_url
        self._screenshots = screenshots
        self._expected: list[str] = []

    # --- the browser

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._thread.run(self.page.call(method, **params))

    def evaluate(self, script: str) -> Any:
        return self._thread.run(self.page.evaluate(script))

    def until(self, script: str) -> Any:
        """Wait until an expression is true, and return its value."""
        return self._thread.run(self.page.until(script))

    def resize(self, width: int, height: int | None = None) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height or SIZES.get(width, 860),
            deviceScaleFactor=1,
            mobile=False,
        )

    def set_theme(self, theme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", media="screen", features=features)

    # --- what users do

    def open(self, path: str = "/") -> None:
        """Load a page of the console, such as `/topics`."""
        self.call("Page.navigate", url=f"{self.http_url}/console{'' if path == '/' else path}")
        self.until("document.readyState === 'complete' && document.querySelector('main h1') !== null")

    def click(self, name: str) -> None:
        """Click the link, button or field with this accessible name. It must be visible and not be covered."""
        at = self.until(f"centreOf({json.dumps(name)})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at["x"], y=at["y"], button="left", clickCount=1)

    def type(self, name: str, text: str) -> None:
        """Replace the text of a field."""
        self.until(f"findField({json.dumps(name)}) !== null")
        self.evaluate(f"const field = findField({json.dumps(name)}); field.focus(); field.select();")
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.press("Delete")

    def choose(self, name: str, value: str) -> None:
        """Choose the option with this value or text in a list."""
        wanted = json.dumps(value)
        self.until(
            f"(() => {{ const list = findField({json.dumps(name)}); if (!list) return false;"
            f"const option = [...list.options].find(one => one.value === {wanted} || one.text === {wanted});"
            "if (!option) return false; list.value = option.value;"
            "list.dispatchEvent(new Event('input', {bubbles: true}));"
            "list.dispatchEvent(new Event('change', {bubbles: true})); return true; })()"
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            code = KEYS.get(key)
            more: dict[str, Any] = {"windowsVirtualKeyCode": code} if code else {"text": key} if len(key) == 1 else {}
            if key == "Enter":
                more["text"] = "\r"
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    # --- what users see

    def text(self) -> str:
        """The visible text of the page, dialogs and messages included."""
        text: str = self.evaluate(
            "[document.querySelector('main'), ...document.querySelectorAll('dialog[open], .toasts')]"
            ".filter(Boolean).map(one => one.innerText).join('\\n')"
        )
        return text

    def wait_for(self, text: str) -> None:
        """Wait until the page shows this text."""
        wanted = json.dumps(text)
        self.until(f"document.body.innerText.includes({wanted})")

    def wait_until_gone(self, text: str) -> None:
        self.until(f"!document.body.innerText.includes({json.dumps(text)})")

    @property
    def path(self) -> str:
        found: str = self.evaluate("location.pathname + location.search")
        return found

    # --- checks

    def expect_error(self, part: str) -> None:
        """Allow errors in the browser's console that contain this text, for example a status that a test provokes."""
        self._expected.append(part)

    def errors(self) -> list[str]:
        return [one for one in self.page.complaints if not any(part in one for part in self._expected)]

    def check_names(self) -> None:
        """Every control has an accessible name."""
        unnamed = self.evaluate(
            "controls().filter(one => !accessibleName(one)).map(one => one.outerHTML.slice(0, 200))"
        )
        assert not unnamed, f"controls without a name: {unnamed}"

    def check_width(self) -> None:
        """Nothing is wider than the window."""
        wide = self.evaluate(
            "document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]"
            ".filter(one => one.getBoundingClientRect().right > innerWidth + 1)"
            ".map(one => one.outerHTML.slice(0, 120)).slice(0, 5)"
        )
        assert not wide, f"wider than the window of {self.evaluate('innerWidth')} pixels: {wide}"
        assert self.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is too wide"
        cut = self.evaluate("controls().filter(isCut).map(one => one.outerHTML.slice(0, 120))")
        assert not cut, f"controls outside of the window: {cut}"

    def check_wide(self) -> None:
        """In a window of WIDE pixels, nothing is cut or wrapped for which there is space."""
        self.resize(WIDE)
        self._settle()
        self.check_width()
        cramped = self.evaluate("crampedCells()")
        assert not cramped, f"columns that are too narrow at {WIDE} pixels: {cramped}"

    def check_commands(self) -> None:
        """The command line accepts every `kwire` command that the page shows."""
        texts = self.evaluate(
            "[...document.querySelectorAll('.command pre')].filter(isShown).map(one => one.innerText)"
        )
        for text in texts:
            words = shlex.split(text)
            if words[:1] == ["kwire"]:
                program_parser().parse_args(words[1:])

    def longest_task_ms(self) -> float:
        """The longest time for which the page's script has blocked the browser since the page was loaded."""
        return float(self.evaluate("Math.max(0, ...longTasks)"))

    def screenshot(self, name: str, *, is_whole: bool = True) -> None:
        """Write NAME-WIDTH-THEME.png for each width and theme. Check each for overflow and names, and the commands.

        A page that is not whole, or has an open dialog, is shown as far as the window shows it.
        """
        is_whole = is_whole and self.evaluate("document.querySelector('dialog[open]') === null")
        self.check_commands()
        self.check_wide()
        assert not re.search(r"\bNaN\b", self.text()), "a number or time that is not known"
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        for width, height in SIZES.items():
            self.resize(width)
            for theme in THEMES:
                self.set_theme(theme)
                self._settle()
                self.check_width()
                self.check_names()
                broken = self.evaluate("brokenWords()")
                assert not broken, f"words in two lines at {width} pixels: {broken}"
                full = min(SCREENSHOT_HEIGHT_MAX, max(height, self.evaluate("document.documentElement.scrollHeight")))
                options: dict[str, Any] = {}
                if is_whole and full > height:
                    clip = {"x": 0, "y": 0, "width": width, "height": full, "scale": 1}
                    options = {"clip": clip, "captureBeyondViewport": True}
                answer = self.call("Page.captureScreenshot", format="png", **options)
                (SCREENSHOTS / f"{self._screenshots}{name}-{width}-{theme}.png").write_bytes(
                    base64.b64decode(answer["data"])
                )
        self.resize(1280)
        self.set_theme("light")

    def _settle(self) -> None:
        """Wait until the page is drawn in its new size: two frames, and the end of transitions."""
        self.evaluate(
            "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
            "await Promise.all(document.getAnimations().filter(one => one.effect.getComputedTiming().iterations === 1)"
            ".map(one => one.finished))"
        )
