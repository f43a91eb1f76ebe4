// The payload of an event as a field of a form: a form made from its schema, or JSON.
import { h, show } from "../dom.js";
import { jsonText } from "../json.js";
import { jsonField } from "../json_field.js";
import { schemaForm } from "./form.js";

const MODES = ["Form", "JSON"];

// payloadField({name, schema}) -> a field as those of form.js, with `setSchema(schema)`. `read` returns the JSON text.
export function payloadField({ name, schema }) {
  let mode = "Form";
  let made = null;
  let wrong = null;
  const json = jsonField({ name, label: "Payload as JSON", rows: 12 });
  const choice = h("div", { class: "segmented", role: "group", "aria-label": "View of the payload" });
  const place = h("div", {});
  const element = h("div", { class: "field wide payload" }, h("div", { class: "row part-head" }, h("h3", {}, "Payload"), choice), place);
  const text = () => (mode === "JSON" ? json.read() : jsonText(made.read() ?? {}, 2));

  function draw() {
    show(choice, MODES.map((one) => h("button", { type: "button", "aria-pressed": String(one === mode), onclick: () => choose(one) }, one)));
    show(place, mode === "Form" ? made.element : json.element);
  }
  // The other view shows what was entered in this one.
  function choose(chosen) {
    if (chosen === mode) return;
    if (chosen === "JSON") json.write(text());
    else {
      if (!json.isValid()) return;
      made = schemaForm(schema, { value: JSON.parse(json.read()) });
    }
    mode = chosen;
    draw();
  }
  const setSchema = (newSchema) => {
    schema = newSchema;
    made = schemaForm(schema);
    mode = "Form";
    draw();
  };
  setSchema(schema);
  return {
    element,
    name,
    setSchema,
    read: text,
    get control() {
      return wrong ?? json.control;
    },
    isValid() {
      if (mode === "JSON") {
        wrong = null;
        return json.isValid();
      }
      made.clearErrors();
      wrong = made.invalid();
      return wrong === null;
    },
    // An error of the server has the path of the value in the payload.
    setError(message, error) {
      const path = error?.details.path ?? "$";
      const problem = message.replace(/^'.*?': /, "").replace(`${path}: `, "");
      if (mode === "JSON") return json.setError(`${path}: ${problem}`);
      wrong = made.setError(path, problem);
      wrong.scrollIntoView({ block: "center" });
      wrong.focus?.();
    },
  };
}
