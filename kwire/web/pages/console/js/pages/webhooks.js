// The list of webhooks.
import { get, post, query } from "../api.js";
import { commandHint, line } from "../command.js";
import { h, show } from "../dom.js";
import { badge, button, emptyState, pageHeader } from "../elements.js";
import { formDialog } from "../form.js";
import { number } from "../format.js";
import { addKey } from "../keys.js";
import { go, url } from "../router.js";
import { mayOnTopics } from "../session.js";
import { dataTable } from "../table.js";
import { createCommand, webhookBody, webhookFields } from "./webhook/definition.js";
import { showSecret } from "./webhook/secret.js";

const REFRESH_MS = 4_000;
const PAGE = 1_000;
const WEBHOOKS_MAX = 5_000;
const STATE_KINDS = { active: "good", paused: "warn", disabled: "bad" };
const TOPICS_SHOWN = 2;

export const stateBadge = (state) => badge(state, STATE_KINDS[state] ?? "");
// The events that the webhook has not delivered yet, in all topics.
export const pendingOf = ({ topics }) => Object.values(topics).reduce((sum, one) => sum + one.pending, 0);

export const title = "Webhooks";

export async function render(element, view) {
  const mayCreate = mayOnTopics("READ");
  const create = (kind) => mayCreate && button("Create webhook", createWebhook, { kind, icon: "plus" });
  const table = dataTable({
    label: "Webhooks",
    noun: "webhook",
    view,
    columns: [
      { name: "URL", value: (one) => one.url },
      { name: "State", value: (one) => one.state, render: (one) => stateBadge(one.state), width: "7rem" },
      { name: "Topics", value: (one) => Object.keys(one.topics).join(" "), render: topicNames, width: "14rem", hideBelow: 900 },
      { name: "Delivered", value: (one) => one.delivered, text: number, kind: "number", width: "7rem", hideBelow: 640 },
      { name: "Failed", value: (one) => one.failed, text: number, kind: "number", width: "6rem", hideBelow: 900 },
      { name: "Pending", value: pendingOf, text: number, kind: "number", width: "6.5rem", hideBelow: 640 },
      { name: "Dead", value: (one) => one.deadLetters, render: deadLetters, kind: "number", width: "5rem" },
    ],
    key: (one) => one.id,
    href: (one) => url("/webhooks", one.id),
    filter: (one) => `${one.url} ${one.state} ${one.description} ${Object.keys(one.topics).join(" ")}`,
    sort: "URL",
    empty: emptyState({
      icon: "webhooks",
      title: "No webhooks yet",
      text: "A webhook sends the events of topics to a URL, signs each delivery, and tries again if it fails.",
      action: create(""),
    }),
  });
  show(
    element,
    pageHeader({ title: "Webhooks", about: "Events that the server sends to URLs, signed and with retries.", actions: [create("primary")] }),
    h("div", { class: "stack" }, table.element, commandHint(line("kwire", "webhook", "list")).element),
  );
  if (mayCreate) addKey(view, "n", "Create a webhook", createWebhook);
  view.every(REFRESH_MS, async () => {
    try {
      table.setRows(await allWebhooks(view.signal));
    } catch (error) {
      if (!error.status) throw error;
      table.setFailure(error);
    }
  });
}

function topicNames({ topics }) {
  const names = Object.keys(topics);
  const rest = names.length - TOPICS_SHOWN;
  return [names.slice(0, TOPICS_SHOWN).join(", "), rest > 0 && h("span", { class: "muted" }, ` and ${rest} more`)].filter(Boolean);
}

const deadLetters = (one) => (one.deadLetters ? badge(number(one.deadLetters), "bad") : h("span", { class: "muted" }, "0"));

async function allWebhooks(signal) {
  const found = [];
  let after;
  do {
    const page = await get(`/webhooks${query({ limit: PAGE, after })}`, { signal });
    found.push(...page.webhooks);
    after = page.next;
  } while (after !== null && found.length < WEBHOOKS_MAX);
  return found;
}

function createWebhook() {
  formDialog({
    title: "Create webhook",
    wide: true,
    action: "Create webhook",
    fields: webhookFields(),
    command: createCommand,
    run: async (values) => {
      const { id, secret } = await post("/webhooks", webhookBody(values, { isNew: true }));
      go(url("/webhooks", id));
      showSecret("The webhook was created", secret);
    },
    fieldOf,
  });
}

// The field to which an error of the server belongs.
export function fieldOf({ code, message }) {
  if (code === "TopicNotFound" || code.startsWith("TOPIC_") || code.startsWith("UNKNOWN_TOPIC")) return "topics";
  const named = /^(?:the )?(url|topics|filter|types|headers|parallel)\b/i.exec(message);
  return named ? named[1].toLowerCase() : null;
}
