// Publishes an event to a room.
import { request } from "../../api.js";
import { line } from "../../command.js";
import { field, formDialog } from "../../form.js";
import { count, number } from "../../format.js";
import { jsonField } from "../../json_field.js";
import { objectOfPairs, pairsField, wordsOfPairs } from "../../pairs.js";
import { toast } from "../../toast.js";
import { curl } from "../topic/commands.js";

const NOUN = "metadata";

export function publishEvent({ name }) {
  const path = `/rooms/${encodeURIComponent(name)}/events`;
  formDialog({
    title: `Publish to ${name}`,
    wide: true,
    action: "Publish",
    fields: [
      field({ name: "type", label: "Type", value: "message", required: true, maxlength: 256, autofocus: true }),
      field({ name: "key", label: "Key", placeholder: "no key", hint: "For Kafka clients" }),
      jsonField({ name: "data", label: "Data", value: '{\n  "user": "console",\n  "text": "Hello"\n}' }),
      pairsField({ name: "metadata", label: "Metadata", noun: NOUN }),
    ],
    command: (values) => ({
      kwire: line(
        "kwire", "room", "publish", name, values.data.trim() || "DATA", "--type", values.type || "TYPE",
        wordsOfPairs("--metadata", objectOfPairs(values.metadata, NOUN)),
      ),
      curl: curl(path, "--json", bodyOf(values)),
    }),
    run: async (values) => {
      const answer = await request("POST", path, { body: bodyOf(values) });
      const { offset, subscribers_notified: notified } = await answer.json();
      toast(`Published at offset ${number(offset)}; ${count(notified, "subscriber")} notified.`);
    },
    fieldOf: (error) => (["InvalidJson", "InvalidEvent", "EventTooLarge"].includes(error.code) ? "data" : null),
  });
}

// The data stays as it was typed, so that its numbers keep their digits.
function bodyOf({ type, data, metadata, key }) {
  const more = { key: key || undefined, metadata: metadata.trim() ? objectOfPairs(metadata, NOUN) : undefined };
  const rest = JSON.stringify(more).slice(1, -1);
  return `{"event_type":${JSON.stringify(type)},"data":${data.trim()}${rest && `,${rest}`}}`;
}
