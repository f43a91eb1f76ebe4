// Publishes an event: a form made from the schema of its type.
import { request } from "../../api.js";
import { line } from "../../command.js";
import { field, formDialog } from "../../form.js";
import { objectOfPairs, pairsField, wordsOfPairs } from "../../pairs.js";
import { payloadField } from "../../schema/payload_field.js";
import { toast } from "../../toast.js";
import { url } from "../../router.js";
import { curl } from "../topic/commands.js";
import { typeOf } from "./schemas.js";

const NOUN = "metadata";
// The field to which an error of the server belongs.
const FIELD_OF = { SchemaViolation: "payload", InvalidJson: "payload", EventTooLarge: "payload", WrongExpectedVersion: "version" };

// publishEvent(topic, {type, onDone}). The dialog is closed when the event is stored.
export function publishEvent(topic, { type, onDone } = {}) {
  const schemaOf = (name) => topic.schemas.find((one) => typeOf(one) === name);
  const types = topic.schemas.map(typeOf);
  const chosen = types.includes(type) ? type : types[0];
  const payload = payloadField({ name: "payload", schema: schemaOf(chosen) });
  const kind = field({ name: "type", label: "Event type", type: "select", options: types.map((one) => [one, one]), value: chosen, wide: true });
  kind.control.addEventListener("change", () => payload.setSchema(schemaOf(kind.read())));
  formDialog({
    title: `Publish to ${topic.name}`,
    wide: true,
    action: "Publish",
    fields: [
      kind,
      payload,
      field({ name: "key", label: "Key", placeholder: "no key", hint: "For Kafka clients" }),
      field({ name: "version", label: "Expected version", type: "number", min: -1, placeholder: "any", hint: "The version of the last event; -1: the topic has none" }),
      pairsField({ name: "metadata", label: "Metadata", noun: NOUN }),
    ],
    command: (values) => ({
      kwire: line(
        "kwire", "event", "publish", topic.name, values.payload, "--type", values.type,
        values.key && ["--key", values.key],
        values.version !== null && `--expected-version=${values.version}`,
        wordsOfPairs("--metadata", objectOfPairs(values.metadata, NOUN)),
      ),
      curl: curl("/events", "--json", bodyOf(topic, values)),
    }),
    run: async (values) => {
      const answer = await request("POST", "/events", { body: bodyOf(topic, values) });
      const [id] = (await answer.json()).eventIds;
      toast(`Event ${id} was stored.`, { href: `${url("/event-store/topics", topic.name)}?event=${encodeURIComponent(id)}` });
      await onDone?.();
    },
    fieldOf: (error) => FIELD_OF[error.code] ?? null,
  });
}

// The payload stays as it was entered, so that its numbers keep their digits.
function bodyOf({ name }, { type, payload, key, version, metadata }) {
  const more = {
    topic: name,
    type,
    key: key || undefined,
    expectedVersion: version ?? undefined,
    metadata: metadata.trim() ? objectOfPairs(metadata, NOUN) : undefined,
  };
  return `{${JSON.stringify(more).slice(1, -1)},"payload":${payload.trim() || "null"}}`;
}
