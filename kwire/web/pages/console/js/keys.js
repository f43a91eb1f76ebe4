// Keys: "/" goes to the filter, "g" and a letter to a page, "?" shows all of them. Pages may add keys of their own.
import { h } from "./dom.js";
import { openDialog } from "./dialog.js";
import { go, url } from "./router.js";

const PREFIX_MS = 1500;
let pages = [];
let isWatching = false;
let prefixAt = 0;
const added = new Map();

export function watchKeys(offered) {
  pages = offered.filter((page) => page.key);
  if (isWatching) return;
  isWatching = true;
  document.addEventListener("keydown", handle);
}

// Adds a key of a page, until the page is left: addKey(view, "n", "Create a topic", open).
export function addKey(view, key, text, run) {
  added.set(key, { text, run });
  view.signal.addEventListener("abort", () => added.get(key)?.run === run && added.delete(key));
}

function handle(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest?.("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  const isSecond = event.timeStamp - prefixAt < PREFIX_MS;
  prefixAt = 0;
  const page = isSecond && pages.find((one) => one.key === event.key);
  if (page) go(url(page.path));
  else if (event.key === "g") {
    prefixAt = event.timeStamp;
    return;
  } else if (event.key === "/") document.querySelector("main [data-filter]")?.focus();
  else if (event.key === "?") showKeys();
  else if (added.has(event.key)) added.get(event.key).run();
  else return;
  event.preventDefault();
}

export function showKeys() {
  const line = (keys, text) => h("tr", {}, h("td", {}, keys.map((one) => h("kbd", {}, one))), h("td", {}, text));
  openDialog({
    title: "Keyboard shortcuts",
    body: h(
      "table",
      { class: "keys" },
      h(
        "tbody",
        {},
        line(["/"], "Filter the table"),
        [...added].map(([key, { text }]) => line([key], text)),
        pages.map((page) => line(["g", page.key], `Go to ${page.name}`)),
        line(["?"], "Show the keyboard shortcuts"),
        line(["Esc"], "Close a dialog"),
      ),
    ),
  });
}
