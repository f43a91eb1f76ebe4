// The ACLs: who is allowed or denied what. Filters run on the server.
import { pagesOf } from "../api.js";
import { commandHint } from "../command.js";
import { confirmAction } from "../dialog.js";
import { h, show } from "../dom.js";
import { button, emptyState, pageHeader } from "../elements.js";
import { field } from "../form.js";
import { addKey } from "../keys.js";
import { setQuery } from "../router.js";
import { may, session } from "../session.js";
import { createAcl } from "./acls/create.js";
import { deleteMatching } from "./acls/delete.js";
import { PERMISSIONS, TYPES, commandOf, deleteAcls, findAcls } from "./acls/model.js";
import { aclTable, aclText, resourceText } from "./acls/table.js";

const TYPED_MS = 250;
// Users whose names are suggested.
const SUGGESTED_MAX = 1_000;

export const title = "ACLs";

export async function render(element, view) {
  const header = (actions) => pageHeader({ title: "ACLs", about: "Who is allowed or denied an operation on topics, groups, transactional ids and the cluster.", actions });
  if (!session.has_acls) {
    const text = "Without an authorizer, every client may do everything. Set kwire.authorizer=acl and start the server again; create an administrator before.";
    return void show(element, header([]), emptyState({ icon: "acls", title: "This server has no ACLs", text }));
  }
  const mayAlter = may("ALTER");
  let acls = [];
  const filter = filterForm(view, () => load());
  const hint = commandHint("kwire acl list");
  const load = async () => {
    const wanted = filter.read();
    const command = commandOf("list", wanted);
    hint.element.hidden = command === null;
    hint.set(command ?? "");
    try {
      acls = await findAcls(wanted, { isApplying: true, signal: view.signal });
      table.setRows(acls);
    } catch (error) {
      table.setFailure(error, load);
      if (!error.code) throw error;
    }
  };
  const create = () => createAcl({ principals: () => principals(view.signal), principal: filter.read().principal, onDone: load });
  const createButton = (kind) => mayAlter && button("Create ACL", create, { kind, icon: "plus" });
  const deletion = (acl) => h("button", { type: "button", class: "quiet", "aria-label": `Delete: ${aclText(acl)}`, onclick: () => deleteAcl(acl, load) }, "Delete");
  const table = aclTable({
    label: "ACLs",
    view,
    filter: (one) => `${one.principal} ${one.permission} ${one.operation} ${resourceText(one)} ${one.host}`,
    actions: mayAlter && deletion,
    empty: emptyState({ icon: "acls", title: "No ACLs", text: "No ACL matches. A client without ACLs may do nothing.", action: createButton("") }),
  });
  show(
    element,
    header([mayAlter && button("Delete several", () => deleteMatching({ filter: filter.read(), onDone: load }), { icon: "trash" }), createButton("primary")]),
    h("div", { class: "stack" }, filter.element, table.element, hint.element),
  );
  if (mayAlter) addKey(view, "n", "Create an ACL", create);
  await load();
}

// The principals of users, as suggestions.
async function principals(signal) {
  const users = await pagesOf("/users", "users", { limit: SUGGESTED_MAX, max: SUGGESTED_MAX, signal });
  return [...users.map((one) => `User:${one.name}`), "User:*"];
}

// The filters of the list. They are part of the address.
function filterForm(view, onChange) {
  const given = view.query;
  const fields = [
    field({ name: "principal", label: "Principal", placeholder: "User:alice", value: given.principal ?? "" }),
    field({ name: "permission", label: "Permission", type: "select", options: [["", "any"], ...Object.keys(PERMISSIONS).map((one) => [one, one])], value: given.permission ?? "" }),
    field({ name: "type", label: "Resource", type: "select", options: [["", "any"], ...Object.entries(TYPES).map(([id, one]) => [id, one.text])], value: given.type ?? "" }),
    field({ name: "name", label: "Applies to the name", placeholder: "orders", value: given.name ?? "", title: "Also ACLs of prefixes and of all names" }),
  ];
  const read = () => Object.fromEntries(fields.map((one) => [one.name, one.read().trim()]).filter(([, value]) => value));
  const element = h("form", { class: "card", role: "search", "aria-label": "Filter ACLs" }, h("div", { class: "card-body fields compact" }, fields.map((one) => one.element)));
  let timer = 0;
  element.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      setQuery(Object.fromEntries(fields.map((one) => [one.name, one.read().trim()])));
      onChange();
    }, TYPED_MS);
  });
  element.addEventListener("submit", (event) => event.preventDefault());
  view.signal.addEventListener("abort", () => clearTimeout(timer));
  return { element, read };
}

async function deleteAcl(acl, onDone) {
  const isDone = await confirmAction({
    title: "Delete ACL",
    effect: `This ACL is deleted: ${aclText(acl)}${acl.host === "*" ? "" : ` from ${acl.host}`}. The change applies to open connections at once.`,
    command: commandOf("delete", acl),
    action: "Delete",
    done: "The ACL was deleted.",
    run: () => deleteAcls([acl]),
  });
  if (isDone) await onDone();
}
