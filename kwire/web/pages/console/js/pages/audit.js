// The audit log: logins, refusals and changes, the newest first, or live.
import { kafka, query } from "../api.js";
import { commandHint, line } from "../command.js";
import { openDialog } from "../dialog.js";
import { h, setText, show } from "../dom.js";
import { badge, button, emptyState, facts, notice, pageHeader } from "../elements.js";
import { field } from "../form.js";
import { count, number, time } from "../format.js";
import { jsonTree } from "../json_tree.js";
import { AUDIT_TOPIC as TOPIC } from "../rights.js";
import { setQuery } from "../router.js";
import { TIME_WIDTH, dataTable } from "../table.js";
import { curl } from "./topic/commands.js";
import { KEPT_MAX, Scan } from "./topic/records/scan.js";

const PORTION = 200;
const TYPED_MS = 300;
const UNKNOWN_TOPIC_OR_PARTITION = 3;

// The filter by type: a part of the type of an entry.
const TYPES = [
  ["", "everything"],
  ["access.login", "logins"],
  ["access.denied", "refusals"],
  ["topic.", "topics"],
  ["group.", "groups"],
  ["user.", "users"],
  ["key.", "keys"],
  ["acl.", "ACLs"],
  ["quota.", "quotas"],
  ["config.", "settings"],
  ["webhook.", "webhooks"],
  ["schemas.", "schemas"],
  ["backup.", "backups"],
];
const OUTCOMES = { success: "good", failure: "bad", denied: "bad" };

export const title = "Audit";

export async function render(element, view) {
  const header = pageHeader({ title: "Audit", about: "Who logged in, what was refused, and what was changed. Only the server writes this log." });
  if (!(await exists(view.signal))) {
    const text = "The first entry creates the log. kwire.audit=all records logins, refusals and changes; by default, this is so if clients have to log in or there are ACLs.";
    return void show(element, header, emptyState({ icon: "audit", title: "No entries yet", text }));
  }
  const fields = {
    type: field({ name: "type", label: "Entries about", type: "select", options: TYPES, value: view.query.type ?? "" }),
    principal: field({ name: "principal", label: "Principal contains", placeholder: "User:alice", value: view.query.principal ?? "", maxlength: 500 }),
    text: field({ name: "text", label: "Entry contains", placeholder: "orders", value: view.query.text ?? "", maxlength: 500, title: "With upper and lower case" }),
  };
  const live = h("input", { type: "checkbox", checked: view.query.live === "true" });
  const state = h("span", { role: "status", class: "scan-figures" });
  const problem = h("div", { class: "stack" });
  const hint = commandHint("");
  const more = h("div", { class: "row" }, button("Load older entries", () => run({ isContinued: true }), { icon: "down" }));
  const scan = new Scan(TOPIC, draw);
  const table = dataTable({
    label: "Audit",
    noun: "entry",
    nouns: "entries",
    view,
    isClipped: true,
    columns: [
      { name: "Time", value: (one) => one.timestamp, text: (ms) => time(ms), width: TIME_WIDTH },
      { name: "Entry", value: (one) => one.type, width: "9rem" },
      { name: "Outcome", value: (one) => one.entry.outcome, render: outcome, width: "7rem", hideBelow: 640 },
      { name: "Principal", value: (one) => one.entry.principal, width: "11rem", hideBelow: 640 },
      { name: "Resource", value: resourceText, hideBelow: 900 },
      { name: "From", value: (one) => [one.entry.host, one.entry.port].filter(Boolean).join(", "), width: "9rem", hideBelow: 1200 },
    ],
    key: (one) => String(one.offset),
    open: openEntry,
    openName: (one) => `${one.type} by ${one.entry.principal}, entry ${one.offset}`,
    empty: emptyState({ icon: "audit", title: "No entries", text: "No entry matches the filters." }),
  });
  let drawn = -1;

  function run({ isContinued = false } = {}) {
    const filters = { type: fields.type.read(), principal: fields.principal.read().trim(), text: fields.text.read().trim() };
    const isLive = live.checked;
    if (!isContinued) setQuery({ ...filters, live: isLive ? "true" : "" });
    const next = isContinued ? Object.entries(scan.end.next).map((one) => one.join(":")).join(",") : undefined;
    hint.set(commandsOf(filters, isLive));
    scan.run(searchOf(filters, { live: isLive || "", next }), { signal: view.signal, isContinued });
  }

  function draw() {
    if (view.signal.aborted) return;
    if (drawn !== scan.version) {
      drawn = scan.version;
      const entries = scan.records.map(entryOf);
      if (entries.length || !scan.isRunning || live.checked) table.setRows(live.checked ? entries.reverse() : entries);
    }
    more.hidden = live.checked || scan.isRunning || scan.end?.reason !== "limit";
    setText(state, scan.isRunning ? (live.checked ? "connected" : "Searching") : "");
    state.className = scan.isRunning && live.checked ? "badge good" : "muted";
    state.hidden = !scan.isRunning;
    show(
      problem,
      scan.error && notice(scan.error.message, "bad"),
      scan.end?.error && notice(scan.end.error.message, "bad"),
      scan.unreadable > 0 && notice(`${count(scan.unreadable, "range")} of entries cannot be read: the log is damaged there.`, "warn"),
      scan.dropped > 0 && notice(`The page keeps ${number(KEPT_MAX)} entries: ${number(scan.dropped)} were dropped.`),
    );
  }

  let timer = 0;
  const form = h(
    "form",
    { class: "card", role: "search", "aria-label": "Filter entries" },
    h("div", { class: "card-body fields compact" }, Object.values(fields).map((one) => one.element)),
    h("div", { class: "browse-foot" }, h("label", { class: "row" }, live, "Live"), state),
  );
  form.addEventListener("input", (event) => {
    clearTimeout(timer);
    timer = setTimeout(run, event.target === live ? 0 : TYPED_MS);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  view.signal.addEventListener("abort", () => clearTimeout(timer));
  show(element, header, h("div", { class: "stack" }, form, problem, table.element, more, hint.element));
  run();
}

// A topic that does not exist is an error of the topic, not of the request.
async function exists(signal) {
  const { topics } = await kafka("Metadata", { topics: [{ name: TOPIC }], allow_auto_topic_creation: false }, { signal });
  return topics[0].error_code !== UNKNOWN_TOPIC_OR_PARTITION;
}

function searchOf({ type, principal, text }, more = {}) {
  return query({
    limit: PORTION,
    "header.ce_type": type,
    value: text,
    ...(principal && { path: "$.principal", contains: principal }),
    ...more,
  });
}

function commandsOf(filters, isLive) {
  const made = { curl: curl(`/topics/${TOPIC}/records${searchOf(filters, { live: isLive || "" })}`, "--no-buffer") };
  // kwire topic consume has no filters.
  if (Object.values(filters).some(Boolean)) return made;
  return { kwire: line("kwire", "topic", "consume", TOPIC, "--tail", String(PORTION), !isLive && ["--until", "end"]), ...made };
}

const textOf = (part) => (part === null ? "" : String(part.data));

function entryOf({ offset, timestamp, value, headers }) {
  const type = headers.find((one) => one.name === "ce_type");
  // An entry that is longer than the server sends in a list is cut, and is then text.
  return { offset, timestamp, type: type ? textOf(type.value) : "", entry: value?.encoding === "json" ? value.data : { text: textOf(value) } };
}

const outcome = ({ entry }) => [entry.outcome && badge(entry.outcome, OUTCOMES[entry.outcome] ?? ""), entry.count > 1 && ` × ${number(entry.count)}`];
const resourceText = ({ entry }) => (entry.resource ? `${entry.resource.type.toLowerCase().replaceAll("_", " ")} ${entry.resource.name}` : "");

function openEntry(one) {
  const { entry, type, offset, timestamp } = one;
  openDialog({
    title: type,
    side: true,
    body: h(
      "div",
      { class: "stack" },
      facts([
        ["Time", time(timestamp, { milliseconds: true })],
        ["Outcome", outcome(one)],
        ["Principal", entry.principal],
        ["Resource", resourceText(one) || "none"],
        ["Host", entry.host || "none"],
        ["Port", entry.port],
        ["Offset", number(offset)],
      ]),
      h("section", { class: "stack part" }, h("h3", {}, "Entry"), h("div", { class: "code" }, h("div", { class: "json-place" }, jsonTree(entry, { open: 3 })))),
      commandHint({ kwire: line("kwire", "topic", "consume", TOPIC, "--from", String(offset), "--count", "1", "-o", "json"), curl: curl(`/topics/${TOPIC}/partitions/0/records/${offset}`) }).element,
    ),
  });
}
