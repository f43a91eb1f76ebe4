// JSON whose numbers keep their digits.

// A reviver for JSON.parse: integers that a number cannot hold become BigInts.
export function exact(_, value, context) {
  const isInexact = typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "");
  return isInexact ? BigInt(context.source) : value;
}

export const parseExact = (text) => JSON.parse(text, exact);

// The JSON text of a value, which may have BigInts.
export function jsonText(value, space) {
  return JSON.stringify(value, (_, one) => (typeof one === "bigint" ? raw(String(one)) : one), space);
}

// formatJson('{"a":1}') -> the same value, indented. Raises SyntaxError.
export function formatJson(text) {
  const keepDigits = (_, value, context) => (typeof value === "number" && context && String(value) !== context.source ? raw(context.source) : value);
  return JSON.stringify(JSON.parse(text, keepDigits), null, 2);
}

// Why a text is not JSON; an empty text if it is.
export function jsonProblem(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return error.message;
  }
}

// The source of a number as it is. Browsers without JSON.rawJSON round it.
const raw = (source) => (JSON.rawJSON ? JSON.rawJSON(source) : Number(source));
