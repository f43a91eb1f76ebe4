// The schemas of a topic: the properties of each event type, and the JSON Schema as a tree.
import { patch } from "../../api.js";
import { commandHint, copyButton, line } from "../../command.js";
import { h, show } from "../../dom.js";
import { badge, button, card, emptyState } from "../../elements.js";
import { field, formDialog } from "../../form.js";
import { count } from "../../format.js";
import { jsonTree } from "../../json_tree.js";
import { jsonField } from "../../json_field.js";
import { go } from "../../router.js";
import { constraintsOf, resolved, typeText } from "../../schema/reading.js";
import { dataTable } from "../../table.js";
import { toast } from "../../toast.js";
import { curl } from "../topic/commands.js";

const TEMPLATE = { type: "object", properties: { id: { type: "string" }, at: { type: "string", format: "date-time" } }, required: ["id"] };
// Nested objects are listed to this depth; the tree has the rest.
const DEPTH_MAX = 3;

export const typeOf = (schema) => schema.eventType ?? schema.type;

export function schemasTab(element, topic) {
  show(
    element,
    topic.allows("ALTER") && h("div", { class: "row" }, button("Register schema", () => registerSchema(topic), { icon: "plus" })),
    topic.schemas.map((one) => schemaCard(topic, one)),
    commandHint(line("kwire", "schema", "show", topic.name)).element,
  );
}

function schemaCard(topic, schema) {
  const name = typeOf(schema);
  const rows = propertiesOf(schema, schema);
  return card(
    {
      title: name,
      about: schema.title ?? schema.description,
      flush: true,
      actions: [
        badge(count(rows.filter((one) => one.depth === 0).length, "property", "properties")),
        topic.allows("WRITE") && button("Publish", () => topic.publish(name), { icon: "send" }),
        topic.allows("ALTER") && button("Extend", () => registerSchema(topic, schema), { icon: "edit" }),
      ].filter(Boolean),
    },
    rows.length > 0
      ? propertyTable(name, rows)
      : emptyState({ title: "No properties", text: "The schema names no properties. Its tree shows what it demands." }),
    h(
      "details",
      { class: "schema-source" },
      h("summary", {}, "JSON Schema"),
      h("div", { class: "code json-place" }, copyButton(JSON.stringify(schema, null, 2), `Copy the schema of ${name}`), jsonTree(schema, { label: `Schema of ${name}` })),
    ),
  );
}

// The properties with those of nested objects below them: [{name: "customer.email", type, isRequired, rules, depth}]
function propertiesOf(schema, root, prefix = "", depth = 0) {
  const found = resolved(schema, root);
  if (!found?.properties || depth >= DEPTH_MAX) return [];
  return Object.entries(found.properties).flatMap(([name, one]) => {
    const inner = resolved(one, root);
    const path = prefix + name;
    const isList = inner?.type === "array" && inner.items && typeof inner.items === "object";
    const rules = [inner?.description, ...constraintsOf(inner)].filter(Boolean).join(" · ");
    return [
      { name: path, depth, type: typeText(one, root), isRequired: (found.required ?? []).includes(name), rules },
      ...propertiesOf(isList ? inner.items : one, root, isList ? `${path}[].` : `${path}.`, depth + 1),
    ];
  });
}

function propertyTable(name, rows) {
  return dataTable({
    label: `Properties of ${name}`,
    noun: "property",
    rows,
    columns: [
      { name: "Property", render: (one) => h("code", { class: one.depth ? "muted" : "" }, one.name), width: "16rem" },
      { name: "Type", render: (one) => one.type, width: "12rem" },
      { name: "", render: (one) => one.isRequired && badge("required", "accent"), width: "7rem" },
      { name: "Rules", render: (one) => one.rules, hideBelow: 640 },
    ],
  }).element;
}

// Adds an event type, or extends the schema of one.
function registerSchema(topic, schema) {
  const { eventType, ...rest } = schema ?? { ...TEMPLATE };
  const path = `/topics/${encodeURIComponent(topic.name)}/schemas`;
  const bodyOf = ({ type, text }) => ({ schemas: [{ eventType: type, ...JSON.parse(text) }] });
  formDialog({
    title: schema ? `Extend ${typeOf(schema)}` : `Register a schema for ${topic.name}`,
    about: "Event types and optional properties can be added. The server refuses every other change, because stored events have to match.",
    wide: true,
    action: "Register",
    fields: [typeField(schema ? typeOf(schema) : ""), schemaField(rest)],
    command: (values) => schemaCommands(topic.name, () => curl(path, "--request", "PATCH", "--json", JSON.stringify(bodyOf(values)))),
    run: async (values) => {
      await patch(path, bodyOf(values));
      toast(`The schema of ${values.type} was registered.`);
      go(location.pathname, { replace: true });
    },
    fieldOf: (error) => (["InvalidSchema", "IncompatibleSchema"].includes(error.code) ? "text" : null),
  });
}

export const typeField = (value) => field({ name: "type", label: "Event type", required: true, maxlength: 256, value, placeholder: "order.placed", hint: "What happened" });

export const schemaField = (schema = TEMPLATE) => jsonField({
  name: "text",
  label: "JSON Schema",
  rows: 16,
  value: JSON.stringify(schema, null, 2),
  hint: "JSON Schema 2020-12",
  check: (text) => (isObject(JSON.parse(text)) ? "" : "a schema is an object"),
});

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// The commands that register a schema; curl only while the text is JSON.
export function schemaCommands(topic, curlOf) {
  const commands = { kwire: line("kwire", "schema", "register", topic, "--file", "schema.json") };
  try {
    commands.curl = curlOf();
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  return commands;
}
