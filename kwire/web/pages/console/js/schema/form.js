// A form made from a JSON Schema. What a form cannot show is a field for JSON.
import { h, show } from "../dom.js";
import { button, iconButton } from "../elements.js";
import { field } from "../form.js";
import { parseExact, jsonText } from "../json.js";
import { jsonField } from "../json_field.js";
import { constraintsOf, kindOf, mayBeNull, resolved, valuesOf } from "./reading.js";

// Schemas that are nested deeper are edited as JSON.
const DEPTH_MAX = 6;
const ITEMS_MAX = 100;

// schemaForm(schema, {value}) -> {element, read(), invalid(), setError(path, message)}. `read` returns the value, undefined
// if nothing was entered. `invalid` shows the problems that the browser finds, and returns the first such control. `setError`
// shows an error of the server at the field with this path, such as $.lines[0].sku, or at the nearest one around it.
export function schemaForm(schema, { value } = {}) {
  return part(schema, { root: schema, path: "$", label: null, isRequired: true, value, depth: 0 });
}

function part(schema, context) {
  const found = resolved(schema, context.root);
  const kind = context.depth > DEPTH_MAX ? "json" : kindOf(found);
  const start = context.value === undefined ? found?.default : context.value;
  const made = { ...context, value: start };
  if (kind === "object") return objectPart(found, made);
  if (kind === "array") return arrayPart(found, made);
  return leafPart(kind, found, made);
}

// --- one value

function leafPart(kind, schema, context) {
  const { path, value, isRequired } = context;
  // An empty field stands for null where null is allowed.
  const isNullable = mayBeNull(schema ?? {});
  const input = LEAVES[kind](schema, { isRequired: isRequired && !isNullable });
  const made = input.make({
    name: path,
    label: [context.label ?? "Payload", isRequired && h("span", { class: "required", title: "required" }, " *")],
    hint: [schema?.description, ...constraintsOf(kind === "choice" ? {} : schema)].filter(Boolean).join(" · ") || null,
    placeholder: placeholderOf(schema),
    ...input.options,
    value: value === undefined ? "" : input.show(value),
  });
  return {
    element: made.element,
    read: () => {
      const text = made.control.value;
      if (text === "") return isRequired && isNullable ? null : undefined;
      return input.read(text);
    },
    invalid: () => (made.isValid() ? null : made.control),
    setError: (_, message) => {
      made.setError(message);
      return made.control;
    },
    clearErrors: () => made.setError(""),
  };
}

const placeholderOf = (schema) => {
  const example = schema?.examples?.[0];
  return ["string", "number"].includes(typeof example) ? `for example ${example}` : null;
};
const asText = { make: field, show: String };
const numberOf = (text) => (/^-?\d+$/.test(text) && !Number.isSafeInteger(Number(text)) ? BigInt(text) : Number(text));
const numberLeaf = (step) => (schema, { isRequired }) => ({
  ...asText,
  options: { type: "number", step, min: schema.minimum, max: schema.maximum, required: isRequired },
  read: numberOf,
});
const pad = (value) => String(value).padStart(2, "0");
const localTime = (text) => {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return "";
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
};

// How each kind is entered: `make` makes a field, `show` makes the text of a value, `read` the value of a text.
const LEAVES = {
  string: (schema, { isRequired }) => {
    const time = { type: "datetime-local", step: 1, required: isRequired };
    if (schema.format === "date-time") return { make: field, options: time, show: localTime, read: (text) => new Date(text).toISOString() };
    if (schema.format === "date") return { ...asText, options: { type: "date", required: isRequired }, read: String };
    return { ...asText, options: { required: isRequired }, read: String };
  },
  number: numberLeaf("any"),
  integer: numberLeaf(1),
  boolean: (schema, { isRequired }) => ({
    ...asText,
    options: { type: "select", required: isRequired, options: [["", "not set"], ["true", "true"], ["false", "false"]] },
    read: (text) => text === "true",
  }),
  choice: (schema, { isRequired }) => {
    const values = valuesOf(schema);
    const options = values.map((one, index) => [String(index), typeof one === "string" ? one : JSON.stringify(one)]);
    return {
      make: field,
      options: { type: "select", required: isRequired, options: [["", "not set"], ...options] },
      show: (value) => String(values.indexOf(value)),
      read: (text) => values[Number(text)],
    };
  },
  json: (schema, { isRequired }) => ({
    make: jsonField,
    options: { isOptional: !isRequired, rows: 4, placeholder: "JSON" },
    show: (value) => jsonText(value, 2),
    read: parseExact,
  }),
};

// --- objects

function objectPart(schema, context) {
  const { path, value, depth, root, label } = context;
  const required = schema.required ?? [];
  const known = value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
  const parts = Object.entries(schema.properties).map(([name, one]) => [
    name,
    part(one, { root, path: `${path}.${name}`, label: name, isRequired: required.includes(name), value: known[name], depth: depth + 1 }),
  ]);
  const error = h("span", { class: "field-error wide", role: "alert" });
  const fields = h("div", { class: "fields" }, parts.map(([, one]) => one.element), error);
  return {
    // The object at the top has no frame of its own.
    element: depth === 0 ? fields : group(label, context.isRequired, schema, [], fields),
    read: () => {
      const found = parts.map(([name, one]) => [name, one.read()]).filter(([, one]) => one !== undefined);
      return found.length || context.isRequired ? Object.fromEntries(found) : undefined;
    },
    // Required properties of an object that may be left out are needed only if it has a value.
    invalid() {
      if (!context.isRequired && this.read() === undefined) return null;
      return parts.map(([, one]) => one.invalid()).find(Boolean) ?? null;
    },
    setError(at, message) {
      const missing = at === path && /^"(.*)" is a required property/.exec(message)?.[1];
      const wanted = missing ? `${path}.${missing}` : at;
      const inner = parts.find(([name]) => isWithin(wanted, `${path}.${name}`));
      if (inner) return inner[1].setError(wanted, message);
      error.textContent = message;
      return fields;
    },
    clearErrors() {
      error.textContent = "";
      for (const [, one] of parts) one.clearErrors();
    },
  };
}

const isWithin = (path, outer) => path === outer || path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`);

function group(label, isRequired, schema, tools, ...children) {
  const hint = [schema.description, ...constraintsOf(schema)].filter(Boolean).join(" · ");
  return h(
    "fieldset",
    { class: "field wide part-group" },
    h("legend", {}, label, isRequired && h("span", { class: "required", title: "required" }, " *")),
    hint && h("span", { class: "field-hint" }, hint),
    children,
    tools.length > 0 && h("div", { class: "row" }, tools),
  );
}

// --- arrays

function arrayPart(schema, context) {
  const { path, value, depth, root, isRequired } = context;
  const label = context.label ?? "Payload";
  const given = Array.isArray(value) ? value : Array.from({ length: Math.min(ITEMS_MAX, isRequired ? (schema.minItems ?? 0) : 0) });
  const list = h("div", { class: "items" });
  const error = h("span", { class: "field-error", role: "alert" });
  let items = [];
  const add = button(`Add to ${label}`, () => change([...items, made(undefined, items.length)]), { icon: "plus" });
  const made = (one, index) => part(
    schema.items,
    { root, path: `${path}[${index}]`, label: `${label} ${index + 1}`, isRequired: true, value: one, depth: depth + 1 },
  );
  const draw = () => {
    const removal = (index) => iconButton(`Remove ${label} ${index + 1}`, "trash", () => remove(index));
    show(list, items.map((one, index) => h("div", { class: "item" }, one.element, removal(index))));
    add.disabled = items.length >= Math.min(ITEMS_MAX, schema.maxItems ?? ITEMS_MAX);
  };
  const change = (newItems) => {
    items = newItems;
    draw();
    list.dispatchEvent(new Event("input", { bubbles: true }));
  };
  // The items after a removed one get new paths and labels.
  const remove = (index) => change(items.filter((_, at) => at !== index).map((one, at) => made(one.read(), at)));
  items = given.map(made);
  draw();
  return {
    element: group(label, isRequired, schema, [add], list, error),
    read: () => (items.length || isRequired ? items.map((one) => one.read() ?? null) : undefined),
    invalid: () => items.map((one) => one.invalid()).find(Boolean) ?? null,
    setError(at, message) {
      const index = items.findIndex((_, number) => isWithin(at, `${path}[${number}]`));
      if (index >= 0) return items[index].setError(at, message);
      error.textContent = message;
      return add;
    },
    clearErrors() {
      error.textContent = "";
      for (const one of items) one.clearErrors();
    },
  };
}
