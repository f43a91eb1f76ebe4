// Deleting the ACLs that match a filter, with a preview of them.
import { commandHint } from "../../command.js";
import { openDialog } from "../../dialog.js";
import { h, show } from "../../dom.js";
import { button, notice } from "../../elements.js";
import { field } from "../../form.js";
import { count } from "../../format.js";
import { toast } from "../../toast.js";
import { TYPES, commandOf, deleteAcls, findAcls } from "./model.js";
import { aclTable } from "./table.js";

const TYPED_MS = 250;

// deleteMatching({filter: {principal, type, name}, onDone}): opens the dialog with a filter to begin with.
export function deleteMatching({ filter, onDone }) {
  const named = Object.entries(TYPES).filter(([, one]) => one.option).map(([id, one]) => [id, one.text]);
  const fields = {
    principal: field({ name: "principal", label: "Principal", value: filter.principal ?? "", placeholder: "any" }),
    type: field({ name: "type", label: "Resource", type: "select", options: [["", "any"], ...named], value: filter.type ?? "" }),
    name: field({ name: "name", label: "Name", value: filter.name ?? "", hint: "Names are compared exactly." }),
    isPrefixed: field({ name: "isPrefixed", label: "Only ACLs of a prefix", type: "checkbox", wide: true }),
  };
  const read = () => Object.fromEntries(Object.entries(fields).map(([name, one]) => [name, one.read()]));
  const preview = h("div", {});
  const error = h("div", {});
  const hint = commandHint("");
  const execute = button("Delete", run, { kind: "danger", disabled: true });
  let turn = 0;
  let found = [];

  // A type needs a name, and something must be chosen, as on the command line.
  const problem = ({ principal, type, name }) => {
    if (type && type !== "cluster" && !name) return `Name the ${TYPES[type].text}.`;
    return principal || type ? "" : "Choose a principal or a resource.";
  };

  async function update() {
    const mine = (turn += 1);
    const wanted = read();
    fields.name.element.hidden = !wanted.type || wanted.type === "cluster";
    if (fields.name.element.hidden) wanted.name = "";
    execute.disabled = true;
    show(error);
    hint.element.hidden = Boolean(problem(wanted));
    if (problem(wanted)) return void show(preview, notice(problem(wanted)));
    hint.set(commandOf("delete", wanted));
    try {
      const matching = await findAcls(wanted);
      if (mine !== turn) return;
      found = matching;
      show(preview, matching.length ? aclTable({ label: "ACLs that will be deleted", rows: matching }).element : notice("No ACL matches."));
      show(execute, matching.length ? `Delete ${count(matching.length, "ACL")}` : "Delete");
      execute.disabled = !matching.length;
    } catch (failed) {
      if (mine === turn) show(error, notice(failed.message, "bad"));
    }
  }

  async function run() {
    execute.disabled = true;
    try {
      // The ACLs of the preview, and no others that were created since.
      const deleted = await deleteAcls(found);
      dialog.close();
      toast(deleted === 1 ? "1 ACL was deleted." : `${count(deleted, "ACL")} were deleted.`);
      await onDone();
    } catch (failed) {
      execute.disabled = false;
      show(error, notice(failed.message, "bad"));
    }
  }

  let timer = 0;
  const form = h("div", { class: "form" }, h("div", { class: "fields" }, Object.values(fields).map((one) => one.element)));
  form.addEventListener("input", () => {
    execute.disabled = true;
    clearTimeout(timer);
    timer = setTimeout(update, TYPED_MS);
  });
  const dialog = openDialog({
    title: "Delete ACLs",
    wide: true,
    body: h("div", { class: "stack" }, form, h("h3", {}, "ACLs that will be deleted"), preview, hint.element, error),
    actions: [button("Cancel", () => dialog.close()), execute],
    onClose: () => clearTimeout(timer),
  });
  update();
}
