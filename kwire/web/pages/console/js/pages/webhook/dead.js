// The dead letters of a webhook: events that could not be delivered.
import { get, post, query, remove } from "../../api.js";
import { commandHint, line } from "../../command.js";
import { confirmAction } from "../../dialog.js";
import { h, show } from "../../dom.js";
import { button, emptyState } from "../../elements.js";
import { ago, count } from "../../format.js";
import { dataTable } from "../../table.js";
import { reporting, toast } from "../../toast.js";
import { curl } from "../topic/commands.js";
import { recordAddress, statusText } from "./deliveries.js";

const REFRESH_MS = 3_000;
const PAGE = 500;

function eventName({ eventId }) {
  const record = recordAddress(eventId);
  return record ? h("a", { href: record }, eventId) : eventId;
}

export function deadTab(element, webhook, view, onChange) {
  const rowAction = (text, one, run) => h("button", { type: "button", class: "quiet", "aria-label": `${text} ${one.eventId}`, onclick: () => run(one) }, text);
  const all = button("Send all again", () => resendAll(), { icon: "send" });
  const more = h("div", { class: "muted" });
  const table = dataTable({
    label: "Dead letters",
    noun: "dead letter",
    view,
    columns: [
      { name: "Event", value: (one) => one.eventId, render: eventName, width: "11rem" },
      { name: "Type", value: (one) => one.type, width: "10rem", hideBelow: 900 },
      { name: "Answer", value: statusText, hideBelow: 640 },
      { name: "Attempts", value: (one) => one.attempts, text: String, kind: "number", width: "6rem", hideBelow: 900 },
      { name: "Since", value: (one) => one.at, text: (text) => ago(Date.parse(text)), width: "9rem", hideBelow: 640 },
      { name: "", kind: "actions", width: "11rem", render: (one) => [rowAction("Send again", one, reporting(resendOne)), rowAction("Drop", one, drop)] },
    ],
    key: (one) => one.eventId,
    filter: (one) => `${one.eventId} ${one.type} ${statusText(one)}`,
    empty: emptyState({ icon: "check", title: "No dead letters", text: "Every event was delivered, or is still being tried." }),
    tools: [all],
  });

  async function load() {
    const { deadLetters, next } = await get(`${webhook.path}/dead-letters${query({ limit: PAGE })}`, { signal: view.signal });
    table.setRows(deadLetters);
    all.disabled = !deadLetters.length;
    more.textContent = next === null ? "" : `The first ${PAGE} are shown.`;
  }
  const changed = () => Promise.all([load(), onChange()]);

  async function resendOne({ eventId }) {
    const { queued } = await post(`${webhook.path}/dead-letters/resend`, { eventIds: [eventId] });
    toast(queued ? `${eventId} will be sent again.` : `${eventId} is not a dead letter any longer.`, { kind: queued ? "good" : "info" });
    await changed();
  }
  async function resendAll() {
    const isDone = await confirmAction({
      title: "Send all dead letters again",
      effect: "Each event is tried again, as often as a new one. An event that fails again becomes a dead letter again.",
      command: line("kwire", "webhook", "resend", webhook.id, "--dead"),
      action: "Send all again",
      kind: "primary",
      run: async () => {
        const { queued } = await post(`${webhook.path}/dead-letters/resend`, {});
        toast(`${count(queued, "event")} will be sent again.`);
      },
    });
    if (isDone) await changed();
  }
  async function drop({ eventId }) {
    const path = `${webhook.path}/dead-letters/${encodeURIComponent(eventId)}`;
    const isDone = await confirmAction({
      title: `Drop dead letter ${eventId}`,
      effect: "The event stays in its topic, but this webhook gives it up.",
      command: { curl: curl(path, "--request", "DELETE") },
      action: "Drop",
      done: `${eventId} was dropped.`,
      run: () => remove(path),
    });
    if (isDone) await changed();
  }
  show(element, table.element, more, commandHint(line("kwire", "webhook", "dead", webhook.id)).element);
  view.every(REFRESH_MS, async () => {
    try {
      await load();
    } catch (error) {
      if (!error.status) throw error;
      table.setFailure(error);
    }
  });
}
