// JSON Schemas: references, types, and the constraints in words.

// Keywords that a form cannot show. A schema with one of them is edited as JSON.
const BEYOND_FORMS = ["allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "prefixItems", "$dynamicRef", "contains"];
const REFERENCES_MAX = 20;

// The schema that a reference inside of `root` leads to, with the keywords beside the reference; null if there is none.
export function resolved(schema, root) {
  let found = schema;
  for (let step = 0; found && typeof found === "object" && found.$ref !== undefined; step += 1) {
    const { $ref: reference, ...rest } = found;
    const target = step < REFERENCES_MAX ? targetOf(reference, root) : null;
    found = target && typeof target === "object" ? { ...target, ...rest } : null;
  }
  return found;
}

function targetOf(reference, root) {
  if (reference === "#") return root;
  if (!reference.startsWith("#/")) return null;
  let found = root;
  for (const part of reference.slice(2).split("/")) {
    const name = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (found === null || typeof found !== "object" || !Object.hasOwn(found, name)) return null;
    found = found[name];
  }
  return found;
}

// The kind of input for a resolved schema: choice, string, number, integer, boolean, object, array, or json.
export function kindOf(schema) {
  if (schema === null || typeof schema !== "object" || BEYOND_FORMS.some((one) => one in schema)) return "json";
  if ("const" in schema || Array.isArray(schema.enum)) return valuesOf(schema).every((one) => one === null || typeof one !== "object") ? "choice" : "json";
  const type = typeOf(schema);
  if (type === "object") return schema.properties && Object.keys(schema.properties).length ? "object" : "json";
  if (type === "array") return schema.items && typeof schema.items === "object" ? "array" : "json";
  return ["string", "number", "integer", "boolean"].includes(type) ? type : "json";
}

export const valuesOf = (schema) => ("const" in schema ? [schema.const] : schema.enum);

// The type of a schema; of ["string", "null"] it is "string". Undefined if there are several, or none.
function typeOf({ type, properties }) {
  if (typeof type === "string") return type;
  if (Array.isArray(type)) {
    const others = type.filter((one) => one !== "null");
    return others.length === 1 ? others[0] : undefined;
  }
  return properties ? "object" : undefined;
}

export const mayBeNull = ({ type, enum: values }) => (Array.isArray(type) && type.includes("null")) || Boolean(values?.includes(null));

// The type in words: "string, date-time", "array of integer".
export function typeText(schema, root) {
  const found = resolved(schema, root);
  if (found === true || found === null || typeof found !== "object") return "any";
  if ("const" in found || found.enum) return "const" in found ? "const" : "enum";
  const type = Array.isArray(found.type) ? found.type.join(" or ") : (found.type ?? (found.properties ? "object" : "any"));
  if (type === "array" && found.items && typeof found.items === "object") return `array of ${typeText(found.items, root)}`;
  return [type, found.format].filter(Boolean).join(", ");
}

// The constraints of a schema in words: ["1 to 100", "matches ^a"].
export function constraintsOf(schema) {
  if (schema === null || typeof schema !== "object") return [];
  const values = "const" in schema || schema.enum ? [valuesOf(schema).map((one) => JSON.stringify(one)).join(", ")] : [];
  return [
    ...values,
    range(schema.minimum, schema.maximum),
    schema.exclusiveMinimum !== undefined && `more than ${schema.exclusiveMinimum}`,
    schema.exclusiveMaximum !== undefined && `less than ${schema.exclusiveMaximum}`,
    schema.multipleOf !== undefined && `a multiple of ${schema.multipleOf}`,
    range(schema.minLength, schema.maxLength, "characters"),
    schema.pattern !== undefined && `matches ${schema.pattern}`,
    range(schema.minItems, schema.maxItems, "items"),
    schema.uniqueItems === true && "no item twice",
  ].filter(Boolean);
}

function range(least, most, noun = "") {
  const unit = noun && ` ${noun}`;
  if (least !== undefined && most !== undefined) return `${least} to ${most}${unit}`;
  if (least !== undefined) return `at least ${least}${unit}`;
  return most !== undefined && `at most ${most}${unit}`;
}
