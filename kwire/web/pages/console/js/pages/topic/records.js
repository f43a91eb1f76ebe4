// The records of a topic: a browse with filters that run on the server, or a live view.
import { commandHint } from "../../command.js";
import { h, setText, show } from "../../dom.js";
import { button, emptyState, notice } from "../../elements.js";
import { bytes, count, number, seconds, short, time } from "../../format.js";
import { icon } from "../../icons.js";
import { MILLISECONDS_WIDTH, dataTable } from "../../table.js";
import { openRecord } from "./records/detail.js";
import { recordQuery } from "./records/query.js";
import { KEPT_MAX, Scan } from "./records/scan.js";

// The part of a key or value that a row of the list may show.
const PREVIEW_LENGTH = 300;

export async function recordsTab(element, topic, view) {
  let isLive = view.query.live === "true";
  let isPressed = false;
  const form = recordQuery({ topic, view, onChange: () => hint.set(form.commands(live.checked)) });
  const hint = commandHint(form.commands(isLive));
  const live = h("input", { type: "checkbox", checked: isLive });
  const start = button("Browse", null, { kind: "primary", type: "submit", icon: "search" });
  const cancel = button("Cancel", () => scan.cancel(), { icon: "stop" });
  const bar = h("div", {});
  const track = h("div", { class: "meter-track" }, bar);
  const figures = h("span", { class: "scan-figures" });
  const summary = h("span", { role: "status" });
  const more = button("Load more", () => browse({ isContinued: true }), { icon: "down" });
  const problem = h("div", { class: "stack" });
  const table = dataTable({
    label: "Records",
    noun: "record",
    view,
    isClipped: true,
    columns: [
      { name: "Offset", value: (one) => one.offset, text: String, kind: "number", width: "6.5rem" },
      { name: "Partition", value: (one) => one.partition, text: String, kind: "number", width: "6.5rem" },
      { name: "Time", value: (one) => one.timestamp, text: (ms) => time(ms, { milliseconds: true }), width: MILLISECONDS_WIDTH, hideBelow: 900 },
      { name: "Key", value: (one) => preview(one.key), render: (one) => cell(one.key), width: "11rem", hideBelow: 640 },
      { name: "Value", value: (one) => preview(one.value), render: (one) => cell(one.value) },
    ],
    key: keyOf,
    open: (one) => openRecord(topic, one, { records: shown, isolation: form.isolation() }),
    openName: (one) => `Record ${one.partition}/${one.offset}`,
    empty: emptyState({ icon: "messages", title: "No records", text: "No record was found. Other partitions, another start or other filters may find some." }),
  });
  let shown = [];
  let drawn = 0;
  const scan = new Scan(topic.name, draw);

  function browse({ isContinued = false } = {}) {
    if (!form.isValid()) return;
    isLive = live.checked;
    if (!isContinued) form.save({ live: isLive ? "true" : "" });
    const next = isContinued ? Object.entries(scan.end.next).map((one) => one.join(":")).join(",") : undefined;
    hint.set(form.commands(isLive));
    // JSON stays text, so that its numbers keep their digits.
    scan.run(form.search({ live: isLive || "", encoding: "text", next }), { signal: view.signal, isContinued });
  }

  // While a mouse button is pressed, rows stay as they are: otherwise a click would hit another row.
  function draw() {
    if (view.signal.aborted) return;
    if (isPressed) return void setTimeout(draw, 50);
    if (drawn !== scan.version) {
      drawn = scan.version;
      // A live view has its newest record on top.
      shown = isLive ? [...scan.records].reverse() : [...scan.records];
      if (shown.length || !scan.isRunning) table.setRows(shown);
    }
    start.hidden = scan.isRunning;
    cancel.hidden = !scan.isRunning;
    drawProgress();
    const isFieldError = scan.error?.status === 400 && form.setError(scan.error.message);
    show(problem, [
      scan.error && !isFieldError && notice(scan.error.message, "bad"),
      scan.end?.error && notice(scan.end.error.message, "bad"),
      scan.unreadable > 0 && notice(`${count(scan.unreadable, "range")} of offsets cannot be read: the log is damaged there.`, "warn"),
      scan.progress?.unsearched > 0 && notice(`${count(scan.progress.unsearched, "record")} with large values were not searched by the JSON path.`, "warn"),
      scan.dropped > 0 && notice(`The page keeps ${number(KEPT_MAX)} records: ${number(scan.dropped)} that came before them were dropped.`),
    ].filter(Boolean));
  }

  function drawProgress() {
    const { scanned = 0, matched = 0, left = 0, bytes: read = 0 } = scan.progress ?? {};
    const share = scanned + left > 0 ? scanned / (scanned + left) : scan.isRunning ? 0 : 1;
    track.hidden = !scan.isRunning || isLive;
    bar.style.setProperty("width", `${share * 100}%`);
    const parts = [`${number(scanned)} scanned`, `${number(matched)} matched`, bytes(read)];
    if (scan.isRunning && !isLive) parts.push(`${short(scan.rate)} records/s`);
    if (!scan.isRunning) parts.push(`${seconds(scan.elapsedMs / 1000)}`);
    if (isLive && scan.isRunning) setText(figures, `${number(scan.records.length + scan.dropped)} received`);
    else setText(figures, scan.progress || !scan.isRunning ? parts.join(" · ") : "Starting");
    setText(summary, scan.isRunning ? (isLive ? "Live" : "Scanning") : ending(scan));
    summary.className = scan.isRunning && isLive ? "badge good" : "scan-state";
    more.hidden = scan.isRunning || isLive || scan.end?.reason !== "limit";
  }

  const card = h(
    "form",
    { class: "card browse", novalidate: true, "aria-label": "Browse" },
    h("div", { class: "card-body" }, form.element),
    h(
      "div",
      { class: "browse-foot" },
      start,
      cancel,
      h("label", { class: "row" }, live, "Live"),
      h("span", { class: "scan" }, h("span", { class: "row" }, summary, figures), track),
      more,
    ),
  );
  card.addEventListener("submit", (event) => {
    event.preventDefault();
    browse();
  });
  live.addEventListener("change", () => {
    hint.set(form.commands(live.checked));
    browse();
  });
  table.element.addEventListener("pointerdown", () => (isPressed = true));
  for (const event of ["pointerup", "pointercancel"]) view.on(window, event, () => setTimeout(() => (isPressed = false)));
  show(element, card, problem, table.element, hint.element);
  draw();
  browse();
}

const keyOf = (one) => `${one.partition}/${one.offset}`;

// Why a scan has ended, in words.
function ending({ end, error, isCancelled, records }) {
  if (isCancelled) return "Cancelled";
  if (error) return "Failed";
  const reasons = {
    end: "Complete",
    limit: `First ${number(records.length)}`,
    deleted: "The topic was deleted",
    stopped: "The server stops",
    forbidden: "Not allowed any longer",
    error: "Failed",
  };
  return end ? reasons[end.reason] : "";
}

function preview(part) {
  return part === null ? null : part.data.slice(0, PREVIEW_LENGTH);
}

function cell(part) {
  if (part === null) return h("span", { class: "muted" }, "null");
  if (part.encoding === "base64") return h("span", { class: "row-bytes" }, icon("info", 14), `${bytes(part.size_bytes)} of binary data`);
  return h("code", { class: "row-text" }, preview(part).replace(/\s+/g, " ") || h("span", { class: "muted" }, "empty"));
}
