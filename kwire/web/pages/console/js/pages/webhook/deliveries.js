// The latest delivery attempts of a webhook, newest first.
import { get, post, query } from "../../api.js";
import { codeBlock, commandHint, line } from "../../command.js";
import { openDialog } from "../../dialog.js";
import { h, show } from "../../dom.js";
import { badge, button, emptyState, facts, notice } from "../../elements.js";
import { NONE, ago, count, seconds, time } from "../../format.js";
import { setQuery, url } from "../../router.js";
import { about } from "../../session.js";
import { dataTable } from "../../table.js";
import { reporting, toast } from "../../toast.js";

const REFRESH_MS = 2_000;
const PAGE = 100;
// The attempts that the page keeps.
const KEPT_MAX = 2_000;
const OUTCOMES = { delivered: "good", retry: "warn", dead: "bad", remove: "bad", disable: "bad", gap: "warn" };

export const outcomeBadge = (outcome) => badge(outcome, OUTCOMES[outcome] ?? "");
// The problem, or the status of a delivery that succeeded.
export const statusText = ({ status, problem }) => problem ?? (status === null ? NONE : String(status));

// The address of the record of an event: "orders-7" is the record with offset 6. A bridge does not know the offsets of
// event topics, where the markers of transactions take some.
export function recordAddress(eventId) {
  if (about.engine === "bridge") return null;
  const at = eventId.lastIndexOf("-");
  return `${url("/topics", eventId.slice(0, at))}?from=offset&offset=${Number(eventId.slice(at + 1)) - 1}&partition=0`;
}

export async function deliveriesTab(element, webhook, view) {
  let isFailedOnly = view.query.failed === "true";
  const known = new Map();
  let next = null;
  const failed = h("input", { type: "checkbox", checked: isFailedOnly });
  const more = button("Load more", reporting(() => load(next)), { icon: "down" });
  const table = dataTable({
    label: "Deliveries",
    noun: "attempt",
    view,
    columns: [
      { name: "Event", value: (one) => one.eventId, width: "11rem" },
      { name: "Outcome", value: (one) => one.outcome, render: (one) => outcomeBadge(one.outcome), width: "8rem" },
      { name: "Answer", value: statusText, hideBelow: 640 },
      { name: "Attempt", value: (one) => one.attempt, text: String, kind: "number", width: "6rem", hideBelow: 900 },
      { name: "Duration", value: (one) => one.durationMs, text: (ms) => seconds(ms / 1000), kind: "number", width: "7rem", hideBelow: 900 },
      { name: "Time", value: (one) => one.at, text: (text) => ago(Date.parse(text)), width: "9rem", hideBelow: 640 },
    ],
    key: (one) => String(one.number),
    open: (one) => openAttempt(webhook, one),
    openName: (one) => `Attempt ${one.attempt} of ${one.eventId}`,
    filter: (one) => `${one.eventId} ${one.type} ${one.outcome} ${statusText(one)}`,
    empty: emptyState({ icon: "webhooks", title: "No deliveries yet", text: "Attempts appear here when an event of one of the topics is sent." }),
    tools: [h("label", { class: "row tool-field" }, failed, "Failed only")],
  });
  const hint = commandHint("");

  // Adds a page of attempts: the newest one, or the one that begins below `before`.
  async function load(before) {
    const page = await get(`${webhook.path}/deliveries${query({ limit: PAGE, before, failed: isFailedOnly || "" })}`, { signal: view.signal });
    const isFirst = known.size === 0;
    for (const one of page.attempts) known.set(one.number, one);
    if (before !== undefined || isFirst) next = page.next;
    const rows = [...known.values()].sort((a, b) => b.number - a.number).slice(0, KEPT_MAX);
    table.setRows(rows);
    more.hidden = next === null || rows.length >= KEPT_MAX;
  }
  failed.addEventListener("change", reporting(async () => {
    isFailedOnly = failed.checked;
    setQuery({ failed: isFailedOnly ? "true" : "" });
    known.clear();
    drawHint();
    await load();
  }));
  const drawHint = () => hint.set(line("kwire", "webhook", "deliveries", webhook.id, isFailedOnly && "--failed"));
  more.hidden = true;
  show(element, table.element, h("div", { class: "row" }, more), hint.element);
  drawHint();
  view.every(REFRESH_MS, async () => {
    try {
      await load();
    } catch (error) {
      if (!error.status) throw error;
      table.setFailure(error);
    }
  });
}

export const answerPart = (answer) => h("section", { class: "stack part" }, h("h3", {}, "Answer of the receiver"), codeBlock(answer, { label: "Answer" }));

function openAttempt(webhook, attempt) {
  const error = h("div", {});
  const resend = button("Send again", async () => {
    try {
      await resendEvents(webhook, [attempt.eventId]);
      dialog.close();
    } catch (failed) {
      show(error, notice(failed.message, "bad"));
    }
  }, { kind: "primary", icon: "send" });
  const record = recordAddress(attempt.eventId);
  const dialog = openDialog({
    title: `Delivery of ${attempt.eventId}`,
    side: true,
    body: h(
      "div",
      { class: "stack" },
      facts([
        ["Outcome", outcomeBadge(attempt.outcome)],
        ["Status", attempt.status ?? "no answer"],
        ["Attempt", String(attempt.attempt)],
        ["Duration", seconds(attempt.durationMs / 1000)],
        ["Time", time(Date.parse(attempt.at), { milliseconds: true })],
        ["Event type", attempt.type],
        attempt.nextAt && ["Next attempt", time(Date.parse(attempt.nextAt))],
      ]),
      attempt.problem && notice(attempt.problem, "bad"),
      answerPart(attempt.answer || "empty"),
      error,
      h("div", { class: "row" }, resend, record && h("a", { class: "button", href: record, onclick: () => dialog.close() }, "Show the record")),
      commandHint(line("kwire", "webhook", "resend", webhook.id, attempt.eventId)).element,
    ),
  });
}

// Sends events again, whether or not they were delivered before.
export async function resendEvents(webhook, eventIds) {
  const { queued } = await post(`${webhook.path}/resend`, { eventIds });
  toast(`${count(queued, "event")} will be sent again.`);
}
