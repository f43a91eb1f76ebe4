// The settings of a webhook, its secret, and its position in each topic with a replay.
import { patch, post } from "../../api.js";
import { commandHint, line } from "../../command.js";
import { h, show } from "../../dom.js";
import { button, card, facts } from "../../elements.js";
import { field, formDialog } from "../../form.js";
import { NONE, number, time } from "../../format.js";
import { url } from "../../router.js";
import { dataTable } from "../../table.js";
import { toast } from "../../toast.js";
import { fieldOf } from "../webhooks.js";
import { updateCommand, webhookBody, webhookFields } from "./definition.js";
import { rotateSecret } from "./secret.js";

export function positionsTab(element, webhook, view, onChange) {
  const table = dataTable({
    label: "Positions",
    noun: "topic",
    view,
    columns: [
      { name: "Topic", value: (one) => one.name, render: (one) => h("a", { href: url("/topics", one.name) }, one.name) },
      { name: "Last event", value: (one) => one.lastEventId ?? NONE, width: "14rem", hideBelow: 640 },
      { name: "Pending", value: (one) => one.pending, text: number, kind: "number", width: "7rem" },
      { name: "Retrying", value: (one) => one.retrying, text: number, kind: "number", width: "7rem" },
    ],
    key: (one) => one.name,
    filter: (one) => one.name,
    sort: "Topic",
    tools: [button("Replay", () => replay(webhook, onChange), { icon: "refresh" })],
  });
  show(element, table.element, commandHint(line("kwire", "webhook", "describe", webhook.id)).element);
  webhook.onChange(({ topics }) => table.setRows(Object.entries(topics).map(([name, one]) => ({ name, ...one }))));
}

export function settingsTab(element, webhook, view, onChange) {
  const place = h("div", { class: "stack" });
  show(element, place, commandHint(line("kwire", "webhook", "describe", webhook.id)).element);
  webhook.onChange((one) => show(
    place,
    card(
      { title: "Settings", actions: [button("Edit", () => edit(webhook, one, onChange), { icon: "edit" })] },
      facts([
        ["URL", one.url],
        ["Description", one.description || NONE],
        ["Event types", one.types.join(", ") || "all"],
        ["Filter", one.filter ? h("code", {}, one.filter) : "all events"],
        ["Deliver", one.mode === "parallel" ? `up to ${one.parallel} at a time` : "one after the other, in order"],
        ["Per second, at most", one.ratePerSecond === null ? "no limit" : number(one.ratePerSecond)],
        ["Body", { event: "the event as JSON", binary: "CloudEvents, binary", structured: "CloudEvents, structured" }[one.body]],
        ["If a delivery fails", one.policy === "retry" ? "try again, then dead letter" : "remove the webhook"],
        ["Headers", Object.keys(one.headers).join(", ") || "none"],
        ["Rights of", one.creator || NONE],
        ["Created", time(Date.parse(one.createdAt))],
        ["Id", h("code", {}, one.id)],
      ]),
    ),
    card(
      { title: "Secret", actions: [button("Rotate secret", () => rotateSecret(one), { icon: "keys" })] },
      h("p", { class: "muted" }, "Each delivery is signed with a secret (Standard Webhooks). The server does not show it again."),
    ),
  ));
}

function edit(webhook, old, onChange) {
  formDialog({
    title: "Edit webhook",
    wide: true,
    action: "Save",
    fields: webhookFields(old),
    command: (values) => updateCommand(webhook.id, values),
    run: async (values) => {
      await patch(webhook.path, webhookBody(values, { isNew: false }));
      toast("The webhook was changed.");
      await onChange();
    },
    fieldOf,
  });
}

const STARTS = { beginning: "the beginning", time: "a point in time", event: "an event" };

function replay(webhook, onChange) {
  const start = field({ name: "start", label: "Send everything again from", type: "select", options: Object.entries(STARTS), value: "beginning", wide: true });
  const check = (name) => (value) => (start.read() === name && !value ? "this is needed" : "");
  const fields = {
    time: field({ name: "time", label: "Time", type: "datetime-local", step: 1, wide: true, check: check("time") }),
    event: field({ name: "event", label: "After event", placeholder: "orders-12", wide: true, check: check("event") }),
  };
  const update = () => { for (const [name, one] of Object.entries(fields)) one.element.hidden = start.read() !== name; };
  start.control.addEventListener("change", update);
  update();
  const timeOf = (value) => (value ? new Date(value).toISOString() : "TIME");
  formDialog({
    title: "Replay",
    about: "The webhook goes back, and sends all events from there on again. Receivers get the same webhook-id for the same event.",
    action: "Replay",
    fields: [start, ...Object.values(fields)],
    command: (values) => line("kwire", "webhook", "replay", webhook.id, {
      beginning: ["--from-beginning"],
      time: ["--since-time", timeOf(values.time)],
      event: ["--since-event", values.event || "EVENT"],
    }[values.start]),
    run: async (values) => {
      const bodies = { beginning: { fromBeginning: true }, time: { sinceTime: timeOf(values.time) }, event: { sinceEventId: values.event } };
      await post(`${webhook.path}/replay`, bodies[values.start]);
      toast("The webhook sends the events again.");
      await onChange();
    },
    fieldOf: (error) => (/event/.test(error.message) && start.read() === "event" ? "event" : null),
  });
}
