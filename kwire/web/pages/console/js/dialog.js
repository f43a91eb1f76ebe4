// Dialogs on the native <dialog> element.
import { h, newId, show } from "./dom.js";
import { button, iconButton, notice } from "./elements.js";
import { commandHint } from "./command.js";
import { toast } from "./toast.js";

// openDialog({title, body, actions, wide}) -> {element, close}. Escape and the button close it; `onClose` is called then.
// A dialog with `side` stands at the right edge of the window. `tools` are elements beside the title.
export function openDialog({ title, body, actions = [], tools = [], wide = false, side = false, onClose }) {
  const id = newId("dialog");
  const element = h(
    "dialog",
    { class: side ? "side-dialog" : wide ? "wide" : "", "aria-labelledby": id },
    h("div", { class: "dialog-head" }, h("h2", { id }, title), h("span", { class: "dialog-tools" }, tools, iconButton("Close", "close", () => element.close()))),
    h("div", { class: "dialog-body" }, body),
    actions.length > 0 && h("div", { class: "dialog-foot" }, actions),
  );
  element.addEventListener("close", () => {
    element.remove();
    onClose?.();
  });
  document.body.append(element);
  element.showModal();
  return { element, close: () => element.close() };
}

// confirmAction({
//   title: "Delete topic orders", effect: "3 partitions with 12 GiB of records are deleted.", typeName: "orders",
//   command: "kwire topic delete orders", action: "Delete", done: "Topic orders was deleted", run: () => remove(…),
// }) -> a promise: true if the action was done. Nothing happens before the user confirms; with `typeName`, the user has
// to type this name. An error of the server is shown in the dialog.
export function confirmAction({ title, effect, typeName, command, action = "Delete", kind = "danger", done, run }) {
  return new Promise((resolve) => {
    let isDone = false;
    const error = h("div", {});
    const input = typeName && h("input", { autocomplete: "off", spellcheck: "false", autofocus: true, "aria-label": `Type ${typeName} to confirm` });
    const confirm = button(action, null, { kind, type: "submit", disabled: Boolean(typeName) });
    input?.addEventListener("input", () => (confirm.disabled = input.value !== typeName));
    const form = h(
      "form",
      { class: "form" },
      effect && h("div", { class: "effect" }, typeof effect === "string" ? h("p", {}, effect) : effect),
      input && h("label", { class: "field" }, h("span", {}, "Type ", h("code", {}, typeName), " to confirm"), input),
      command && commandHint(command).element,
      error,
      h("div", { class: "dialog-foot inner" }, button("Cancel", () => dialog.close()), confirm),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      confirm.disabled = true;
      try {
        await run();
        isDone = true;
        if (done) toast(done);
        dialog.close();
      } catch (failed) {
        confirm.disabled = false;
        show(error, notice(failed.message, "bad"));
      }
    });
    const dialog = openDialog({ title, body: form, onClose: () => resolve(isDone) });
  });
}
