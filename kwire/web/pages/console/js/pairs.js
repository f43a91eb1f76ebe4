// Names with values, one per line: headers, metadata.
import { field, problemOf } from "./form.js";

// pairsOf("source=console", "a header") -> [["source", "console"]]. Raises Error with the number of the line.
export function pairsOf(text, noun) {
  return text.split("\n").filter((one) => one.trim()).map((one, index) => {
    const at = one.indexOf("=");
    if (at < 1) throw new Error(`line ${index + 1}: ${noun} is name=value`);
    return [one.slice(0, at).trim(), one.slice(at + 1).trim()];
  });
}

// A field for pairs. It reads the text.
export function pairsField({ noun, ...options }) {
  return field({ type: "textarea", rows: 2, wide: true, hint: "One per line: name=value", ...options, check: (text) => problemOf(() => pairsOf(text, noun)) });
}

// The pairs of a text as an object; empty while a line is not complete.
export function objectOfPairs(text, noun) {
  return problemOf(() => pairsOf(text, noun)) ? {} : Object.fromEntries(pairsOf(text, noun));
}

// The words of a command line: wordsOfPairs("--header", {a: "1"}) -> ["--header", "a=1"]
export const wordsOfPairs = (option, object) => Object.entries(object).flatMap(([name, value]) => [option, `${name}=${value}`]);
