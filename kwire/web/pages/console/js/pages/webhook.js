// One webhook: deliveries, dead letters, positions, settings; test, pause, resume, delete.
import { get, post, remove } from "../api.js";
import { commandHint, line } from "../command.js";
import { confirmAction, openDialog } from "../dialog.js";
import { h, show } from "../dom.js";
import { button, facts, keyFigure, keyFigures, notice, pageHeader, skeleton } from "../elements.js";
import { count, number, seconds } from "../format.js";
import { go, url } from "../router.js";
import { tabs } from "../tabs.js";
import { deadTab } from "./webhook/dead.js";
import { answerPart, deliveriesTab } from "./webhook/deliveries.js";
import { positionsTab, settingsTab } from "./webhook/settings.js";
import { pendingOf, stateBadge } from "./webhooks.js";

const REFRESH_MS = 2_000;
const TABS = [
  { id: "", name: "Deliveries", render: deliveriesTab },
  { id: "dead", name: "Dead letters", render: deadTab },
  { id: "positions", name: "Positions", render: positionsTab },
  { id: "settings", name: "Settings", render: settingsTab },
];

export const title = "Webhook";

export async function render(element, view) {
  const id = view.params.webhook;
  const path = `/webhooks/${encodeURIComponent(id)}`;
  let current = await get(path, { signal: view.signal });
  const listeners = [];
  // What all tabs need. `onChange(listener)` calls the listener now and whenever the webhook has changed.
  const webhook = { id, path, onChange: (listener) => { listeners.push(listener); listener(current); } };
  const figures = {
    delivered: keyFigure({ name: "Delivered" }),
    failed: keyFigure({ name: "Failed attempts" }),
    pending: keyFigure({ name: "Pending" }),
    dead: keyFigure({ name: "Dead letters", href: url("/webhooks", id, "dead") }),
  };
  const state = h("span", {});
  const reason = h("div", {});
  const toggle = h("span", { class: "actions" });
  let shown = "";
  const draw = () => {
    const retrying = Object.values(current.topics).reduce((sum, one) => sum + one.retrying, 0);
    show(state, stateBadge(current.state));
    const why = `The webhook is ${current.state}: ${current.reason || "no reason is known"}.`;
    show(reason, current.state !== "active" && notice(why, current.state === "disabled" ? "bad" : "warn"));
    figures.delivered.set(number(current.delivered), count(Object.keys(current.topics).length, "topic"));
    figures.failed.set(number(current.failed), "no answer, or not 2xx", current.failed ? "warn" : "");
    figures.pending.set(number(pendingOf(current)), `${number(retrying)} wait for their next attempt`);
    figures.dead.set(number(current.deadLetters), "given up until sent again", current.deadLetters ? "bad" : "");
    if (current.state !== shown) {
      shown = current.state;
      show(toggle, shown === "active"
        ? button("Pause", () => change(webhook, "pause", refresh), { icon: "pause" })
        : button("Resume", () => change(webhook, "resume", refresh), { icon: "play", kind: "primary" }));
    }
    const text = JSON.stringify(current);
    if (text !== draw.last) for (const one of listeners) one(current);
    draw.last = text;
  };
  async function refresh() {
    current = await get(path, { signal: view.signal });
    draw();
  }
  show(
    element,
    pageHeader({
      title: current.description || current.url,
      parents: [["Webhooks", url("/webhooks")]],
      badges: [state],
      about: current.description ? current.url : null,
      actions: [
        button("Send test", () => sendTest(webhook), { icon: "send" }),
        toggle,
        button("Delete", () => deleteWebhook(webhook, current), { kind: "danger-quiet", icon: "trash" }),
      ],
    }),
    h("div", { class: "stack" }, reason, keyFigures("Webhook", Object.values(figures)), tabs({
      label: "Webhook",
      selected: view.params.tab,
      items: TABS.map((tab) => ({ id: tab.id, name: tab.name, href: url("/webhooks", id, tab.id), render: (panel) => tab.render(panel, webhook, view, refresh) })),
    })),
  );
  draw();
  view.every(REFRESH_MS, async () => {
    try {
      await refresh();
    } catch (error) {
      if (!error.status) throw error;
      show(reason, notice(error.message, "bad"));
    }
  });
}

const CHANGES = {
  pause: { title: "Pause the webhook", effect: "Nothing is sent until it is resumed. Events stay in their topics.", action: "Pause", done: "The webhook is paused." },
  resume: { title: "Resume the webhook", effect: "The webhook continues where it has stopped.", action: "Resume", done: "The webhook is active." },
};

async function change({ id, path }, verb, onDone) {
  const isDone = await confirmAction({ ...CHANGES[verb], kind: "primary", command: line("kwire", "webhook", verb, id), run: () => post(`${path}/${verb}`) });
  if (isDone) await onDone();
}

// Sends one test delivery, and shows what came of it.
async function sendTest({ id, path }) {
  const body = h("div", { class: "stack" }, skeleton(2));
  openDialog({ title: "Test delivery", body });
  const hint = commandHint(line("kwire", "webhook", "test", id)).element;
  try {
    const { success, status, problem, answer, durationMs } = await post(`${path}/test`);
    show(
      body,
      notice(success ? "The receiver has accepted the delivery." : problem || "The receiver has refused the delivery.", success ? "good" : "bad"),
      facts([["Status", status ?? "no answer"], ["Duration", seconds(durationMs / 1000)]]),
      answer && answerPart(answer),
      hint,
    );
  } catch (error) {
    show(body, notice(error.message, "bad"), hint);
  }
}

async function deleteWebhook({ id, path }, { url: address, deadLetters }) {
  const isDone = await confirmAction({
    title: "Delete webhook",
    effect: `Nothing more is sent to ${address}. Its delivery log and ${count(deadLetters, "dead letter")} are deleted. The events stay in their topics.`,
    command: line("kwire", "webhook", "delete", id),
    action: "Delete webhook",
    done: "The webhook was deleted.",
    run: () => remove(path),
  });
  if (isDone) go(url("/webhooks"));
}
