// The fields of a webhook, the body of its request, and the command.
import { line } from "../../command.js";
import { field } from "../../form.js";
import { objectOfPairs, pairsField, wordsOfPairs } from "../../pairs.js";

const HEADER = "a header";
const STARTS = [["latest", "with new events"], ["oldest", "with the oldest stored event"]];
const MODES = [["ordered", "one after the other, in order"], ["parallel", "several at a time"]];
const BODIES = [["event", "the event as JSON"], ["binary", "CloudEvents, binary"], ["structured", "CloudEvents, structured"]];
const POLICIES = [["retry", "try again, then keep as a dead letter"], ["remove", "remove the webhook"]];
const PARALLEL_DEFAULT = 10;

const namesOf = (text) => text.split(/[\s,]+/).filter(Boolean);

// The fields of a new webhook, or of `webhook` as GET /webhooks/{id} has it.
export function webhookFields(webhook) {
  const old = webhook ?? {};
  const fields = {
    url: field({
      name: "url", label: "URL", type: "url", required: true, maxlength: 2000, wide: true, autofocus: true, value: old.url ?? "",
      hint: "The server sends each event there by POST",
    }),
    topics: field({
      name: "topics", label: "Topics", required: true, wide: !webhook, value: Object.keys(old.topics ?? {}).join(", "), placeholder: "orders, payments",
      hint: webhook ? "Separated by commas. Topics that stay keep their position." : "Separated by commas",
    }),
    start: field({ name: "start", label: webhook ? "New topics start" : "Start", type: "select", options: STARTS, value: "latest" }),
    types: field({ name: "types", label: "Only event types", value: (old.types ?? []).join(", "), placeholder: "all types", hint: "Separated by commas" }),
    filter: field({
      name: "filter", label: "Filter", wide: true, value: old.filter ?? "", placeholder: "all events",
      hint: 'For example data.total > 100 and type == "order.paid"',
    }),
    mode: field({ name: "mode", label: "Deliver", type: "select", options: MODES, value: old.mode ?? "ordered" }),
    parallel: field({ name: "parallel", label: "At a time", type: "number", min: 1, value: old.parallel ?? PARALLEL_DEFAULT }),
    rate: field({ name: "rate", label: "Per second, at most", type: "number", min: 0, step: "any", value: old.ratePerSecond ?? "", placeholder: "no limit" }),
    body: field({ name: "body", label: "Body", type: "select", options: BODIES, value: old.body ?? "event" }),
    policy: field({ name: "policy", label: "If a delivery fails", type: "select", options: POLICIES, value: old.policy ?? "retry" }),
    description: field({ name: "description", label: "Description", value: old.description ?? "" }),
    headers: webhook ? null : pairsField({ name: "headers", label: "Headers", noun: HEADER, hint: "One per line: name=value. The values are not shown again." }),
  };
  const update = () => (fields.parallel.element.hidden = fields.mode.read() !== "parallel");
  fields.mode.control.addEventListener("change", update);
  update();
  return Object.values(fields).filter(Boolean);
}

const placesOf = ({ topics, start }) => Object.fromEntries(namesOf(topics).map((one) => [one, start === "latest" ? "latest" : null]));

// The body of POST /webhooks and of PATCH /webhooks/{id}. null removes a value.
export function webhookBody(values, { isNew }) {
  const body = {
    url: values.url,
    topics: placesOf(values),
    policy: values.policy,
    types: namesOf(values.types),
    filter: values.filter.trim() || null,
    mode: values.mode,
    parallel: values.mode === "parallel" ? values.parallel : undefined,
    ratePerSecond: values.rate,
    body: values.body,
    description: values.description || null,
  };
  if (!isNew) return body;
  const headers = objectOfPairs(values.headers, HEADER);
  if (Object.keys(headers).length) body.headers = headers;
  return Object.fromEntries(Object.entries(body).filter(([, one]) => one !== null && (!Array.isArray(one) || one.length)));
}

// The options that a command for a new and for a changed webhook share.
function options(values) {
  const types = namesOf(values.types);
  return [
    values.policy !== "retry" && ["--policy", values.policy],
    values.filter.trim() && ["--filter", values.filter.trim()],
    values.mode === "parallel" && ["--mode", "parallel", "--parallel", String(values.parallel ?? PARALLEL_DEFAULT)],
    values.rate !== null && ["--rate", String(values.rate)],
    values.body !== "event" && ["--body", values.body],
    values.description && ["--description", values.description],
    types.length > 0 && ["--types", ...types],
  ].filter(Boolean).flat();
}

const placeWords = (values) => Object.entries(placesOf(values)).map(([name, last]) => (last ? `${name}=${last}` : name));

export function createCommand(values) {
  const topics = placeWords(values);
  const headers = wordsOfPairs("--header", objectOfPairs(values.headers, HEADER));
  return line("kwire", "webhook", "create", values.url || "URL", topics.length ? topics : "TOPIC", headers, options(values));
}

export const updateCommand = (id, values) => line("kwire", "webhook", "update", id, "--url", values.url || "URL", options(values), "--topics", placeWords(values));
