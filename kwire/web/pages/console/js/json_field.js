// A field for JSON: it is checked while it is edited, and a button formats it.
import { h, setText } from "./dom.js";
import { button } from "./elements.js";
import { field } from "./form.js";
import { formatJson, jsonProblem } from "./json.js";

// jsonField({name: "data", label: "Data", value: "{}", rows: 8}) -> a field as those of form.js. `read` returns the text.
// With `isOptional`, an empty text is valid.
export function jsonField({ isOptional = false, check, ...options }) {
  const problemOf = (text) => (isOptional && !text.trim() ? "" : jsonProblem(text) || check?.(text) || "");
  const made = field({ type: "textarea", wide: true, rows: 8, ...options, check: problemOf });
  const state = h("span", { class: "json-state", role: "status" });
  const format = button("Format", () => {
    made.control.value = formatJson(made.control.value);
    made.control.dispatchEvent(new Event("input", { bubbles: true }));
  }, { kind: "quiet", title: "Indent the JSON" });
  const update = () => {
    const text = made.control.value;
    const problem = problemOf(text);
    setText(state, text.trim() ? (problem ? "not valid yet" : "valid JSON") : "");
    state.className = problem ? "json-state warn-text" : "json-state good-text";
    format.disabled = Boolean(jsonProblem(text));
  };
  made.control.addEventListener("input", update);
  made.control.after(h("span", { class: "json-tools" }, state, format));
  update();
  return {
    ...made,
    // Sets the text.
    write(text) {
      made.control.value = text;
      update();
    },
  };
}
