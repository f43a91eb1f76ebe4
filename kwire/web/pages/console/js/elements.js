// Small elements that all pages use.
import { ApiError } from "./api.js";
import { h, setText } from "./dom.js";
import { sentence } from "./format.js";
import { icon } from "./icons.js";

// pageHeader({title: "orders", parents: [["Topics", url("/topics")]], about: "…", badges: [badge("room")], actions: [button]})
export function pageHeader({ title, parents = [], about, badges = [], actions = [] }) {
  return h(
    "header",
    { class: "page-head" },
    h(
      "div",
      { class: "page-title" },
      parents.length > 0 &&
        h("nav", { class: "parents", "aria-label": "Parents" }, parents.map(([name, address]) => [h("a", { href: address }, name), icon("right", 14)])),
      h("h1", {}, h("span", {}, title), badges),
      about && h("p", { class: "about" }, about),
    ),
    actions.some(Boolean) && h("div", { class: "actions" }, actions),
  );
}

// card({title: "Listeners", actions: [button]}, table.element). `flush` leaves out the space around the content.
export function card({ title, about, actions = [], flush = false, class: more = "" } = {}, ...children) {
  const head = (title || actions.length > 0) && h("div", { class: "card-head" }, h("h2", {}, title), about && h("span", { class: "about" }, about), h("span", { class: "actions" }, actions));
  return h("section", { class: `card ${more}`, "aria-label": title }, head, h("div", { class: flush ? "card-body flush" : "card-body" }, children));
}

// keyFigure({name: "Topics", value: "12", about: "3 internal", href}) -> {element, set(value, about)}
export function keyFigure({ name, value = "–", about = "", href, kind = "" }) {
  const shown = h("dd", { class: "figure-value" }, value);
  const note = h("dd", { class: "figure-about" }, about);
  const element = h("div", { class: `figure ${kind}` }, h("dt", {}, href ? h("a", { href }, name) : name), shown, note);
  return {
    element,
    set(newValue, newAbout = "", newKind = "") {
      setText(shown, newValue);
      setText(note, newAbout);
      element.className = `figure ${newKind}`;
    },
  };
}

export const keyFigures = (label, figures) => h("dl", { class: "figures", "aria-label": label }, figures.map((one) => one.element));

// facts([["Version", "1.0"], ["Uptime", "2 d"]]): names and values, one beside the other.
export function facts(entries) {
  return h("dl", { class: "facts" }, entries.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// badge("internal"), badge("offline", "bad"): the kinds are good, warn, bad, info, accent.
export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);

// button("Create topic", open, {kind: "primary", icon: "plus"}). Kinds: primary, danger, quiet.
export function button(text, onclick, { kind = "", icon: name, disabled, title, type = "button" } = {}) {
  return h("button", { class: kind, type, onclick, disabled, title }, name && icon(name), text);
}

// A button that shows an icon only. The text is its accessible name.
export function iconButton(text, name, onclick, { kind = "quiet" } = {}) {
  return h("button", { class: `icon-button ${kind}`, type: "button", "aria-label": text, title: text, onclick }, icon(name));
}

export function emptyState({ icon: name = "info", title, text, action }) {
  return h("div", { class: "empty" }, icon(name, 32), h("h2", {}, title), text && h("p", {}, text), action);
}

// What stands in place of content that could not be loaded. `retry` is optional.
export function failure(error, retry) {
  const isRefused = error.status === 403;
  return h(
    "div",
    { class: "empty bad", role: "alert" },
    icon(isRefused ? "acls" : "alert", 32),
    h("h2", {}, isRefused ? "Not allowed" : "This could not be loaded"),
    h("p", {}, sentence(error.message)),
    error instanceof ApiError && error.code && h("p", {}, h("code", {}, error.code)),
    retry && !isRefused && button("Try again", retry, { icon: "refresh" }),
  );
}

// notice("Deleted records cannot be restored.", "warn")
export function notice(text, kind = "info") {
  return h("p", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null }, icon(kind === "info" ? "info" : "alert"), h("span", {}, sentence(text)));
}

export function skeleton(count = 6) {
  return h("div", { class: "skeleton", "aria-busy": "true", "aria-label": "Loading" }, Array.from({ length: count }, () => h("div", {})));
}

// meter(0.4, {label: "Disk", text: "4 of 10 GiB"}): a bar for a share of something.
export function meter(share, { label, text, warnAt = 0.8, badAt = 0.92 }) {
  const kind = share >= badAt ? "bad" : share >= warnAt ? "warn" : "";
  return h(
    "div",
    { class: `meter ${kind}` },
    h("div", { class: "meter-track", role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(share * 100) }, h("div", { style: { width: `${Math.min(100, share * 100)}%` } })),
    h("span", {}, text),
  );
}
