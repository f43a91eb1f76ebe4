// A JSON value as a tree whose branches open and close: jsonTree(value, {open: 2}).
import { h, show } from "./dom.js";
import { count } from "./format.js";

// A branch shows its entries in portions of this size.
const PORTION = 100;

export function jsonTree(value, { open = 2, label = "JSON" } = {}) {
  return h("div", { class: "json", role: "group", "aria-label": label }, node(null, value, open));
}

function node(name, value, open) {
  const prefix = name !== null && [h("span", { class: "json-name" }, name), h("span", { class: "json-colon" }, ": ")];
  if (value === null || typeof value !== "object") return h("div", { class: "json-line" }, prefix, leaf(value));
  const isArray = Array.isArray(value);
  const entries = isArray ? value.map((one, index) => [String(index), one]) : Object.entries(value);
  const summary = isArray ? `[${count(entries.length, "item")}]` : `{${count(entries.length, "field")}}`;
  if (!entries.length) return h("div", { class: "json-line" }, prefix, h("span", { class: "json-sum" }, isArray ? "[]" : "{}"));
  const inner = h("div", { class: "json-inner" });
  const branch = h("details", { class: "json-branch", open: open > 0 }, h("summary", {}, prefix, h("span", { class: "json-sum" }, summary)), inner);
  let isFilled = false;
  const fill = () => {
    if (isFilled || !branch.open) return;
    isFilled = true;
    more(inner, entries, 0, open - 1);
  };
  branch.addEventListener("toggle", fill);
  if (open > 0) fill();
  return branch;
}

function more(inner, entries, from, open) {
  inner.querySelector(":scope > .json-more")?.remove();
  inner.append(...entries.slice(from, from + PORTION).map(([name, value]) => node(name, value, open)));
  const rest = entries.length - from - PORTION;
  if (rest > 0) {
    const next = h("button", { type: "button", class: "quiet json-more", onclick: () => more(inner, entries, from + PORTION, open) });
    show(next, `Show ${Math.min(PORTION, rest)} of ${rest.toLocaleString("en-US")} more`);
    inner.append(next);
  }
}

function leaf(value) {
  // Integers that a number cannot hold are BigInts, which JSON.stringify refuses.
  if (typeof value === "bigint") return h("span", { class: "json-number" }, String(value));
  const kind = value === null ? "null" : typeof value;
  return h("span", { class: `json-${kind}` }, JSON.stringify(value));
}
