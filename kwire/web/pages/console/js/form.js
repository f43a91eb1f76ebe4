// Forms: fields with labels, hints and errors; the error of the server is shown at the form.
import { h, newId, show } from "./dom.js";
import { button, notice } from "./elements.js";
import { commandHint } from "./command.js";
import { openDialog } from "./dialog.js";
import { sentence } from "./format.js";

// field({name: "partitions", label: "Partitions", type: "number", value: 1, min: 1, hint: "…", required: true})
// Types: those of <input>, "select" with options [[value, text]], "textarea", "checkbox". `check` returns an error text.
export function field({ name, label, type = "text", value, hint, options, check, rows = 4, wide = false, ...attributes }) {
  const id = newId("field");
  const common = { id, name, "aria-describedby": hint ? `${id}-hint` : null, ...attributes };
  let control;
  if (type === "select") {
    control = h("select", common, options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  } else if (type === "textarea") {
    control = h("textarea", { rows, spellcheck: "false", ...common, value });
  } else if (type === "checkbox") {
    control = h("input", { type, ...common, checked: Boolean(value) });
  } else {
    control = h("input", { type, autocomplete: "off", spellcheck: "false", ...common, value });
  }
  const error = h("span", { class: "field-error", role: "alert" });
  const text = h("span", { class: "field-label" }, label);
  const note = hint && h("span", { class: "field-hint", id: `${id}-hint` }, hint);
  const element =
    type === "checkbox"
      ? h("div", { class: wide ? "field check wide" : "field check" }, h("label", {}, control, text), note, error)
      : h("div", { class: wide ? "field wide" : "field" }, h("label", { for: id }, text), control, note, error);
  const read = () => {
    if (type === "checkbox") return control.checked;
    if (type === "number") return control.value === "" ? null : Number(control.value);
    return control.value;
  };
  const setError = (message) => {
    error.textContent = sentence(message ?? "");
    control.setAttribute("aria-invalid", String(Boolean(message)));
  };
  // An error belongs to the value that it was found in.
  control.addEventListener("input", () => setError(""));
  return {
    element,
    control,
    name,
    read,
    setError,
    isValid() {
      const message = control.validationMessage || check?.(read()) || "";
      setError(message);
      return !message;
    },
  };
}

// The message of the error that `run` raises, an empty text without one: for the `check` of a field.
export function problemOf(run) {
  try {
    run();
    return "";
  } catch (error) {
    return error.message;
  }
}

// form({fields, action: "Create", command: (values) => "kwire …", run: async (values) => …, onCancel})
// -> {element, values}. `run` gets the values by name. An ApiError is shown; `fieldOf(error)` may name its field. `more`
// is a further button. `commandLabel` stands above the command.
export function form({ fields, action, command, commandLabel, run, onCancel, kind = "primary", fieldOf, more }) {
  const error = h("div", {});
  const values = () => Object.fromEntries(fields.map((one) => [one.name, one.read()]));
  const hint = command && commandHint(command(values()), { label: commandLabel });
  const submit = button(action, null, { kind, type: "submit" });
  const element = h(
    "form",
    { class: "form", novalidate: true },
    h("div", { class: "fields" }, fields.map((one) => one.element)),
    hint?.element,
    error,
    h("div", { class: "form-foot" }, more && h("span", { class: "more" }, more), onCancel && button("Cancel", onCancel), submit),
  );
  element.addEventListener("input", () => hint?.set(command(values())));
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wrong = fields.filter((one) => !one.isValid());
    if (wrong.length) return wrong[0].control.focus();
    submit.disabled = true;
    show(error);
    try {
      await run(values());
    } catch (failed) {
      const name = fieldOf?.(failed);
      const at = fields.find((one) => one.name === name);
      if (at) at.setError(failed.message, failed);
      else show(error, notice(failed.message, "bad"));
    } finally {
      submit.disabled = false;
    }
  });
  return { element, values };
}

// A form in a dialog. It is closed when `run` has succeeded.
export function formDialog({ title, about, wide, ...options }) {
  const made = form({
    ...options,
    onCancel: () => dialog.close(),
    run: async (values) => {
      await options.run(values);
      dialog.close();
    },
  });
  const dialog = openDialog({ title, wide, body: [about && h("p", { class: "about" }, about), made.element] });
  return dialog;
}
