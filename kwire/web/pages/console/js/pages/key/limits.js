// The limits of an API key: their texts and fields.
import { field } from "../../form.js";
import { number } from "../../format.js";

// The limits, as the fields of the HTTP API and as options of `kwire key`.
export const LIMITS = {
  max_events: { label: "Events", option: "--max-events", unit: "events a day", hint: "Events that may be published until 24 hours after the limit is reached." },
  max_subscriptions: { label: "Subscriptions", option: "--max-subscriptions", unit: "subscriptions", hint: "Streams of events that may be open at once over HTTP." },
  publish_rate: { label: "Publish rate", option: "--publish-rate", unit: "events/s", min: 1, hint: "Events per second." },
};

export const limitsText = (key) =>
  Object.entries(LIMITS).filter(([name]) => key[name] !== null).map(([name, { unit }]) => `${number(key[name])} ${unit}`).join(", ") || "none";

// One field for each limit. An empty field is no limit.
export function limitFields(key = {}) {
  return Object.entries(LIMITS).map(([name, { label, hint, min = 0 }]) => field({ name, label, hint, type: "number", min, step: 1, placeholder: "no limit", value: key[name] ?? "" }));
}

// The words of `kwire key create`: only limits that are set.
export const limitWords = (values) => Object.entries(LIMITS).flatMap(([name, { option }]) => (values[name] === null ? [] : [option, String(values[name])]));

export const limitsOf = (values) => Object.fromEntries(Object.keys(LIMITS).map((name) => [name, values[name]]));
