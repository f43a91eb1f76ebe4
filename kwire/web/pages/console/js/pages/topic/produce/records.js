// Records as the JSON of a produce request (REST Proxy v2, format `text`), and the commands that produce them.
import { line } from "../../../command.js";
import { pairsOf } from "../../../pairs.js";
import { curl, kcat } from "../commands.js";

// The limit of the server for one request.
const RECORDS_MAX = 10_000;
// A longer request is not shown as a command.
const SHOWN_LENGTH = 4_000;
const LINE_FIELDS = ["key", "value", "headers", "partition", "timestamp"];

// The record of the form. An empty key is no key.
export function recordOf({ key, value, headers, partition, format }) {
  const made = { key: key === "" ? null : key, value: format === "null" ? null : value };
  if (partition !== null) made.partition = partition;
  const found = headersOf(headers);
  if (found.length) made.headers = found;
  return made;
}

// "source=console" -> [{key: "source", value: "Y29uc29sZQ=="}]. Raises Error.
export function headersOf(text) {
  return pairsOf(text, "a header").map(([key, value]) => ({ key, value: base64(value) }));
}

// The records of JSON lines, as `kwire topic produce --format jsonl` reads them. Raises Error with the number of the line.
export function recordsOf(text) {
  const found = [];
  for (const [index, one] of text.split("\n").entries()) {
    if (!one.trim()) continue;
    try {
      found.push(lineRecord(JSON.parse(one, exact)));
    } catch (error) {
      throw new Error(`line ${index + 1}: ${error.message}`);
    }
  }
  if (!found.length) throw new Error("at least one record is needed");
  if (found.length > RECORDS_MAX) throw new Error(`at most ${RECORDS_MAX} records can be produced at once`);
  return found;
}

function lineRecord(read) {
  if (read === null || typeof read !== "object" || Array.isArray(read)) throw new Error('a record is an object such as {"key": "a", "value": 1}');
  const unknown = Object.keys(read).find((one) => !LINE_FIELDS.includes(one));
  if (unknown) throw new Error(`the field "${unknown}" is not known: use ${LINE_FIELDS.join(", ")}`);
  if (!("value" in read)) throw new Error("the record has no value; null is a value");
  const { key = null, value, headers = null, ...rest } = read;
  return { key: content(key), value: content(value), ...(headers && { headers: lineHeaders(headers) }), ...rest };
}

// A value that is not a text is stored as its JSON.
const content = (value) => (value === null || typeof value === "string" ? value : JSON.stringify(value));

function lineHeaders(headers) {
  const pairs = Array.isArray(headers) ? headers.map(({ key, value }) => [key, value]) : Object.entries(headers);
  return pairs.map(([key, value]) => ({ key, value: value === null || value === undefined ? null : base64(String(value)) }));
}

// Numbers keep their digits, also those that a number cannot hold.
function exact(_, value, context) {
  return typeof value === "number" && JSON.rawJSON && String(value) !== context.source ? JSON.rawJSON(context.source) : value;
}

function base64(text) {
  let binary = "";
  for (const one of new TextEncoder().encode(text)) binary += String.fromCharCode(one);
  return btoa(binary);
}

// The commands that produce the same records. While the form is not valid, only the command without the records.
export function commandsOf(topic, values, bodyOf, mediaType) {
  const made = { kwire: null };
  const path = `/topics/${encodeURIComponent(topic.name)}`;
  if (values.mode === "lines") made.kwire = line("kwire", "topic", "produce", topic.name, "--format", "jsonl", "--file", "records.jsonl");
  else Object.assign(made, oneRecord(topic, values));
  try {
    const body = JSON.stringify(bodyOf());
    if (body.length <= SHOWN_LENGTH) made.curl = curl(path, "--header", `Content-Type: ${mediaType}`, "--data-raw", body);
  } catch {
    // The form shows what is wrong.
  }
  return made;
}

function oneRecord(topic, { key, value, headers, partition, format }) {
  let pairs = [];
  try {
    pairs = pairsOf(headers, "a header");
  } catch {
    // The form shows what is wrong.
  }
  const options = [key && ["-k", key], pairs.map((pair) => ["-H", pair.join("=")]), partition !== null && ["-p", String(partition)]].flat(2);
  if (format === "null") return { kwire: `${line("printf", "NULL")} | ${line("kwire", "topic", "produce", topic.name, "--null", "NULL", options)}` };
  const input = `printf %s ${value === "" ? "''" : line(value)}`;
  const kwire = `${input} | ${line("kwire", "topic", "produce", topic.name, "--format", "whole", options)}`;
  // kcat takes each line as a record, and nothing as no record.
  return value === "" || value.includes("\n") ? { kwire } : { kwire, kcat: `${input} | ${kcat(topic, "-P", options)}` };
}
